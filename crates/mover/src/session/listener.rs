//! The side that others connect to: greets each connection on a thread of its own, and puts connections together to
//! sessions.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{Access, GREETING, Session, receive_introduction};
use crate::connection::Connection;
use crate::error::Error;
use crate::protocol::{Hello, Role};
use crate::sys::SILENCE;

/// Connections that are being greeted, or wait for the rest of their session, at once.
const PENDING_MAX: usize = 256;

/// Whether a listener without a token may listen there.
fn is_of_this_host(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A session of which not every connection is there.
#[derive(Debug)]
struct PartialSession {
    control: Option<Connection>,
    data: Vec<Connection>,
    since: Instant,
}

/// Sessions that have begun and are not complete.
type Pending = HashMap<[u8; 16], PartialSession>;

/// Takes sessions in, on a thread of its own.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    sessions: mpsc::Receiver<Session>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    /// Listens; this end is what the peers are not.
    pub fn bind(address: SocketAddr, role: Role, access: Access) -> Result<Self, Error> {
        if !access.keeps_strangers_out() && !is_of_this_host(address.ip()) {
            return Err(Error::Unguarded(address));
        }
        let listener = TcpListener::bind(address)
            .map_err(Error::network(format!("listening on {address}")))?;
        let address = listener
            .local_addr()
            .map_err(Error::network("asking for the own address"))?;
        let (sender, sessions) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        thread::spawn(move || accept(&listener, role, &access, &sender, &stopped));
        Ok(Self {
            address,
            sessions,
            stop,
        })
    }

    /// Where it listens, with the port that the system chose for 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next session; `None`: none came within this time.
    pub fn next(&self, patience: Duration) -> Option<Session> {
        self.sessions.recv_timeout(patience).ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread; it may be gone.
        let _ = TcpStream::connect_timeout(&self.address, GREETING);
    }
}

fn accept(
    listener: &TcpListener,
    role: Role,
    access: &Access,
    sessions: &mpsc::Sender<Session>,
    stop: &AtomicBool,
) {
    let pending: Arc<Mutex<Pending>> = Arc::default();
    let greeted = Arc::new(AtomicU64::new(0));
    for connection in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(connection) = connection else {
            // Too many open files, perhaps: do not spin.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        if greeted.load(Ordering::Relaxed) >= PENDING_MAX as u64 {
            continue;
        }
        greeted.fetch_add(1, Ordering::Relaxed);
        let (access, sessions) = (access.clone(), sessions.clone());
        let (pending, greeted) = (Arc::clone(&pending), Arc::clone(&greeted));
        thread::spawn(move || {
            let greeted_connection = access.secure_accepting(connection).and_then(|connection| {
                let hello = receive_introduction(&connection, role, &access)?;
                Ok((connection, hello))
            });
            if let Ok((connection, hello)) = greeted_connection
                && let Some(session) = join(connection, &hello, role, &pending)
            {
                // Nobody listens any more: the peer sees its connections close.
                let _ = sessions.send(session);
            }
            greeted.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Puts a connection to its session; the session when it is complete.
fn join(
    connection: Connection,
    hello: &Hello,
    role: Role,
    pending: &Mutex<Pending>,
) -> Option<Session> {
    let peer = connection.peer_addr().ok()?;
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    pending.retain(|_, part| part.since.elapsed() < SILENCE);
    if pending.len() >= PENDING_MAX && !pending.contains_key(&hello.session) {
        return None;
    }
    let part = pending
        .entry(hello.session)
        .or_insert_with(|| PartialSession {
            control: None,
            data: Vec::new(),
            since: Instant::now(),
        });
    match hello.stream {
        None => part.control = Some(connection),
        Some(_) => part.data.push(connection),
    }
    if part.control.is_none() || part.data.len() < usize::from(hello.streams) {
        return None;
    }
    let part = pending.remove(&hello.session)?;
    Some(Session {
        control: part.control?,
        data: part.data,
        role,
        peer,
    })
}
