//! Who may take part in a session, and how that is proved on each connection.
//!
//! Whoever knows the token proves it, both sides, over nonces of both; the token itself does not travel. The accepting side
//! proves it first, to anybody who connects: of a word that people choose a proof would be something to try guesses on, which
//! is why there are only tokens that nobody can guess (`token.rs`).

use std::net::TcpStream;

use super::{GREETING, Token};
use crate::checksum::Digest;
use crate::connection::Connection;
use crate::error::Error;
use crate::protocol::{self, Hello, Message};
use crate::tls::Encryption;

/// Who may take part.
#[derive(Clone, Debug, Default)]
pub struct Access {
    key: Option<[u8; 32]>,
    /// TLS, and the host's name where this end connects.
    tls: Option<(Encryption, String)>,
}

impl Access {
    /// With a token, which both sides must have, or without.
    pub fn new(token: Option<&Token>) -> Self {
        let key = token.map(Token::key);
        Self { key, tls: None }
    }

    /// The same over TLS 1.3; `host` is whom this end means to connect to, as certificates name it.
    pub fn encrypted(self, encryption: Encryption, host: &str) -> Self {
        Self {
            tls: Some((encryption, host.to_owned())),
            ..self
        }
    }

    /// Whether this end knows who accepts its connections, as far as it asked to know.
    pub(super) fn check_connecting(&self) -> Result<(), Error> {
        match &self.tls {
            Some((tls, _)) if self.key.is_none() && !tls.proves_acceptor() => {
                Err(Error::Encryption(
                    "TLS alone proves nobody: pass --token, or --ca and certificates".to_owned(),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether strangers are kept out of what was accepted.
    pub(super) fn keeps_strangers_out(&self) -> bool {
        let by_certificate = self
            .tls
            .as_ref()
            .is_some_and(|(tls, _)| tls.proves_connector());
        self.key.is_some() || by_certificate
    }

    pub(super) fn secure_connecting(&self, socket: TcpStream) -> Result<Connection, Error> {
        match &self.tls {
            None => Ok(Connection::plain(socket)),
            Some((tls, host)) => Connection::secured(socket, tls.connect(host)?, GREETING),
        }
    }

    /// Finds out by the first byte which of the two the peer speaks.
    pub(super) fn secure_accepting(&self, socket: TcpStream) -> Result<Connection, Error> {
        const TLS_HANDSHAKE: u8 = 0x16;
        let look = |socket: &TcpStream| {
            let mut first = [0];
            socket.set_read_timeout(Some(GREETING))?;
            socket.peek(&mut first).map(|_| first[0] == TLS_HANDSHAKE)
        };
        let speaks_tls = look(&socket).map_err(Error::lost("greeting"))?;
        match &self.tls {
            None if speaks_tls => Err(Error::Protocol("it speaks TLS, this end does not")),
            None => Ok(Connection::plain(socket)),
            Some(_) if !speaks_tls => {
                let reason = "it takes TLS only; pass --tls";
                protocol::send(&mut &socket, &Message::Refuse(reason.to_owned()))?;
                Err(Error::Protocol("no TLS"))
            }
            Some((tls, _)) => Connection::secured(socket, tls.accept()?, GREETING),
        }
    }

    /// Over what both have said, and over what only they can know of a connection with TLS.
    pub(super) fn proof(
        &self,
        side: u8,
        hello: &Hello,
        nonce: &[u8; 32],
        connection: &Connection,
    ) -> Result<Option<Digest>, Error> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&[side]);
        hasher.update(&connection.exported()?);
        hasher.update(&postcard::to_stdvec(hello).expect("invariant: a hello can be encoded"));
        hasher.update(nonce);
        Ok(Some(*hasher.finalize().as_bytes()))
    }

    /// Whether a proof is the one that is expected, in constant time.
    pub(super) fn accepts(&self, expected: Option<Digest>, proof: Option<Digest>) -> bool {
        match (expected, proof) {
            (None, _) => true,
            (Some(expected), Some(proof)) => {
                blake3::Hash::from(expected) == blake3::Hash::from(proof)
            }
            (Some(_), None) => false,
        }
    }
}
