//! Transfers between a sender and a receiver of one process, over loopback: what arrives is what was sent, by every
//! method and to every kind of store.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use mover::{Access, Algorithm, Error, Listener, Method, Role, Session, Storage, Token};
use support::{Folder, any_port, names, receiver, sender, transfer};

const BIG: usize = (5 << 20) + 4_321;

fn b3(path: &Path) -> String {
    blake3::hash(&fs::read(path).unwrap()).to_hex().to_string()
}

#[test]
fn every_method_and_every_store_bring_the_same_bytes() {
    let folder = Folder::new();
    let file = folder.file("source/big", BIG);
    for method in [
        Some(Method::ReadWrite),
        Some(Method::Sendfile),
        Some(Method::Splice),
        None,
    ] {
        for storage in [
            Some(Storage::Direct),
            Some(Storage::Buffered),
            Some(Storage::Splice),
            Some(Storage::Mapped),
            None,
        ] {
            for (algorithm, streams) in [(Algorithm::Blake3, 1), (Algorithm::Xxh3, 3)] {
                let target = Folder::new();
                let mut send = sender(&[&file]);
                (send.method, send.algorithm) = (method, algorithm);
                let mut receive = receiver(target.path());
                receive.storage = storage;
                let (sent, received, watch) = transfer(&send, &receive, streams, None).succeeded();
                assert_eq!((sent.files, received.files), (1, 1));
                assert_eq!(watch.bytes.into_inner(), BIG as u64);
                assert_eq!(
                    fs::read(target.join("big")).unwrap(),
                    fs::read(&file).unwrap()
                );
                assert_eq!(names(target.path()), ["big"], "nothing is left beside it");
                if algorithm == Algorithm::Blake3 {
                    assert_eq!(received.last_digest.unwrap(), b3(&file));
                }
            }
        }
    }
}

#[test]
fn a_tree_keeps_its_names_modes_times_links_and_holes() {
    let folder = Folder::new();
    folder.file("tree/a/small", 100);
    folder.file("tree/a/empty", 0);
    folder.file("tree/a/b/large", BIG);
    folder.folder("tree/hollow");
    let odd = folder.join("tree/\u{fc}\n name");
    fs::write(&odd, b"odd").unwrap();
    symlink("b/large", folder.join("tree/a/link")).unwrap();
    fs::set_permissions(
        folder.join("tree/a/small"),
        fs::Permissions::from_mode(0o4751),
    )
    .unwrap();
    fs::set_permissions(folder.join("tree/a"), fs::Permissions::from_mode(0o750)).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for name in [
        "tree/a/small",
        "tree/a/b/large",
        "tree/a/b",
        "tree/a",
        "tree/hollow",
    ] {
        fs::File::open(folder.join(name))
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    let target = Folder::new();
    transfer(
        &sender(&[&folder.join("tree")]),
        &receiver(target.path()),
        2,
        None,
    )
    .succeeded();
    assert_eq!(
        names(&target.join("tree")),
        ["a", "hollow", "\u{fc}\n name"]
    );
    assert_eq!(
        names(&target.join("tree/a")),
        ["b", "empty", "link", "small"]
    );
    assert_eq!(
        fs::read_link(target.join("tree/a/link")).unwrap(),
        Path::new("b/large")
    );
    let there = |name: &str| fs::metadata(target.join(name)).unwrap();
    // Set-uid does not travel.
    assert_eq!(there("tree/a/small").mode() & 0o7777, 0o751);
    assert_eq!(there("tree/a").mode() & 0o7777, 0o750);
    assert_eq!(there("tree/a/empty").len(), 0);
    for name in [
        "tree/a/small",
        "tree/a/b/large",
        "tree/a/b",
        "tree/a",
        "tree/hollow",
    ] {
        assert_eq!(there(name).modified().unwrap(), old, "{name}");
    }
    assert_eq!(
        b3(&target.join("tree/a/b/large")),
        b3(&folder.join("tree/a/b/large"))
    );
}

#[test]
fn holes_stay_holes() {
    let folder = Folder::new();
    let path = folder.join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4_096], 33 << 20).unwrap();
    if file.metadata().unwrap().blocks() * 512 > 1 << 20 {
        eprintln!("skipped: holes: this file system keeps none");
        return;
    }
    let target = Folder::new();
    transfer(&sender(&[&path]), &receiver(target.path()), 1, None).succeeded();
    assert_eq!(b3(&target.join("sparse")), b3(&path));
    let there = fs::metadata(target.join("sparse")).unwrap();
    assert!(there.blocks() * 512 <= 2 << 20, "{} blocks", there.blocks());
}

