//! Folders that vanish, files with content, a sender and a receiver in one process, and a bad path between them.

#![allow(dead_code, clippy::unwrap_used, missing_docs)] // each test file uses a part; a failure ends the test

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mover::{
    Access, Algorithm, Check, Error, Listener, Outcome, Receiver, ReceiverConfig, Role, Sender,
    SenderConfig, Session, Watch,
};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of one test, removed at its end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("shunt-mover-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(len, len as u64)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes that do not repeat.
pub fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut words = std::iter::from_fn(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    });
    let mut bytes: Vec<u8> = words.by_ref().take(len.div_ceil(8)).flatten().collect();
    bytes.truncate(len);
    bytes
}

pub fn sender(sources: &[&Path]) -> SenderConfig {
    SenderConfig {
        sources: sources.iter().map(|path| path.to_path_buf()).collect(),
        input_name: None,
        method: None,
        algorithm: Algorithm::Blake3,
        rate_bytes_per_s: None,
        pack_level: None,
    }
}

pub fn receiver(folder: &Path) -> ReceiverConfig {
    ReceiverConfig {
        folder: folder.to_owned(),
        storage: None,
        check: Check::Last,
    }
}

/// What both ends say.
pub struct Both {
    pub sent: Result<Outcome, Error>,
    pub received: Result<Outcome, Error>,
    pub sender: Watch,
    pub receiver: Watch,
}

impl Both {
    /// Both went well, every file too.
    pub fn succeeded(self) -> (Outcome, Outcome, Watch) {
        let (sent, received) = (self.sent.unwrap(), self.received.unwrap());
        assert_eq!(sent.failed, [], "{sent:?}");
        assert_eq!(received.failed, [], "{received:?}");
        (sent, received, self.receiver)
    }
}

pub fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Waits until something is so.
pub fn await_condition(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        thread::yield_now();
    }
}

/// Runs a transfer, perhaps over a bad path.
pub fn transfer(
    send: &SenderConfig,
    receive: &ReceiverConfig,
    streams: u16,
    path: Option<Fault>,
) -> Both {
    transfer_while(send, receive, streams, path, |_| ())
}

/// The same, while somebody does something; it sees how far the sender is.
pub fn transfer_while(
    send: &SenderConfig,
    receive: &ReceiverConfig,
    streams: u16,
    path: Option<Fault>,
    meanwhile: impl FnOnce(&Watch) + Send,
) -> Both {
    let listener = Listener::bind(any_port(), Role::Receiver, Access::default()).unwrap();
    let address = match path {
        Some(fault) => bad_path(listener.address(), fault),
        None => listener.address(),
    };
    let (sender_watch, receiver_watch) = (Watch::default(), Watch::default());
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let session = Session::connect(address, Role::Sender, streams, &Access::default())?;
            Sender::run(session, send, &sender_watch)
        });
        scope.spawn(|| meanwhile(&sender_watch));
        let received = match listener.next(Duration::from_secs(5)) {
            Some(session) => Receiver::run(session, receive, &receiver_watch),
            None => Err(Error::Refused("no session came".to_owned())),
        };
        (sending.join().unwrap(), received)
    });
    Both {
        sent,
        received,
        sender: sender_watch,
        receiver: receiver_watch,
    }
}

/// What is wrong with a path, in the direction of the files.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Every connection closes after so many bytes of all of them.
    Cut(u64),
    /// So many bytes from the beginning of all connections one bit is flipped.
    Flip(u64),
}

/// Forwards connections to `to`, with a fault.
pub fn bad_path(to: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let passed = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        // The rest of the test's connections end when their ends do.
        for connection in listener.incoming().take(16) {
            let Ok(connection) = connection else { return };
            let Ok(onward) = TcpStream::connect(to) else {
                return;
            };
            let (back, forth) = (connection.try_clone().unwrap(), onward.try_clone().unwrap());
            let passed = Arc::clone(&passed);
            thread::spawn(move || pass(connection, onward, Some((fault, &passed))));
            thread::spawn(move || pass(forth, back, None));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, fault: Option<(Fault, &AtomicU64)>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        if let Some((fault, passed)) = fault {
            let before = passed.fetch_add(count as u64, Ordering::Relaxed);
            match fault {
                Fault::Cut(at) if before + count as u64 > at => break,
                Fault::Flip(at) if (before..before + count as u64).contains(&at) => {
                    bytes[usize::try_from(at - before).unwrap()] ^= 0x10;
                }
                Fault::Cut(_) | Fault::Flip(_) => {}
            }
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    // What was passed on before still arrives: a full close could end in a reset.
    let _ = to.shutdown(Shutdown::Write);
}

/// Names below a folder, hidden ones too.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
