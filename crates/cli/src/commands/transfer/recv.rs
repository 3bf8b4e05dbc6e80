//! `shunt recv`: the end that wants the files.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, ValueEnum};
use mover::{ALIVE, Check, Receiver, ReceiverConfig, Role, STREAMS_MAX, Session, Storage, Watch};

use super::{Common, ending, progress};

/// Receive files and folders from another host
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("peer").required(true).args(["from", "listen"]))]
#[command(after_help = "Examples:
  shunt recv --listen :7333 --dir /data             one transfer, then end; prints the token
  shunt recv --listen :7333 --dir /data --daemon    go on, 4 transfers at a time
  shunt recv --from there --token TOKEN --dir .     fetch from `shunt send --listen`

A listener that others can reach makes a token for this run and prints it with the command
for the other end. To keep one from start to start, put it in SHUNT_TOKEN. Words of your own
are no tokens: they could be guessed.

Files that are not whole have hidden names that end in .shunt-part, with a .shunt-journal
beside them; the next try goes on from there. Links that lead out of the folder are refused,
set-uid bits are not kept.
Exit status: 0 all of it arrived, 1 some of it did not, 2 wrong usage or no connection.")]
pub struct Arguments {
    /// Wait for a sender: [HOST]:PORT
    #[arg(long, value_name = "[HOST]:PORT")]
    listen: Option<String>,
    /// Fetch from a sender that listens: HOST or HOST:PORT
    #[arg(long, value_name = "HOST[:PORT]")]
    from: Option<String>,
    /// The folder to store in; it must be there
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Go on after the first transfer
    #[arg(long, requires = "listen")]
    daemon: bool,
    /// Transfers at a time, with --daemon; others wait
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    at_once: u8,
    /// Connections that carry data, with --from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(STREAMS_MAX)))]
    streams: u16,
    /// How bytes get to the disk [default: direct where the file system can, else the best of buffered, splice and mapped,
    /// which the first blocks show]
    #[arg(long, value_enum)]
    store: Option<StorageFlag>,
    /// Read and hash all that an earlier try has left, not only its last 64 blocks
    #[arg(long)]
    check_all: bool,
    #[command(flatten)]
    common: Common,
}

/// See [`Storage`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StorageFlag {
    /// O_DIRECT writes through io_uring
    Direct,
    /// Through the page cache, by recv and write
    Buffered,
    /// Through the page cache, by splice: not through memory of this program
    Splice,
    /// Through the page cache, out of received pages that the kernel maps (TCP_ZEROCOPY_RECEIVE)
    Mapped,
    /// Nowhere: check and drop, to measure
    Memory,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let common = &arguments.common;
    let config = ReceiverConfig {
        folder: arguments.dir.clone(),
        storage: arguments.store.map(|way| match way {
            StorageFlag::Direct => Storage::Direct,
            StorageFlag::Buffered => Storage::Buffered,
            StorageFlag::Splice => Storage::Splice,
            StorageFlag::Mapped => Storage::Mapped,
            StorageFlag::Memory => Storage::Memory,
        }),
        check: if arguments.check_all {
            Check::All
        } else {
            Check::Last
        },
    };
    if !config.folder.is_dir() {
        bail!("--dir {}: no such folder", config.folder.display());
    }
    config.check().context("--dir")?;
    let watch = Arc::new(Watch::default());
    super::stop_on_signals(&watch)?;
    if let Some(from) = &arguments.from {
        let session = super::connect(common, "--from", from, Role::Receiver, arguments.streams)?;
        return receive(common, session, &config, &watch);
    }
    let Some(listen) = &arguments.listen else {
        bail!("pass --listen or --from");
    };
    let listener = super::listen(common, listen, Role::Receiver, "send PATH --to")?;
    if arguments.daemon {
        return serve(arguments, &listener, &config, &watch);
    }
    match super::next_session(&listener, &watch) {
        Some(session) => {
            drop(listener);
            receive(common, session, &config, &watch)
        }
        None => bail!("interrupted"),
    }
}

