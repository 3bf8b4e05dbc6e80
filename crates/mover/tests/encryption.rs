//! Transfers over TLS: with a token, with certificates, and with ends that do not fit together.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use mover::{
    Access, Algorithm, Certificates, Encryption, Error, Listener, Method, Outcome, Receiver, Role,
    Sender, Session, Token, Watch,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair};
use support::{Fault, Folder, any_port, bad_path, receiver, sender};

const BIG: usize = (7 << 20) + 321;

fn keys() -> Encryption {
    Encryption::new(&Certificates::default()).unwrap()
}

/// A token of this test run.
fn made() -> &'static Token {
    static TOKEN: LazyLock<Token> = LazyLock::new(|| Token::random().unwrap());
    &TOKEN
}

/// Access with it, over TLS.
fn token() -> Access {
    Access::new(Some(made())).encrypted(keys(), "localhost")
}

/// Access with another one.
fn other_token() -> Access {
    Access::new(Some(&Token::random().unwrap())).encrypted(keys(), "localhost")
}

/// A transfer of one file between two ends with these rights.
fn transfer(
    accepting: Access,
    connecting: &Access,
    streams: u16,
    fault: Option<Fault>,
) -> (Result<Outcome, Error>, Folder, PathBuf) {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", BIG);
    let listener = Listener::bind(any_port(), Role::Receiver, accepting).unwrap();
    let address = fault.map_or(listener.address(), |fault| {
        bad_path(listener.address(), fault)
    });
    let send = &mut sender(&[&file]);
    send.algorithm = Algorithm::Xxh3;
    // What TLS cannot do is not done.
    send.method = Some(Method::Sendfile);
    let (sending, receiving) = (Watch::default(), Watch::default());
    let sent = thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let session = Session::connect(address, Role::Sender, streams, connecting)?;
            assert!(session.is_encrypted());
            Sender::run(session, send, &sending)
        });
        while !sent.is_finished() {
            if let Some(session) = listener.next(Duration::from_millis(50)) {
                let _ = Receiver::run(session, &receiver(target.path()), &receiving);
            }
        }
        sent.join().unwrap()
    });
    let stored = target.join("f");
    if stored.exists() {
        assert_eq!(fs::read(&stored).unwrap(), fs::read(&file).unwrap());
    }
    (sent, target, stored)
}

#[test]
fn a_file_arrives_over_tls_with_a_token_and_sendfile_gives_way() {
    for streams in [1, 3] {
        let (sent, _target, stored) = transfer(token(), &token(), streams, None);
        let sent = sent.unwrap();
        assert_eq!((sent.files, sent.method), (1, Some(Method::ReadWrite)));
        assert!(stored.exists());
    }
}

#[test]
fn a_wrong_token_and_a_peer_without_tls_are_refused() {
    let (sent, _target, stored) = transfer(token(), &other_token(), 1, None);
    assert!(matches!(sent, Err(Error::Token)), "{sent:?}");
    assert!(!stored.exists());
    let listener = Listener::bind(any_port(), Role::Receiver, token()).unwrap();
    let plain = Session::connect(
        listener.address(),
        Role::Sender,
        1,
        &Access::new(Some(made())),
    );
    let reason = plain.unwrap_err().to_string();
    assert!(reason.contains("--tls"), "{reason}");
    let listener = Listener::bind(any_port(), Role::Receiver, Access::new(Some(made()))).unwrap();
    let secured = Session::connect(listener.address(), Role::Sender, 1, &token());
    let reason = secured.unwrap_err().to_string();
    assert!(reason.contains("TLS"), "{reason}");
    // Encrypted to whom?
    let alone = Access::new(None).encrypted(keys(), "localhost");
    let nobody = Session::connect(listener.address(), Role::Sender, 1, &alone);
    assert!(nobody.unwrap_err().to_string().contains("--token"));
}

#[test]
fn whoever_stands_between_the_ends_and_speaks_tls_with_both_gets_nothing() {
    // It has a key of its own for each side and hands on what they say; the proofs are bound to the keys.
    let listener = Listener::bind(any_port(), Role::Receiver, token()).unwrap();
    let between = intruder(listener.address());
    let session = Session::connect(between, Role::Sender, 1, &token());
    assert!(matches!(session, Err(Error::Token)), "{session:?}");
    assert!(listener.next(Duration::from_millis(50)).is_none());
}

