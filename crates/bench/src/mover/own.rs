//! `shunt send` and `shunt recv` in their modes, and what the disk does by itself: the denominator of other rates.

use super::{
    case::{Case, Group, Ran, quiet},
    pair::{Pair, free_port},
    site::Site,
};

/// Names of cases that others are compared with.
pub const BLAKE3: &str = "shunt-blake3";
pub const XXH3: &str = "shunt-xxh3";
pub const DISK_WRITE: &str = "disk-write";

/// Key and title of each, flags of `shunt send` and of `shunt recv`.
const MODES: &str = "
shunt-blake3            | shunt, as it is (BLAKE3)                           |                                 |
shunt-xxh3              | shunt --hash xxh3                                  | --hash xxh3                     |
shunt-sendfile          | shunt --hash xxh3 --method sendfile                | --hash xxh3 --method sendfile   |
shunt-buffered          | shunt --hash xxh3, recv --store buffered           | --hash xxh3                     | --store buffered
shunt-splice            | shunt --hash xxh3, recv --store splice             | --hash xxh3                     | --store splice
shunt-read-write        | shunt --hash xxh3, read/write at both ends         | --hash xxh3 --method read-write | --store buffered
shunt-tls               | shunt --tls --token (BLAKE3)                       | --tls                           | --tls
shunt-memory            | shunt --hash xxh3, memory sink                     | --hash xxh3                     | --store memory
shunt-memory-read-write | shunt --hash xxh3 --method read-write, memory sink | --hash xxh3 --method read-write | --store memory
";

pub fn cases() -> Vec<Case> {
    let own = output::columns(MODES).map(|[key, title, send, receive]| Case {
        key: key.to_owned(),
        title: title.to_owned(),
        group: Group::Own,
        tools: &[],
        // Otherwise there is no file at the end.
        stores: !receive.contains("memory"),
        run: Box::new(move |site| transfer(site, send, receive)),
    });
    own.collect()
}

/// The limits of a transfer: the disk's writing, and the reading of a file that lies in the page cache.
pub fn limits() -> Vec<Case> {
    let title = "reading the source by itself";
    let read = limit("source-read", title, |site| {
        let flag = site.interrupt.flag();
        Ok(mover::disk::read_rate(&site.source(), site.bytes, flag)?)
    });
    vec![disk_write(), read]
}

/// A disk by itself: no byte is found in the page cache.
pub fn disk() -> Vec<Case> {
    let title = "the disk's own reading, past the page cache";
    let read = limit("disk-read", title, |site| {
        let (path, flag) = (site.source(), site.interrupt.flag());
        Ok(mover::disk::device_read_rate(&path, site.bytes, flag)?)
    });
    vec![disk_write(), read]
}

fn disk_write() -> Case {
    let title = "the disk's own writing, fdatasync included";
    limit(DISK_WRITE, title, |site| {
        let flag = site.interrupt.flag();
        Ok(mover::disk::write_rate(&site.target(), site.bytes, flag)?)
    })
}

fn limit(key: &str, title: &str, rate: fn(&Site) -> anyhow::Result<mover::disk::DiskRate>) -> Case {
    Case {
        key: key.to_owned(),
        title: title.to_owned(),
        group: Group::Limit,
        tools: &[],
        stores: false,
        run: Box::new(move |site| {
            let rate = rate(site)?;
            Ok(Ran::of(rate.bytes, rate.taken.as_secs_f64(), None))
        }),
    }
}

fn transfer(site: &Site, send: &str, receive: &str) -> anyhow::Result<Ran> {
    let shunt = lab::own_binary();
    let token = mover::Token::random()?.to_string();
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let mut server = quiet(&shunt);
    server
        .args(["recv", "--listen", &address, "--dir"])
        .arg(site.target())
        .args(receive.split_ascii_whitespace());
    let mut client = quiet(&shunt);
    client
        .arg("send")
        .arg(site.source())
        .args(["--to", &address])
        .args(send.split_ascii_whitespace());
    for command in [&mut server, &mut client] {
        command.env("SHUNT_TOKEN", &token);
    }
    let took = Pair::once(server, port, client).run(site)?;
    Ok(Ran::of(site.bytes, took.seconds, Some(took.cpu_s)))
}
