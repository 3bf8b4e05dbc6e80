//! A sender that lies: about names, sizes, places and numbers. Whatever it says, the receiver answers with a
//! refusal or ends the session, and nothing but a hidden part file is in the target folder, nor anything outside.

mod escape;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::{Receiver, ReceiverConfig, SINKS_MAX};
use crate::checksum::{self, Algorithm, BlockHasher};
use crate::error::Error;
use crate::protocol::{
    self, BLOCK_BYTES_MIN, Block, Entry, Intake, Kind, Message, Role, SMALL_MAX_BYTES,
};
use crate::session::{Access, Listener, Session, Watch};
use crate::target::Check;

const WHOLE: checksum::BlockPosition = checksum::BlockPosition::WHOLE;

fn entry(file: u64, name: &str, size: Option<u64>) -> Entry {
    Entry {
        file,
        name: name.into(),
        kind: Kind::File(size),
        mode: 0o777,
        modified: (0, 0),
        algorithm: Algorithm::Xxh3,
        block_bytes: BLOCK_BYTES_MIN,
        is_sparse: false,
    }
}

fn block(index: u64, len: u32) -> Block {
    Block {
        file: 1,
        index,
        len,
        is_only: false,
        is_hole: false,
        packed: None,
    }
}

/// The target of one lie, beside a file that is none of its business.
struct Testbed {
    folder: PathBuf,
}