/// Ends TLS of those who connect to it, and connects on with TLS.
fn intruder(to: SocketAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (victim, _) = listener.accept().unwrap();
        let mut near = rustls::StreamOwned::new(keys().accept().unwrap(), victim);
        let onward = TcpStream::connect(to).unwrap();
        let mut far = rustls::StreamOwned::new(keys().connect("localhost").unwrap(), onward);
        // The hello one way, the challenge back: that is as far as it gets.
        let mut buffer = [0; 4_096];
        let count = near.read(&mut buffer).unwrap();
        far.write_all(&buffer[..count]).unwrap();
        let count = far.read(&mut buffer).unwrap();
        near.write_all(&buffer[..count]).unwrap();
        let _ = near.flush();
        let _ = near.read(&mut buffer);
    });
    address
}

#[test]
fn a_flipped_bit_under_tls_ends_the_session_and_leaves_no_file() {
    let (sent, _target, stored) = transfer(token(), &token(), 1, Some(Fault::Flip(3 << 20)));
    assert!(sent.is_err(), "{sent:?}");
    assert!(!stored.exists());
}

/// An authority, and what it has signed, as files.
struct Authority {
    folder: Folder,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let folder = Folder::new();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        fs::write(folder.join("ca"), certificate.pem()).unwrap();
        Self {
            folder,
            certificate,
            key,
        }
    }

    fn sign(&self, name: &str) -> CertifiedKey {
        let key_pair = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let cert = parameters
            .signed_by(&key_pair, &self.certificate, &self.key)
            .unwrap();
        CertifiedKey { cert, key_pair }
    }

    /// What an end with a certificate of this authority for `name` has, that believes `authority`.
    fn end(&self, name: &str, authority: Option<&Self>) -> Result<Encryption, Error> {
        let signed = self.sign(name);
        let (certificate, key) = (self.folder.join("cert"), self.folder.join("key"));
        fs::write(&certificate, signed.cert.pem()).unwrap();
        fs::write(&key, signed.key_pair.serialize_pem()).unwrap();
        let ca = authority.map(|authority| authority.folder.join("ca"));
        Encryption::new(&Certificates {
            own: Some((&certificate, &key)),
            authorities: ca.as_deref(),
        })
    }

    fn believer(&self) -> Encryption {
        Encryption::new(&Certificates {
            own: None,
            authorities: Some(&self.folder.join("ca")),
        })
        .unwrap()
    }
}

#[test]
fn certificates_prove_either_end() {
    let authority = Authority::new();
    let server = || authority.end("there.example", None).unwrap();
    let to = |host: &str| Access::new(None).encrypted(authority.believer(), host);
    let accepting = || Access::new(None).encrypted(server(), "");
    let (sent, _target, stored) = transfer(accepting(), &to("there.example"), 2, None);
    assert_eq!(sent.unwrap().files, 1);
    assert!(stored.exists());
    // Another name, another authority.
    let (sent, _target, _) = transfer(accepting(), &to("elsewhere.example"), 1, None);
    assert!(matches!(sent, Err(Error::Encryption(_))), "{sent:?}");
    let stranger = Access::new(None).encrypted(Authority::new().believer(), "there.example");
    let (sent, _target, _) = transfer(accepting(), &stranger, 1, None);
    assert!(matches!(sent, Err(Error::Encryption(_))), "{sent:?}");
    // A listener that has authorities takes only those who have a certificate.
    let strict = || {
        let end = authority.end("there.example", Some(&authority)).unwrap();
        Access::new(None).encrypted(end, "there.example")
    };
    let (sent, _target, _) = transfer(strict(), &to("there.example"), 1, None);
    assert!(sent.is_err());
    let (sent, _target, stored) = transfer(strict(), &strict(), 1, None);
    assert_eq!(sent.unwrap().files, 1);
    assert!(stored.exists());
    // Only the strict one may listen to the world without a token.
    let world = || "0.0.0.0:0".parse().unwrap();
    assert!(Listener::bind(world(), Role::Receiver, accepting()).is_err());
    assert!(Listener::bind(world(), Role::Receiver, strict()).is_ok());
}

#[test]
fn what_is_wrong_with_a_file_of_keys_is_said() {
    let folder = Folder::new();
    let empty = folder.file("empty", 0);
    for (own, authorities, part) in [
        (None, Some(folder.join("missing")), "missing"),
        (None, Some(empty.clone()), "no certificate"),
        (Some((empty.clone(), empty)), None, "empty"),
    ] {
        let files = Certificates {
            own: own.as_ref().map(|(one, other)| (&**one, &**other)),
            authorities: authorities.as_deref(),
        };
        let error = Encryption::new(&files).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