fn receive(
    common: &Common,
    session: Session,
    config: &ReceiverConfig,
    watch: &Arc<Watch>,
) -> anyhow::Result<ExitCode> {
    let shown = progress::Shown::begin(common, watch);
    let result = Receiver::run(session, config, watch);
    let taken = shown.end(watch);
    ending::tell(common, Role::Receiver, result, watch, taken)
}

/// Senders whose turn has not come.
#[derive(Default)]
struct Waiting {
    sessions: VecDeque<Session>,
    held: Option<Instant>,
}

impl Waiting {
    /// Beyond so many a sender is turned away.
    const MOST: usize = 64;

    fn add(&mut self, session: Session) {
        if self.sessions.len() < Self::MOST {
            self.sessions.push_back(session);
        } else {
            session.refuse("too many transfers wait here already; try again later");
        }
    }

    /// Lets them know that this end lives; who has gone is forgotten.
    fn hold(&mut self) {
        if self.held.is_none_or(|held| held.elapsed() >= ALIVE) {
            self.sessions.retain(|session| session.hold().is_ok());
            self.held = Some(Instant::now());
        }
    }
}

/// One transfer after the other, several at a time, until somebody asks for an end.
fn serve(
    arguments: &Arguments,
    listener: &mover::Listener,
    config: &ReceiverConfig,
    stop: &Arc<Watch>,
) -> anyhow::Result<ExitCode> {
    let busy = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut waiting = Waiting::default();
        while !stop.stop.load(Ordering::Relaxed) {
            if let Some(session) = listener.next(super::LOOK) {
                waiting.add(session);
            }
            waiting.hold();
            if busy.load(Ordering::Acquire) >= usize::from(arguments.at_once) {
                continue;
            }
            let Some(session) = waiting.sessions.pop_front() else {
                continue;
            };
            busy.fetch_add(1, Ordering::AcqRel);
            let busy = &busy;
            scope.spawn(move || {
                let peer = session.peer;
                let watch = Watch {
                    stop: Arc::clone(&stop.stop),
                    ..Watch::default()
                };
                let begun = std::time::Instant::now();
                let result = Receiver::run(session, config, &watch);
                note!("from {peer}:");
                // Its status is of this transfer; the daemon goes on.
                let _ = ending::tell(
                    &arguments.common,
                    Role::Receiver,
                    result,
                    &watch,
                    begun.elapsed(),
                );
                busy.fetch_sub(1, Ordering::AcqRel);
            });
        }
    });
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mover::{Access, Error, Listener, Sender, SenderConfig};

    #[test]
    fn the_sixty_fifth_that_would_have_to_wait_is_turned_away() {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(address, Role::Receiver, Access::default()).unwrap();
        let connect = || {
            let access = Access::default();
            Session::connect(listener.address(), Role::Sender, 1, &access).unwrap()
        };
        let mut waiting = Waiting::default();
        let patience = std::time::Duration::from_secs(10);
        let held: Vec<Session> = (0..Waiting::MOST)
            .map(|_| {
                let session = connect();
                waiting.add(listener.next(patience).unwrap());
                session
            })
            .collect();
        let one_more = connect();
        waiting.add(listener.next(patience).unwrap());
        assert_eq!(waiting.sessions.len(), Waiting::MOST);
        let config = SenderConfig {
            sources: Vec::new(),
            input_name: None,
            method: None,
            algorithm: mover::Algorithm::Xxh3,
            rate_bytes_per_s: None,
            pack_level: None,
        };
        let refused = Sender::run(one_more, &config, &Watch::default());
        assert!(
            matches!(&refused, Err(Error::Refused(why)) if why.contains("try again later")),
            "{refused:?}"
        );
        // Who has gone makes room.
        drop(held);
        let until = Instant::now() + patience;
        while !waiting.sessions.is_empty() {
            assert!(Instant::now() < until, "they are held for ever");
            waiting.held = None;
            waiting.hold();
        }
    }
}
