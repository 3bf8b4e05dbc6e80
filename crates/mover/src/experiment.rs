//! The `zero-copy` paper's loops, without protocol or hashes, to measure what each way costs (its §5.3, tables 2 and
//! 3): read(2) and write(2) against sendfile(2), with an offset that advances, or is fixed and so sends the same
//! part again and again, which is no transfer.
//!
//! One connection over loopback; the other end receives into memory and drops it, or writes a file as the paper does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::source::Method;
pub use crate::sys::Spent;
use crate::sys::{self, Memory, Retry, retried};

/// What is done.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The file that is sent.
    pub source: PathBuf,
    /// Bytes to send in all.
    pub bytes: u64,
    /// Bytes of a call.
    pub block_bytes: usize,
    /// By which calls.
    pub method: Method,
    /// Whether the offset advances, as in a transfer.
    pub is_advancing: bool,
    /// Where the bytes go; `None`: into memory, and forgotten.
    pub target: Option<PathBuf>,
}

/// What one end did.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// System calls that moved bytes. Each takes the processor into the kernel and back.
    pub calls: u64,
    /// Bytes that these calls copied between the program's memory and the kernel's.
    pub copied_bytes: u64,
    /// Time, processor time and switches of its thread.
    pub spent: Spent,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From the first byte sent to the last one stored, synced where there is a file.
    pub taken: Duration,
    /// The sending end.
    pub sender: End,
    /// The receiving end.
    pub receiver: End,
    /// When each full second ended and the last byte came, and the bytes that came in it.
    pub intervals: Vec<(Duration, u64)>,
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// What failed, or that `stop` was set.
    pub fn run(&self, stop: &AtomicBool) -> Result<Measured, Error> {
        let source = File::open(&self.source).map_err(Error::file("opening", &self.source))?;
        let target = self.target.as_deref().map(create).transpose()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(local)?;
        let address = listener.local_addr().map_err(local)?;
        let begun = Instant::now();
        let (sent, received) = thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                let (connection, _) = listener.accept()?;
                receive(&connection, target.as_ref(), begun)
            });
            let sending = || {
                let mut connection = TcpStream::connect(address)?;
                // As what it is compared with: see `Connection::suit_this_host`.
                sys::do_not_pace(connection.as_fd());
                self.send(&source, &mut connection, stop)
            };
            let sent = sending();
            (
                sent,
                receiving
                    .join()
                    .unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            )
        });
        let taken = begun.elapsed();
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let sender = sent.map_err(local)?;
        let (receiver, intervals) = received.map_err(local)?;
        Ok(Measured {
            taken,
            sender,
            receiver,
            intervals,
        })
    }

    fn send(&self, source: &File, to: &mut TcpStream, stop: &AtomicBool) -> io::Result<End> {
        let before = Spent::of_thread();
        let mut end = End::default();
        let mut buffer = vec![0; self.block_bytes];
        let mut done = 0;
        while done < self.bytes && !stop.load(Ordering::Relaxed) {
            let offset = if self.is_advancing { done } else { 0 };
            let left = usize::try_from(self.bytes - done).unwrap_or(usize::MAX);
            let len = left.min(self.block_bytes);
            done += match self.method {
                Method::ReadWrite => {
                    let count = retried(|| source.read_at(&mut buffer[..len], offset))?;
                    end.calls += 1;
                    let mut rest = &buffer[..count];
                    while !rest.is_empty() {
                        let written = retried(|| to.write(rest))?;
                        end.calls += 1;
                        rest = &rest[written..];
                    }
                    end.copied_bytes += 2 * count as u64;
                    count
                }
                Method::Sendfile | Method::Splice => {
                    end.calls += 1;
                    retried(|| sys::sendfile(to.as_fd(), source.as_fd(), offset, len))?
                }
            } as u64;
        }
        end.spent = Spent::of_thread() - before;
        Ok(end)
    }
}

/// Bytes that the receiving end takes at a time.
const TAKEN_BYTES: usize = 1 << 20;

type Received = (End, Vec<(Duration, u64)>);

fn receive(mut from: &TcpStream, target: Option<&File>, begun: Instant) -> io::Result<Received> {
    let before = Spent::of_thread();
    let mut memory = Memory::new(TAKEN_BYTES)?;
    let (mut end, mut intervals) = (End::default(), Vec::new());
    let (mut at, mut before_bytes) = (0, 0);
    let mut next = Duration::from_secs(1);
    let retry = Retry::new();
    loop {
        let count = match from.read(memory.bytes()) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if retry.again(&error) => continue,
            Err(error) => return Err(error),
        };
        end.calls += 1;
        end.copied_bytes += count as u64;
        if let Some(file) = target {
            file.write_all_at(&memory.bytes()[..count], at)?;
            end.calls += 1;
            end.copied_bytes += count as u64;
        }
        at += count as u64;
        if begun.elapsed() >= next {
            intervals.push((next, at - before_bytes));
            before_bytes = at;
            next += Duration::from_secs(1);
        }
    }
    if let Some(file) = target {
        file.sync_data()?;
    }
    intervals.push((begun.elapsed(), at - before_bytes));
    end.spent = Spent::of_thread() - before;
    Ok((end, intervals))
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(Error::file("creating", path))
}

fn local(error: io::Error) -> Error {
    Error::network("over loopback")(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_once_and_a_fixed_offset_sends_the_same_part() {
        let folder = std::env::temp_dir().join(format!("shunt-experiment-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (source, target) = (folder.join("source"), folder.join("target"));
        let content: Vec<u8> = (0..300_001_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&source, &content).unwrap();
        for method in [Method::ReadWrite, Method::Sendfile] {
            for is_advancing in [true, false] {
                let experiment = Experiment {
                    source: source.clone(),
                    bytes: content.len() as u64,
                    block_bytes: 100_000,
                    method,
                    is_advancing,
                    target: Some(target.clone()),
                };
                let result = experiment.run(&AtomicBool::new(false)).unwrap();
                let stored = std::fs::read(&target).unwrap();
                assert_eq!(stored.len(), content.len());
                assert_eq!(stored == content, is_advancing);
                let came: u64 = result.intervals.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(came, content.len() as u64);
                let copied = match method {
                    Method::ReadWrite => 2 * came,
                    _ => 0,
                };
                assert_eq!(result.sender.copied_bytes, copied);
                assert!(result.sender.calls >= came.div_ceil(100_000));
            }
        }
        let stopped = Experiment {
            source,
            bytes: 1 << 40,
            block_bytes: 100_000,
            method: Method::Sendfile,
            is_advancing: false,
            target: None,
        };
        let result = stopped.run(&AtomicBool::new(true));
        assert!(matches!(result, Err(Error::Interrupted)));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
