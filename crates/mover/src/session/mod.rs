//! Setting a session up: who connects, who they are, and all connections together.
//!
//! Whoever knows the token proves it on each connection, both sides, over nonces of both; the token itself does not
//! travel. Without a token (or certificates) a listener takes connections of this host only. Without TLS nothing
//! is encrypted: what the token keeps out is a stranger, not somebody who can change packets on the way.

mod access;
mod listener;
mod token;
mod watch;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::connection::Connection;
use crate::error::Error;
use crate::protocol::{self, Hello, Intake, Message, Role, STREAMS_MAX, VERSION};
use crate::sys::SILENCE;

pub use access::Access;
pub use listener::Listener;
pub use token::Token;
pub use watch::{Outcome, Watch};

/// How long a peer may take for one step of the greeting.
const GREETING: Duration = Duration::from_secs(10);
/// How often an end that has nothing to say says so.
pub const ALIVE: Duration = Duration::from_millis(500);

const ACCEPTING: u8 = 0;
const CONNECTING: u8 = 1;

/// The connections of a session, each greeted.
#[derive(Debug)]
pub struct Session {
    /// For messages.
    pub control: Connection,
    /// For bytes.
    pub data: Vec<Connection>,
    /// What this end is.
    pub role: Role,
    /// Who is at the other end.
    pub peer: SocketAddr,
}

/// Random bytes of the system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(len) if len == N => Ok(bytes),
        Ok(_) => Err(Error::network("random numbers")(
            io::ErrorKind::UnexpectedEof.into(),
        )),
        Err(errno) => Err(Error::network("random numbers")(errno.into())),
    }
}

impl Session {
    /// Connects to a listener, as what `role` says, with so many data connections.
    pub fn connect(
        address: SocketAddr,
        role: Role,
        streams: u16,
        access: &Access,
    ) -> Result<Self, Error> {
        access.check_connecting()?;
        let session = random()?;
        let greet = |stream: Option<u16>| {
            let socket = TcpStream::connect_timeout(&address, GREETING)
                .map_err(Error::network(format!("connecting to {address}")))?;
            let connection = access.secure_connecting(socket)?;
            let hello = Hello {
                version: VERSION,
                role,
                session,
                stream,
                streams,
                nonce: random()?,
            };
            introduce(&connection, &hello, access)?;
            Ok(connection)
        };
        let control = greet(None)?;
        let data = (0..streams).map(|index| greet(Some(index)));
        let data = data.collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            control,
            data,
            role,
            peer: address,
        })
    }

    /// Whether it is TLS.
    pub fn is_encrypted(&self) -> bool {
        !self.control.is_plain()
    }

    /// Tells a peer that has to wait for its turn that this end lives; to be said each [`ALIVE`].
    pub fn hold(&self) -> Result<(), Error> {
        protocol::send(&mut { &self.control }, &Message::Alive(0))
    }

    /// Turns the peer away.
    pub fn refuse(self, reason: &str) {
        // Gone already, perhaps.
        let _ = protocol::send(&mut { &self.control }, &Message::Refuse(reason.to_owned()));
    }
}

/// The connecting side's greeting.
fn introduce(connection: &Connection, hello: &Hello, access: &Access) -> Result<(), Error> {
    prepare(connection, Some(GREETING))?;
    let mut intake = Intake::exactly(connection.hurried(GREETING));
    protocol::send(&mut { connection }, &Message::Hello(hello.clone()))?;
    let nonce = match intake.message()? {
        Message::Challenge(nonce, proof) => {
            if !access.accepts(access.proof(ACCEPTING, hello, &nonce, connection)?, proof) {
                return Err(Error::Token);
            }
            nonce
        }
        Message::Refuse(reason) => return Err(Error::Refused(reason)),
        _ => return Err(Error::Protocol("no greeting")),
    };
    let proof = access.proof(CONNECTING, hello, &nonce, connection)?;
    protocol::send(&mut { connection }, &Message::Proof(proof))?;
    match intake.message()? {
        Message::Welcome => prepare(connection, patience(hello)),
        Message::Refuse(reason) => Err(Error::Refused(reason)),
        _ => Err(Error::Protocol("no welcome")),
    }
}

/// The accepting side's greeting.
fn receive_introduction(
    connection: &Connection,
    role: Role,
    access: &Access,
) -> Result<Hello, Error> {
    prepare(connection, Some(GREETING))?;
    let mut intake = Intake::exactly(connection.hurried(GREETING));
    let refuse = |error: Error| {
        let _ = protocol::send(&mut { connection }, &Message::Refuse(error.to_string()));
        Err(error)
    };
    let Message::Hello(hello) = intake.message()? else {
        return Err(Error::Protocol("no greeting"));
    };
    if hello.version != VERSION {
        return refuse(Error::Refused(format!(
            "it speaks version {}, this end {VERSION}",
            hello.version
        )));
    }
    if hello.streams == 0 || hello.streams > STREAMS_MAX {
        return refuse(Error::Protocol("too many connections"));
    }
    if hello.role == role {
        let both = match role {
            Role::Sender => "both ends send",
            Role::Receiver => "both ends receive",
        };
        return refuse(Error::Refused(both.to_owned()));
    }
    let nonce = random()?;
    let proof = access.proof(ACCEPTING, &hello, &nonce, connection)?;
    protocol::send(&mut { connection }, &Message::Challenge(nonce, proof))?;
    let Message::Proof(proof) = intake.message()? else {
        return Err(Error::Protocol("no proof"));
    };
    if !access.accepts(access.proof(CONNECTING, &hello, &nonce, connection)?, proof) {
        return refuse(Error::Token);
    }
    protocol::send(&mut { connection }, &Message::Welcome)?;
    prepare(connection, patience(&hello))?;
    Ok(hello)
}

/// Messages leave at once, and nobody waits for ever.
fn prepare(connection: &Connection, patience: Option<Duration>) -> Result<(), Error> {
    connection.suit_this_host();
    connection
        .set_patience(patience)
        .map_err(Error::network("preparing the connection"))
}

/// The control connection is never silent for long. On a data connection there may be nothing to say; it is closed when
/// the control connection is lost.
fn patience(hello: &Hello) -> Option<Duration> {
    hello.stream.is_none().then_some(SILENCE)
}