impl Testbed {
    fn new(what: &str) -> Self {
        let name = format!("shunt-liar-{what}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("target")).unwrap();
        fs::write(folder.join("beside"), b"untouched").unwrap();
        Self { folder }
    }

    /// Lets a sender say all this; what the receiver's session came to.
    fn tell(&self, lies: impl FnOnce(&Session) + Send) -> Result<crate::Outcome, Error> {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(loopback, Role::Receiver, Access::default()).unwrap();
        let config = ReceiverConfig {
            folder: self.folder.join("target"),
            storage: None,
            check: Check::Last,
        };
        let watch = Watch::default();
        thread::scope(|scope| {
            let address = listener.address();
            scope.spawn(move || {
                let access = Access::default();
                let session = Session::connect(address, Role::Sender, 1, &access).unwrap();
                lies(&session);
                // What it says is read to the end, so that the receiver is the one who decides.
                let mut intake = Intake::new(&session.control);
                while intake.message().is_ok() {}
            });
            let session = listener.next(Duration::from_secs(10)).unwrap();
            Receiver::run(session, &config, &watch)
        })
    }

    fn check_untouched(&self) {
        let names = |folder: PathBuf| -> Vec<String> {
            let entries = fs::read_dir(folder).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        for name in names(self.folder.join("target")) {
            assert!(name.starts_with('.') && name.contains(".shunt-"), "{name}");
        }
        assert_eq!(names(self.folder.clone()).len(), 2);
        assert_eq!(fs::read(self.folder.join("beside")).unwrap(), b"untouched");
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn say(session: &Session, message: &Message) {
    // The receiver may have ended it by now.
    let _ = protocol::send(&mut &session.control, message);
}

/// Says something on the data connection, with bytes after it.
fn give(session: &Session, message: &Message, bytes: &[u8]) {
    let mut data = &session.data[0];
    let _ = protocol::send(&mut data, message);
    let _ = protocol::write_all(&mut data, bytes);
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_the_session_goes_on() {
    let place = Testbed::new("names");
    let outcome = place.tell(|session| {
        for (file, name) in
            (1..).zip(["../beside", "/etc/passwd", "a/../../b", "", ".x.shunt-part"])
        {
            say(session, &Message::Entry(entry(file, name, Some(5))));
        }
        let up = Kind::Link(b"../beside".to_vec());
        let link = Entry {
            kind: up,
            ..entry(9, "link", None)
        };
        say(session, &Message::Entry(link));
        let small = entry(10, "../beside", Some(3));
        let mut hasher = BlockHasher::new(Algorithm::Xxh3, WHOLE);
        hasher.update(b"abc");
        let bytes = [&b"abc"[..], &hasher.finish()].concat();
        give(session, &Message::Small(small, 3, None), &bytes);
        give(session, &Message::Finish, b"");
        say(session, &Message::Finish);
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.files, outcome.failed.len()), (0, 7), "{outcome:?}");
    place.check_untouched();
}

#[test]
fn blocks_that_cannot_be_end_the_session() {
    let size = 3 * u64::from(BLOCK_BYTES_MIN) + 5;
    for (what, lie) in [
        ("beyond", block(4, 5)),
        ("far", block(u64::MAX, 5)),
        ("long", block(0, u32::MAX)),
        ("short", block(0, 5)),
        ("none", block(3, 0)),
        ("last", block(3, BLOCK_BYTES_MIN)),
        (
            "stranger",
            Block {
                file: 7,
                ..block(0, BLOCK_BYTES_MIN)
            },
        ),
        (
            "packed-to-more",
            Block {
                packed: Some(BLOCK_BYTES_MIN),
                ..block(0, BLOCK_BYTES_MIN)
            },
        ),
        (
            "packed-hole",
            Block {
                is_hole: true,
                packed: Some(5),
                ..block(0, BLOCK_BYTES_MIN)
            },
        ),
        (
            "only",
            Block {
                is_only: true,
                ..block(0, BLOCK_BYTES_MIN)
            },
        ),
    ] {
        let place = Testbed::new(what);
        let outcome = place.tell(|session| {
            say(session, &Message::Entry(entry(1, "f", Some(size))));
            // Blocks may not come before the receiver is ready.
            let mut intake = Intake::exactly(&session.control);
            while !matches!(intake.message(), Ok(Message::Ready(1)) | Err(_)) {}
            give(session, &Message::Block(lie), &[0; 64]);
        });
        assert!(
            matches!(outcome, Err(Error::Protocol(_))),
            "{what}: {outcome:?}"
        );
        place.check_untouched();
    }
}

#[test]
fn files_that_cannot_be_end_the_session_or_are_refused() {
    let odd = |change: fn(&mut Entry)| {
        let mut entry = entry(1, "f", Some(5 << 20));
        change(&mut entry);
        Message::Entry(entry)
    };
    for (what, lie) in [
        (
            "endless",
            odd(|entry| entry.kind = Kind::File(Some(u64::MAX))),
        ),
        ("no-blocks", odd(|entry| entry.block_bytes = 0)),
        ("odd-blocks", odd(|entry| entry.block_bytes = 3 << 20)),
        ("other-end", Message::Done(vec![1])),
        ("again", Message::Again(1, 1)),
    ] {
        let place = Testbed::new(what);
        let outcome = place.tell(|session| say(session, &lie));
        assert!(
            matches!(outcome, Err(Error::Protocol(_))),
            "{what}: {outcome:?}"
        );
        place.check_untouched();
    }
    // More than any disk has, in few enough blocks.
    let place = Testbed::new("huge");
    let outcome = place.tell(|session| {
        let huge = Entry {
            block_bytes: 64 << 20,
            ..entry(1, "f", Some(1 << 45))
        };
        say(session, &Message::Entry(huge));
        give(session, &Message::Finish, b"");
        say(session, &Message::Finish);
    });
    assert_eq!(outcome.unwrap().failed.len(), 1);
    place.check_untouched();
}

#[test]
fn a_small_file_that_is_large_and_files_without_end_end_the_session() {
    let place = Testbed::new("small");
    let len = u32::try_from(SMALL_MAX_BYTES).unwrap() + 1;
    let outcome = place.tell(|session| {
        let large = entry(1, "f", Some(u64::from(len)));
        give(session, &Message::Small(large, len, None), &[0; 64]);
    });
    assert!(matches!(outcome, Err(Error::Protocol(_))), "{outcome:?}");
    place.check_untouched();
    let place = Testbed::new("many");
    let outcome = place.tell(|session| {
        for file in 0..=SINKS_MAX as u64 {
            let name = format!("f{file}");
            say(session, &Message::Entry(entry(file, &name, None)));
        }
    });
    // Where descriptors are fewer, each file beyond them is refused.
    if let Err(error) = outcome {
        assert!(!matches!(error, Error::Silent(_)), "{error}");
    }
    place.check_untouched();
}

#[test]
fn a_file_that_ends_elsewhere_ends_the_session() {
    let place = Testbed::new("end");
    let outcome = place.tell(|session| {
        say(session, &Message::Entry(entry(1, "f", Some(2 << 20))));
        say(session, &Message::End(1, 1 << 20, [0; 32]));
    });
    assert!(matches!(outcome, Err(Error::Protocol(_))), "{outcome:?}");
    place.check_untouched();
}
