//! `shunt send` and `shunt recv` in their modes, and what the disk does by itself: the denominator of other rates.

use anyhow::Context;

use super::{
    case::{Case, Group, Ran, quiet},
    pair::{Pair, free_port},
    site::Site,
};

/// What a transfer by this binary is told.
#[derive(Debug, Clone, Copy)]
struct Mode {
    key: &'static str,
    title: &'static str,
    send: &'static [&'static str],
    receive: &'static [&'static str],
    /// Whether there is a file at the end.
    stores: bool,
}

/// Names of cases that others are compared with.
pub const BLAKE3: &str = "shunt-blake3";
/// The same.
pub const XXH3: &str = "shunt-xxh3";
/// The same.
pub const READ_WRITE: &str = "shunt-read-write";
/// The same.
pub const MEMORY: &str = "shunt-memory";
/// The same.
pub const MEMORY_READ_WRITE: &str = "shunt-memory-read-write";
/// The same.
pub const DISK_WRITE: &str = "disk-write";

const MODES: &[Mode] = &[
    Mode {
        key: BLAKE3,
        title: "shunt, as it is (BLAKE3)",
        send: &[],
        receive: &[],
        stores: true,
    },
    Mode {
        key: XXH3,
        title: "shunt --hash xxh3",
        send: &["--hash", "xxh3"],
        receive: &[],
        stores: true,
    },
    Mode {
        key: "shunt-sendfile",
        title: "shunt --hash xxh3 --method sendfile",
        send: &["--hash", "xxh3", "--method", "sendfile"],
        receive: &[],
        stores: true,
    },
    Mode {
        key: "shunt-buffered",
        title: "shunt --hash xxh3, recv --store buffered",
        send: &["--hash", "xxh3"],
        receive: &["--store", "buffered"],
        stores: true,
    },
    Mode {
        key: "shunt-splice",
        title: "shunt --hash xxh3, recv --store splice",
        send: &["--hash", "xxh3"],
        receive: &["--store", "splice"],
        stores: true,
    },
    Mode {
        key: READ_WRITE,
        title: "shunt --hash xxh3, read/write at both ends",
        send: &["--hash", "xxh3", "--method", "read-write"],
        receive: &["--store", "buffered"],
        stores: true,
    },
    Mode {
        key: "shunt-tls",
        title: "shunt --tls --token (BLAKE3)",
        send: &["--tls"],
        receive: &["--tls"],
        stores: true,
    },
    Mode {
        key: MEMORY,
        title: "shunt --hash xxh3, memory sink",
        send: &["--hash", "xxh3"],
        receive: &["--store", "memory"],
        stores: false,
    },
    Mode {
        key: MEMORY_READ_WRITE,
        title: "shunt --hash xxh3 --method read-write, memory sink",
        send: &["--hash", "xxh3", "--method", "read-write"],
        receive: &["--store", "memory"],
        stores: false,
    },
];

/// All of them.
pub fn cases() -> Vec<Case> {
    let own = MODES.iter().map(|&mode| Case {
        key: mode.key.to_owned(),
        title: mode.title.to_owned(),
        group: Group::Own,
        tools: &[],
        stores: mode.stores,
        run: Box::new(move |site| transfer(site, mode)),
    });
    own.collect()
}

/// The disk alone.
pub fn limits() -> Vec<Case> {
    let write = Case {
        key: DISK_WRITE.to_owned(),
        title: "the disk's own writing, fdatasync included".to_owned(),
        group: Group::Limit,
        tools: &[],
        stores: false,
        run: Box::new(|site| {
            let flag = site.interrupt.flag();
            let rate = mover::disk::write_rate(&site.target(), site.bytes, flag)?;
            Ok(Ran::of(rate.bytes, rate.taken.as_secs_f64(), None))
        }),
    };
    let read = Case {
        key: "source-read".to_owned(),
        title: "reading the source by itself".to_owned(),
        group: Group::Limit,
        tools: &[],
        stores: false,
        run: Box::new(|site| {
            let flag = site.interrupt.flag();
            let rate = mover::disk::read_rate(&site.source(), site.bytes, flag)?;
            Ok(Ran::of(rate.bytes, rate.taken.as_secs_f64(), None))
        }),
    };
    vec![write, read]
}

fn transfer(site: &Site, mode: Mode) -> anyhow::Result<Ran> {
    let shunt = std::env::current_exe().context("finding this binary")?;
    let token = mover::Token::random()?.to_string();
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let mut server = quiet(&shunt);
    server
        .args(["recv", "--listen", &address, "--dir"])
        .arg(site.target())
        .args(mode.receive);
    let mut client = quiet(&shunt);
    client
        .arg("send")
        .arg(site.source())
        .args(["--to", &address])
        .args(mode.send);
    for command in [&mut server, &mut client] {
        command.env("SHUNT_TOKEN", &token);
    }
    let took = Pair::once(server, port, client).run(site)?;
    Ok(Ran::of(site.bytes, took.seconds, Some(took.cpu_s)))
}
