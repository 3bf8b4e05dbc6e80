//! `shunt send`: the end that has the files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::{ArgGroup, Args, ValueEnum};
use mover::{
    Algorithm, Method, PACK_LEVEL_MAX, Role, STREAMS_MAX, Sender, SenderConfig, Session, Watch,
};

use super::{Common, Hash, ending, progress};

/// Send files and folders to another host, whole or not at all
///
/// Over TCP; UDP is not offered, because TCP on a path that keeps up is as fast, and one that does not needs
/// congestion control anyway.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("peer").required(true).args(["to", "listen"]))]
#[command(after_help = "Examples:
  shunt recv --listen :7333 --dir /data                   there: receive one transfer; prints TOKEN
  shunt send big.raw results/ --to there --token TOKEN    here: send a file and a folder
  tar c tree | shunt send --stdin-name tree.tar --to there --token TOKEN
  shunt send --listen :7333 big.raw                       here: wait until somebody fetches it
  shunt recv --from here --token TOKEN --dir .            there: fetch it
  shunt run -- shunt send big.raw --to there              over Shunt's own TCP

A transfer that was cut goes on where it stopped: run the same commands again. A file has its
name only when it is whole and its hash is the same at both ends. Without --tls nothing is
encrypted: the token keeps strangers out, not somebody who can read or change packets.
Exit status: 0 all of it arrived, 1 some of it did not, 2 wrong usage or no connection.")]
pub struct Arguments {
    /// Files and folders
    #[arg(value_name = "PATH", required_unless_present = "stdin_name")]
    paths: Vec<PathBuf>,
    /// Send standard input too, under this name
    #[arg(long, value_name = "NAME")]
    stdin_name: Option<String>,
    /// Connect to a receiver: HOST or HOST:PORT
    #[arg(long, value_name = "HOST[:PORT]")]
    to: Option<String>,
    /// Wait for a receiver instead: [HOST]:PORT
    #[arg(long, value_name = "[HOST]:PORT")]
    listen: Option<String>,
    /// Connections that carry data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(STREAMS_MAX)), conflicts_with = "listen")]
    streams: u16,
    /// How bytes leave the disk; by default what costs least here
    #[arg(long, value_enum)]
    method: Option<MethodFlag>,
    /// How blocks are hashed
    #[arg(long, value_enum, default_value_t = Hash::Blake3)]
    hash: Hash,
    /// Compress on the way (zstd), from 1, fastest, to 19; what does not get shorter travels as it is
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "3", value_parser = clap::value_parser!(u8).range(1..=i64::from(PACK_LEVEL_MAX)))]
    compress: Option<u8>,
    /// At most so many bytes a second: 100M, 1.5G (powers of ten)
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Measure source, network and target one by one first: 1 GiB read, two seconds of sending, 1 GiB written
    #[arg(long)]
    probe: bool,
    /// Refused: see the first lines
    #[arg(long, hide = true)]
    udp: bool,
    #[command(flatten)]
    common: Common,
}

/// See [`Method`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MethodFlag {
    /// read(2) and write(2)
    ReadWrite,
    /// sendfile(2)
    Sendfile,
    /// splice(2)
    Splice,
}

impl From<MethodFlag> for Method {
    fn from(way: MethodFlag) -> Self {
        match way {
            MethodFlag::ReadWrite => Self::ReadWrite,
            MethodFlag::Sendfile => Self::Sendfile,
            MethodFlag::Splice => Self::Splice,
        }
    }
}

fn rate(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no rate: use for example 500k, 100M or 1.5G (bytes a second)");
    let (number, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1e3),
        Some('M') => (&text[..text.len() - 1], 1e6),
        Some('G') => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * factor;
    if !(1.0..1e15).contains(&bytes) {
        return Err(wrong());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above"
    )]
    Ok(bytes as u64)
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let common = &arguments.common;
    if arguments.udp {
        bail!("--udp: {}", bench::mover::NO_UDP);
    }
    let config = SenderConfig {
        sources: arguments.paths.clone(),
        input_name: arguments.stdin_name.clone(),
        method: arguments.method.map(Method::from),
        algorithm: match arguments.hash {
            Hash::Blake3 => Algorithm::Blake3,
            Hash::Xxh3 => Algorithm::Xxh3,
        },
        rate_bytes_per_s: arguments.rate,
        pack_level: arguments.compress,
    };
    for path in &config.sources {
        if path.symlink_metadata().is_err() {
            bail!("{}: no such file or folder", path.display());
        }
    }
    let watch = Arc::new(Watch::default());
    super::stop_on_signals(&watch)?;
    let session: Option<Session> = match (&arguments.to, &arguments.listen) {
        (Some(to), _) => Some(super::connect(
            common,
            "--to",
            to,
            Role::Sender,
            arguments.streams,
        )?),
        (None, Some(listen)) => {
            let listener = super::listen(common, listen, Role::Sender, "recv --from")?;
            super::next_session(&listener, &watch)
        }
        (None, None) => None,
    };
    let Some(session) = session else {
        bail!("interrupted");
    };
    if session.is_encrypted()
        && config
            .method
            .is_some_and(|method| method != Method::ReadWrite)
    {
        note!("with TLS bytes have to pass through this program: sending by read and write");
    }
    if arguments.probe {
        let rates = mover::probe::measure(&session, &config.sources, &watch)?;
        ending::tell_probe(common, &rates)?;
    }
    let shown = progress::Shown::begin(common, &watch);
    let result = Sender::run(session, &config, &watch);
    let taken = shown.end(&watch);
    ending::tell(common, Role::Sender, result, &watch, taken)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_bytes_a_second() {
        assert_eq!(rate("1.5G"), Ok(1_500_000_000));
        assert_eq!(rate("500k"), Ok(500_000));
        for wrong in ["", "0", "fast", "-1M", "1e30"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
