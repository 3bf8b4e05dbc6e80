//! Engines that this process is attached to: one session with each, for as long as the process lives.

use core::sync::atomic::{AtomicU32, Ordering};
use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use client::{Addresses, Errno, Session, SocketCore};

use crate::error::{from_errno, not_attached};

/// The name of an engine that was started without one.
pub const DEFAULT_ENGINE: &str = hostif::DEFAULT_ENGINE_NAME;

/// An engine to open sockets on. Copies are the same engine.
#[derive(Clone, Copy)]
pub struct Engine {
    session: &'static Session,
}

/// Names that a process may attach to in its life.
const NAMES_MAX: usize = 256;

impl PartialEq for Engine {
    fn eq(&self, other: &Engine) -> bool {
        core::ptr::eq(self.session, other.session)
    }
}

impl Eq for Engine {}

/// All of them, the lost ones too; never shrinks.
static SESSIONS: Mutex<Vec<&'static Session>> = Mutex::new(Vec::new());

fn sessions() -> MutexGuard<'static, Vec<&'static Session>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Attaches to the engine of that name, `@name` or a path, as `shunt run --engine` takes it. A process that is
    /// attached already goes on with what it has; one whose engine was lost attaches to its successor, and the
    /// sockets of the lost one stay reset.
    ///
    /// # Errors
    /// Nobody listens under that name (ECONNREFUSED, ENOENT), the engine refuses (EACCES), or the process is
    /// has attached to 256 other names (EMFILE).
    pub fn attach(name: &str) -> io::Result<Engine> {
        static FORKS: Once = Once::new();
        FORKS.call_once(|| client::at_fork(before_fork, after_fork_in_parent, after_fork_in_child));
        let mut sessions = sessions();
        if let Some(session) = sessions.iter().find(|one| one.name() == name) {
            // A program that neither sleeps nor calls would not have noticed.
            session.look_alive();
            if session.is_dead() {
                session.attach_again().map_err(not_attached)?;
            }
            return Ok(Engine { session });
        }
        if sessions.len() >= NAMES_MAX {
            return Err(from_errno(Errno::MFILE));
        }
        let session = Session::attach(name).map_err(not_attached)?;
        sessions.push(session);
        Ok(Engine { session })
    }

    /// As [`Engine::attach`], to the engine that `SHUNT_ENGINE` names first, or else to [`DEFAULT_ENGINE`].
    ///
    /// # Errors
    /// As there.
    pub fn from_environment() -> io::Result<Engine> {
        Engine::attach(&client::engine_name())
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.session.name()
    }

    /// Its addresses and gateways.
    ///
    /// # Errors
    /// ECONNRESET: the engine is gone.
    pub fn addresses(self) -> io::Result<Addresses> {
        self.session.addresses().map_err(from_errno)
    }

    /// Whether it is known to be gone. Its sockets are reset then; [`Engine::attach`] finds its successor.
    #[must_use]
    pub fn is_gone(self) -> bool {
        self.session.is_dead()
    }

    /// Tells it of what was left for later; a system call where it sleeps.
    pub fn ring(self) {
        self.session.ring();
    }

    pub(crate) fn of(socket: &SocketCore) -> Engine {
        Engine {
            session: socket.session(),
        }
    }

    pub(crate) fn session(self) -> &'static Session {
        self.session
    }
}

/// Calls `call` with the engines of some sockets: once with each where those of one engine stand together.
pub(crate) fn each_of<'a>(
    sockets: impl Iterator<Item = &'a SocketCore>,
    mut call: impl FnMut(&'static Session),
) {
    let mut last: Option<&'static Session> = None;
    for socket in sockets {
        let session = socket.session();
        if !last.is_some_and(|last| core::ptr::eq(last, session)) {
            call(session);
            last = Some(session);
        }
    }
}

type SessionsGuard = ManuallyDrop<Option<MutexGuard<'static, Vec<&'static Session>>>>;

thread_local! {
    // Without a destructor: a thread may end after the library is torn down.
    static HELD: RefCell<SessionsGuard> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Counts the forks that this process is a child of.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks this process is a child of, as far as they came after it attached.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The lock is held across a fork, so that the child does not find it locked by a thread that it does not have.
extern "C" fn before_fork() {
    let held = sessions();
    for session in held.iter() {
        session.fork_prepare();
    }
    HELD.with(|place| place.borrow_mut().replace(held));
}

extern "C" fn after_fork_in_parent() {
    let held = HELD.with(|place| place.borrow_mut().take());
    for session in held.iter().flat_map(|held| held.iter().rev()) {
        session.fork_parent();
    }
}

extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let held = HELD.with(|place| place.borrow_mut().take());
    for session in held.iter().flat_map(|held| held.iter().rev()) {
        session.fork_child();
    }
}