#[test]
fn what_must_not_be_stored_is_refused_and_the_rest_arrives() {
    let folder = Folder::new();
    folder.file("tree/good", 10);
    symlink("/etc/passwd", folder.join("tree/bad")).unwrap();
    symlink("../../up", folder.join("tree/worse")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("tree/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let target = Folder::new();
    let both = transfer(
        &sender(&[&folder.join("tree")]),
        &receiver(target.path()),
        1,
        None,
    );
    let sent = both.sent.unwrap();
    assert_eq!(
        (sent.files, sent.failed.len(), sent.skipped.len()),
        (1, 2, 1)
    );
    assert!(
        sent.failed
            .iter()
            .all(|(_, reason)| reason.contains("leads out")),
        "{:?}",
        sent.failed
    );
    assert_eq!(names(&target.join("tree")), ["good"]);
}

#[test]
fn nothing_is_written_through_a_link_that_lies_in_the_target() {
    let folder = Folder::new();
    folder.file("tree/sub/file", 10);
    folder.file("tree/sub/large", BIG);
    let target = Folder::new();
    let outside = Folder::new();
    fs::create_dir(target.join("tree")).unwrap();
    symlink(outside.path(), target.join("tree/sub")).unwrap();
    let both = transfer(
        &sender(&[&folder.join("tree")]),
        &receiver(target.path()),
        1,
        None,
    );
    let sent = both.sent.unwrap();
    assert_eq!(sent.files, 0);
    assert_eq!(names(outside.path()), [""; 0]);
}

#[test]
fn thousands_of_small_files_arrive() {
    let folder = Folder::new();
    for number in 0..3_000 {
        folder.file(&format!("many/{}/{number}", number % 7), number % 900);
    }
    let target = Folder::new();
    let (sent, received, _) = transfer(
        &sender(&[&folder.join("many")]),
        &receiver(target.path()),
        2,
        None,
    )
    .succeeded();
    assert_eq!((sent.files, received.files), (3_000, 3_000));
    for number in [0, 899, 2_999] {
        let name = format!("many/{}/{number}", number % 7);
        assert_eq!(
            fs::read(target.join(&name)).unwrap(),
            fs::read(folder.join(&name)).unwrap()
        );
    }
}

#[test]
fn of_two_small_files_of_one_name_the_later_stays() {
    let folder = Folder::new();
    let (one, other) = (folder.file("a/x", 10), folder.file("b/x", 20));
    let target = Folder::new();
    let (sent, ..) =
        transfer(&sender(&[&one, &other]), &receiver(target.path()), 1, None).succeeded();
    assert_eq!(sent.files, 2);
    assert_eq!(
        fs::read(target.join("x")).unwrap(),
        fs::read(&other).unwrap()
    );
    assert_eq!(names(target.path()), ["x"]);
}

#[test]
fn a_file_that_is_there_is_replaced_as_a_whole() {
    let folder = Folder::new();
    let file = folder.file("f", BIG);
    let target = Folder::new();
    fs::write(target.join("f"), b"older").unwrap();
    transfer(&sender(&[&file]), &receiver(target.path()), 1, None).succeeded();
    assert_eq!(b3(&target.join("f")), b3(&file));
    // A folder of that name is not.
    let other = Folder::new();
    fs::create_dir(other.join("f")).unwrap();
    let both = transfer(&sender(&[&file]), &receiver(other.path()), 1, None);
    let sent = both.sent.unwrap();
    assert_eq!(sent.failed.len(), 1, "{sent:?}");
    assert_eq!(names(other.path()), ["f"]);
}

#[test]
fn memory_takes_everything_and_keeps_nothing() {
    let folder = Folder::new();
    let file = folder.file("f", BIG);
    let target = Folder::new();
    let mut receive = receiver(target.path());
    receive.storage = Some(Storage::Memory);
    let (_, received, _) = transfer(&sender(&[&file]), &receive, 1, None).succeeded();
    assert_eq!(received.last_digest.unwrap(), b3(&file));
    assert_eq!(names(target.path()), [""; 0]);
}

#[test]
fn a_stranger_without_the_token_gets_nothing() {
    let (right, wrong) = (Token::random().unwrap(), Token::random().unwrap());
    let listen = |token: Option<&Token>| {
        Listener::bind(any_port(), Role::Receiver, Access::new(token)).unwrap()
    };
    let listener = listen(Some(&right));
    for token in [None, Some(&wrong)] {
        let session = Session::connect(listener.address(), Role::Sender, 1, &Access::new(token));
        assert!(
            matches!(session, Err(Error::Token | Error::Refused(_))),
            "{session:?}"
        );
    }
    assert!(listener.next(Duration::from_millis(50)).is_none());
    let known = Session::connect(
        listener.address(),
        Role::Sender,
        2,
        &Access::new(Some(&right)),
    );
    assert_eq!(known.unwrap().data.len(), 2);
    assert!(listener.next(support::PATIENCE).is_some());
    // Nor does a listener that does not know the token get anything.
    let other = listen(None);
    let session = Session::connect(other.address(), Role::Sender, 1, &Access::new(Some(&right)));
    assert!(matches!(session, Err(Error::Token)), "{session:?}");
    let open = Listener::bind(
        "0.0.0.0:0".parse().unwrap(),
        Role::Receiver,
        Access::new(None),
    );
    assert!(matches!(open, Err(Error::Unguarded(_))));
}

#[test]
fn two_ends_of_one_kind_say_so() {
    let listener = Listener::bind(any_port(), Role::Sender, Access::default()).unwrap();
    let session = Session::connect(listener.address(), Role::Sender, 1, &Access::default());
    assert!(session.unwrap_err().to_string().contains("both ends send"));
}

/// Lines that repeat, so that they get shorter.
fn lines(len: usize) -> Vec<u8> {
    let line = |number: usize| format!("line {} of a file that repeats itself\n", number / 7);
    let mut bytes: Vec<u8> = (0..len / 30)
        .flat_map(|number| line(number).into_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

#[test]
fn packed_files_arrive_as_they_were_and_what_does_not_get_shorter_travels_plain() {
    let folder = Folder::new();
    let noise = folder.file("tree/noise", BIG);
    fs::write(folder.join("tree/lines"), lines(BIG)).unwrap();
    fs::write(folder.join("tree/few"), lines(20_000)).unwrap();
    folder.file("tree/short", 3);
    folder.file("tree/empty", 0);
    for (storage, algorithm, level) in [
        (Storage::Direct, Algorithm::Blake3, 1),
        (Storage::Buffered, Algorithm::Xxh3, 9),
    ] {
        let target = Folder::new();
        let mut send = sender(&[&folder.join("tree")]);
        (send.pack_level, send.algorithm) = (Some(level), algorithm);
        send.method = Some(Method::Sendfile);
        let mut receive = receiver(target.path());
        receive.storage = Some(storage);
        let (sent, received, watch) = transfer(&send, &receive, 2, None).succeeded();
        assert_eq!((sent.files, received.files), (5, 5));
        for name in ["noise", "lines", "few", "short", "empty"] {
            let (there, here) = (
                target.join("tree").join(name),
                folder.join("tree").join(name),
            );
            assert!(
                fs::read(there).unwrap() == fs::read(here).unwrap(),
                "{name}"
            );
        }
        assert_eq!(sent.method, Some(Method::ReadWrite));
        assert!(
            matches!(&sent.notes[..], [note] if note.contains("packed")),
            "{:?}",
            sent.notes
        );
        let (packed, frames) = (
            watch.packed_bytes.into_inner(),
            watch.frame_bytes.into_inner(),
        );
        assert_eq!(
            packed,
            BIG as u64 + 20_000,
            "nothing of {}",
            noise.display()
        );
        assert!(frames < packed / 5, "{frames} of {packed}");
    }
}

#[test]
fn a_store_that_cannot_be_had_or_does_nothing_is_told_of_and_splice_is_had() {
    let folder = Folder::new();
    let file = folder.file("f", 9 << 20);
    let send = |storage, pack_level| {
        let mut send = sender(&[&file]);
        // The kernel maps no page that is a file's.
        (send.method, send.pack_level) = (Some(Method::Sendfile), pack_level);
        let mut receive = receiver(&folder.folder("target"));
        receive.storage = Some(storage);
        let (_, received, _) = transfer(&send, &receive, 1, None).succeeded();
        assert!(fs::read(folder.join("target/f")).unwrap() == fs::read(&file).unwrap());
        (received.storage, received.notes.join("\n"))
    };
    assert_eq!(
        send(Storage::Splice, None),
        (Some(Storage::Splice), String::new())
    );
    let (storage, note) = send(Storage::Mapped, None);
    assert_eq!(storage, Some(Storage::Buffered));
    assert!(note.contains("--store mapped"), "{note}");
    // What is random does not get shorter, so one block has to be something else.
    fs::write(&file, vec![7; 9 << 20]).unwrap();
    let (storage, note) = send(Storage::Splice, Some(1));
    assert_eq!(storage, Some(Storage::Buffered));
    assert!(note.contains("packed"), "{note}");
}

#[test]
fn where_nothing_is_asked_the_first_blocks_in_memory_show_how_to_store() {
    let memory = Path::new("/dev/shm");
    let folder = Folder::new();
    let file = folder.file("f", 90 << 20);
    let target = memory.join(format!("shunt-mover-shown-{}", std::process::id()));
    fs::create_dir(&target).unwrap();
    let both = transfer(&sender(&[&file]), &receiver(&target), 1, None);
    let same = fs::read(target.join("f")).map(|there| there == fs::read(&file).unwrap());
    fs::remove_dir_all(&target).unwrap();
    let (_, received, _) = both.succeeded();
    assert!(same.unwrap());
    // Which of them depends on the machine; that of a way that cannot be had nobody who did not ask for it is told.
    assert!(
        received.storage.is_some() && received.notes.is_empty(),
        "{received:?}"
    );
}

#[test]
fn a_file_system_in_memory_is_written_through_its_pages() {
    let memory = Path::new("/dev/shm");
    let kind = rustix::fs::statfs(memory).map(|system| system.f_type);
    if kind != Ok(0x0102_1994) {
        eprintln!("skipped: storing in memory: /dev/shm is no tmpfs here");
        return;
    }
    let folder = Folder::new();
    let file = folder.file("f", BIG);
    let target = memory.join(format!("shunt-mover-memory-{}", std::process::id()));
    fs::create_dir(&target).unwrap();
    let send = |storage| {
        let mut receive = receiver(&target);
        receive.storage = storage;
        transfer(&sender(&[&file]), &receive, 1, None)
    };
    let all = [send(None), send(Some(Storage::Direct))];
    let arrived = fs::read(target.join("f"));
    fs::remove_dir_all(&target).unwrap();
    for (both, says) in all.into_iter().zip([false, true]) {
        let (_, received, _) = both.succeeded();
        assert_eq!(received.storage, Some(Storage::Buffered));
        let notes = received.notes.join("\n");
        assert_eq!(notes.contains("--store direct"), says, "{notes}");
    }
    assert!(arrived.unwrap() == fs::read(&file).unwrap());
}
