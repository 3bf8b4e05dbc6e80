//! How the threads of a session end together: the first error closes every connection, and so wakes them all.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::connection::Connection;
use crate::error::Error;
use crate::lock::lock;
use crate::protocol::{self, Message};
use crate::session::Session;

/// The control connection's sending side, and the first error of any thread.
#[derive(Debug)]
pub struct Ending {
    connections: Vec<Connection>,
    control: Mutex<Connection>,
    error: Mutex<Option<Error>>,
    is_over: Mutex<bool>,
    bell: Condvar,
}

impl Ending {
    /// Of a session that begins.
    pub fn new(session: &Session) -> Result<Self, Error> {
        let clone = |stream: &Connection| {
            stream
                .try_clone()
                .map_err(Error::network("duplicating a connection"))
        };
        let all = session.data.iter().chain([&session.control]);
        Ok(Self {
            connections: all.map(clone).collect::<Result<_, _>>()?,
            control: Mutex::new(clone(&session.control)?),
            error: Mutex::new(None),
            is_over: Mutex::new(false),
            bell: Condvar::new(),
        })
    }

    /// Says something on the control connection.
    pub fn say(&self, message: &Message) -> Result<(), Error> {
        protocol::send(&mut &*lock(&self.control), message)
    }

    /// Notes an error, if it is the first, and ends everything. Why the peer ended the connection, if it said so,
    /// explains a connection that failed: whoever writes may see that before its words are read.
    pub fn fail(&self, error: Error) {
        {
            let mut first = lock(&self.error);
            match (&*first, &error) {
                (None, _) => *first = Some(error),
                (Some(Error::Network { .. }), Error::Refused(_)) => {
                    *first = Some(error);
                    return;
                }
                (Some(_), _) => return,
            }
        }
        for connection in &self.connections {
            connection.close();
        }
    }

    /// Runs a thread's body and notes its error, and a panic as one.
    pub fn watch<T>(&self, body: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Bug)) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// All threads but those that rest have ended.
    pub fn end(&self) {
        *lock(&self.is_over) = true;
        self.bell.notify_all();
    }

    /// Rests for some time, or until all is over; whether it is.
    pub fn rest(&self, time: Duration) -> bool {
        let waited = self
            .bell
            .wait_timeout_while(lock(&self.is_over), time, |over| !*over);
        let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *over
    }

    /// Whether some thread has failed.
    pub fn has_failed(&self) -> bool {
        lock(&self.error).is_some()
    }

    /// The first error, when all threads have ended.
    pub fn result(&self) -> Result<(), Error> {
        match lock(&self.error).take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::net::{TcpListener, TcpStream};

    fn ending() -> Ending {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Ending {
            connections: Vec::new(),
            control: Mutex::new(Connection::plain(socket)),
            error: Mutex::default(),
            is_over: Mutex::default(),
            bell: Condvar::new(),
        }
    }

    #[test]
    fn a_thread_that_panics_ends_the_transfer() {
        let ending = ending();
        let nothing: Option<()> = ending.watch(|| panic!("a bug"));
        assert!(nothing.is_none() && ending.has_failed());
        assert!(matches!(ending.result(), Err(Error::Bug)));
    }

    #[test]
    fn the_peers_reason_explains_a_connection_that_failed_and_nothing_else() {
        let ending = ending();
        let cut = || Error::network("sending")(io::ErrorKind::BrokenPipe.into());
        let refused = || Error::Refused("no room".to_owned());
        let outcome = |errors: [Error; 2]| {
            errors.into_iter().for_each(|error| ending.fail(error));
            ending.result().unwrap_err()
        };
        assert!(matches!(outcome([cut(), refused()]), Error::Refused(_)));
        assert!(matches!(outcome([refused(), cut()]), Error::Refused(_)));
        assert!(matches!(outcome([cut(), cut()]), Error::Network { .. }));
        let broken = || Error::Protocol("no greeting");
        assert!(matches!(outcome([broken(), refused()]), Error::Protocol(_)));
    }
}
