//! Transfers over a path that cuts and flips, and into folders where somebody else is at work: a file has its name
//! only when it is whole, and the next try goes on.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod support;

use std::fs;
use std::sync::atomic::Ordering;
use std::thread;

use mover::{
    Access, Check, Error, Listener, Receiver, ReceiverConfig, Role, Sender, Session, Storage, Watch,
};
use proptest::prelude::*;
use support::{
    Fault, Folder, any_port, await_condition, names, receiver, sender, transfer, transfer_while,
};

const SIZE: usize = (3 << 20) + 77;

/// Every way to the disk, and the one that is chosen.
fn any_store() -> impl Strategy<Value = Option<Storage>> {
    use Storage::{Buffered, Direct, Mapped, Splice};
    prop::sample::select(vec![
        None,
        Some(Direct),
        Some(Buffered),
        Some(Splice),
        Some(Mapped),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wherever_it_is_cut_no_part_has_the_files_name_and_the_next_try_completes(
        at in 0..SIZE as u64, streams in 1..3_u16, storage in any_store(),
    ) {
        let (folder, target) = (Folder::new(), Folder::new());
        let file = folder.file("f", SIZE);
        let mut receive = receiver(target.path());
        receive.storage = storage;
        let both = transfer(&sender(&[&file]), &receive, streams, Some(Fault::Cut(at)));
        prop_assert!(both.sent.is_err());
        prop_assert!(!target.join("f").exists());
        let (_, _, watch) = transfer(&sender(&[&file]), &receive, streams, None).succeeded();
        let (bytes, kept) = (watch.bytes.into_inner(), watch.kept_bytes.into_inner());
        prop_assert_eq!(bytes + kept, SIZE as u64);
        prop_assert_eq!(fs::read(target.join("f")).unwrap(), fs::read(&file).unwrap());
        prop_assert_eq!(names(target.path()), ["f"]);
    }

    #[test]
    fn whichever_bit_flips_what_has_the_files_name_is_the_file(
        at in 0..SIZE as u64, is_packed in any::<bool>(), storage in any_store(),
    ) {
        let (folder, target) = (Folder::new(), Folder::new());
        let file = folder.file("f", SIZE);
        let mut send = sender(&[&file]);
        if is_packed {
            // Each byte says four bits.
            let bytes = fs::read(&file).unwrap();
            fs::write(&file, bytes.iter().map(|byte| byte % 16).collect::<Vec<u8>>()).unwrap();
            send.pack_level = Some(1);
        }
        let at = if is_packed { at / 2 } else { at };
        let mut receive = receiver(target.path());
        receive.storage = storage;
        let both = transfer(&send, &receive, 1, Some(Fault::Flip(at)));
        match both.sent {
            Ok(sent) if sent.failed.is_empty() => {
                prop_assert_eq!(fs::read(target.join("f")).unwrap(), fs::read(&file).unwrap());
            }
            // It hit a message: the session ended.
            _ => prop_assert!(!target.join("f").exists()),
        }
    }
}

#[test]
fn a_block_that_arrives_damaged_is_sent_again_however_it_is_stored() {
    let folder = Folder::new();
    let file = folder.file("f", SIZE);
    for storage in [
        Storage::Direct,
        Storage::Buffered,
        Storage::Splice,
        Storage::Mapped,
    ] {
        let target = Folder::new();
        let mut receive = receiver(target.path());
        receive.storage = Some(storage);
        let flip = Some(Fault::Flip(2 << 20));
        let both = transfer(&sender(&[&file]), &receive, 1, flip);
        let (_, _, watch) = both.succeeded();
        assert_eq!(watch.again.into_inner(), 1, "{storage:?}");
        let arrived = fs::read(target.join("f")).unwrap();
        assert!(arrived == fs::read(&file).unwrap(), "{storage:?}");
    }
}

#[test]
fn a_frame_that_arrives_damaged_is_sent_again_and_a_cut_packed_transfer_goes_on() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.join("f");
    let bytes = support::content(SIZE, 5);
    fs::write(
        &file,
        bytes.iter().map(|byte| byte % 16).collect::<Vec<u8>>(),
    )
    .unwrap();
    let mut send = sender(&[&file]);
    send.pack_level = Some(3);
    // Half a block is on its way as a frame.
    let both = transfer(
        &send,
        &receiver(target.path()),
        1,
        Some(Fault::Flip(300_000)),
    );
    let (_, _, watch) = both.succeeded();
    assert_eq!(watch.again.into_inner(), 1);
    assert_eq!(
        fs::read(target.join("f")).unwrap(),
        fs::read(&file).unwrap()
    );
    fs::remove_file(target.join("f")).unwrap();
    let cut = Some(Fault::Cut(900_000));
    assert!(
        transfer(&send, &receiver(target.path()), 1, cut)
            .sent
            .is_err()
    );
    send.pack_level = None;
    let (_, _, watch) = transfer(&send, &receiver(target.path()), 1, None).succeeded();
    assert_eq!(
        watch.kept_bytes.into_inner(),
        1 << 20,
        "of plain bytes, however they came"
    );
    assert_eq!(
        fs::read(target.join("f")).unwrap(),
        fs::read(&file).unwrap()
    );
}

#[test]
fn what_was_there_counts_only_for_the_same_file() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    let cut = || {
        transfer(
            &sender(&[&file]),
            &receiver(target.path()),
            1,
            Some(Fault::Cut(2 << 20)),
        )
    };
    assert!(cut().sent.is_err());
    assert_eq!(names(target.path()), [".f.shunt-journal", ".f.shunt-part"]);
    // Of the same size, but newer.
    fs::write(&file, support::content(SIZE, 99)).unwrap();
    let (_, _, watch) = transfer(&sender(&[&file]), &receiver(target.path()), 1, None).succeeded();
    assert_eq!(watch.kept_bytes.into_inner(), 0);
    assert_eq!(
        fs::read(target.join("f")).unwrap(),
        fs::read(&file).unwrap()
    );
}

#[test]
fn what_was_there_and_has_changed_since_is_sent_again() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    for check in [Check::Last, Check::All] {
        let config = ReceiverConfig {
            check,
            ..receiver(target.path())
        };
        // Slowly: two blocks are on the disk long before the third, in which the connection is cut.
        let mut slow = sender(&[&file]);
        slow.rate_bytes_per_s = Some(4 << 20);
        let cut = Some(Fault::Cut(3 << 20));
        assert!(transfer(&slow, &config, 1, cut).sent.is_err());
        let part = fs::OpenOptions::new()
            .write(true)
            .open(target.join(".f.shunt-part"))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&part, b"rotten", 77).unwrap();
        drop(part);
        let (_, _, watch) = transfer(&sender(&[&file]), &config, 1, None).succeeded();
        assert_eq!(watch.kept_bytes.into_inner(), 1 << 20, "{check:?}");
        assert_eq!(
            fs::read(target.join("f")).unwrap(),
            fs::read(&file).unwrap()
        );
        fs::remove_file(target.join("f")).unwrap();
    }
}

#[test]
fn of_two_senders_of_one_name_the_second_hears_of_the_first() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    let mut slow = sender(&[&file]);
    // The second waits some seconds for the first one's end, which does not come.
    slow.rate_bytes_per_s = Some(256 << 10);
    let listener = Listener::bind(any_port(), Role::Receiver, Access::default()).unwrap();
    let address = listener.address();
    let (first_watch, first_target) = (Watch::default(), Watch::default());
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let session = Session::connect(address, Role::Sender, 1, &Access::default())?;
            Sender::run(session, &slow, &first_watch)
        });
        let session = listener.next(support::PATIENCE).unwrap();
        let config = receiver(target.path());
        let first_receiver =
            scope.spawn(move || Receiver::run(session, &config, &first_target).map(|_| ()));
        await_condition("the first one is at work", || {
            first_watch.bytes.load(Ordering::Relaxed) > 0
        });
        let both = transfer(&sender(&[&file]), &receiver(target.path()), 1, None);
        let failed = both.sent.unwrap().failed;
        assert!(
            failed.len() == 1 && failed[0].1.contains("another transfer"),
            "{failed:?}"
        );
        assert_eq!(first.join().unwrap().unwrap().files, 1);
        first_receiver.join().unwrap().unwrap();
    });
    assert_eq!(
        fs::read(target.join("f")).unwrap(),
        fs::read(&file).unwrap()
    );
}

#[test]
fn a_name_that_a_dead_senders_transfer_still_has_is_waited_for() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    let part = target.join(".f.shunt-part");
    let held = fs::File::create(&part).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let openings = || {
        let all = fs::read_dir("/proc/self/fd").unwrap();
        let links = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| *link == part).count()
    };
    let (send, receive) = (sender(&[&file]), receiver(target.path()));
    let both = transfer_while(&send, &receive, 1, None, |_| {
        await_condition("the receiver looks at the file that is taken", || {
            openings() > 1
        });
        drop(held);
    });
    both.succeeded();
    assert!(fs::read(target.join("f")).unwrap() == fs::read(&file).unwrap());
}

#[test]
fn a_file_that_is_written_while_it_is_sent_is_not_taken_for_whole() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    for shrinks in [false, true] {
        let mut slow = sender(&[&file]);
        slow.rate_bytes_per_s = Some(8 << 20);
        let write = |sending: &Watch| {
            await_condition("a part has left", || {
                sending.bytes.load(Ordering::Relaxed) > 0
            });
            let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
            if shrinks {
                open.set_len(1_000).unwrap();
            } else {
                std::os::unix::fs::FileExt::write_all_at(&open, b"new", 5).unwrap();
            }
        };
        let both = transfer_while(&slow, &receiver(target.path()), 1, None, write);
        let reason = match both.sent {
            Ok(sent) => sent.failed[0].1.clone(),
            Err(error) => error.to_string(),
        };
        assert!(reason.contains("changed while"), "{reason}");
        assert!(!target.join("f").exists());
    }
}

#[test]
fn somebody_who_asks_for_an_end_gets_one_and_what_arrived_stays() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", 4 * SIZE);
    let mut slow = sender(&[&file]);
    slow.rate_bytes_per_s = Some(4 << 20);
    let listener = Listener::bind(any_port(), Role::Receiver, Access::default()).unwrap();
    let (sending, receiving) = (Watch::default(), Watch::default());
    thread::scope(|scope| {
        let address = listener.address();
        let (slow, sending) = (&slow, &sending);
        let sender = scope.spawn(move || {
            let session = Session::connect(address, Role::Sender, 1, &Access::default()).unwrap();
            Sender::run(session, slow, sending)
        });
        let session = listener.next(support::PATIENCE).unwrap();
        let config = receiver(target.path());
        let receiving = &receiving;
        let receiver = scope.spawn(move || Receiver::run(session, &config, receiving));
        await_condition("three blocks are there", || {
            receiving.bytes.load(Ordering::Relaxed) >= 3 << 20
        });
        receiving.stop.store(true, Ordering::Relaxed);
        assert!(matches!(receiver.join().unwrap(), Err(Error::Interrupted)));
        assert!(sender.join().unwrap().is_err());
    });
    let (_, _, watch) = transfer(&sender(&[&file]), &receiver(target.path()), 1, None).succeeded();
    assert!(watch.kept_bytes.into_inner() >= 3 << 20);
    assert_eq!(
        fs::read(target.join("f")).unwrap(),
        fs::read(&file).unwrap()
    );
}

#[test]
fn a_target_that_vanishes_is_told_and_nothing_comes_back_in_its_place() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    let dir = target.folder("dir");
    let mut send = sender(&[&file]);
    send.rate_bytes_per_s = Some(4 << 20);
    let both = transfer_while(&send, &receiver(&dir), 1, None, |watch| {
        await_condition("some of it is through", || {
            watch.bytes.load(Ordering::Relaxed) > 0
        });
        fs::remove_dir_all(&dir).unwrap();
    });
    let reasons = match both.sent {
        Ok(sent) => format!("{:?}", sent.failed),
        Err(error) => error.to_string(),
    };
    assert!(reasons.contains("No such file"), "{reasons}");
    assert!(!dir.exists(), "it is not made again");
}

#[test]
fn source_network_and_target_are_measured_one_by_one_and_the_transfer_goes_on() {
    let (folder, target) = (Folder::new(), Folder::new());
    let file = folder.file("f", SIZE);
    for storage in [None, Some(Storage::Memory)] {
        let listener = Listener::bind(any_port(), Role::Receiver, Access::default()).unwrap();
        let address = listener.address();
        let mut receive = receiver(target.path());
        receive.storage = storage;
        let (rates, sent) = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let access = Access::default();
                let session = Session::connect(address, Role::Sender, 1, &access).unwrap();
                let sources = [file.clone()];
                let rates = mover::probe::measure(&session, &sources, &Watch::default()).unwrap();
                let send = sender(&[&file]);
                (
                    rates,
                    Sender::run(session, &send, &Watch::default()).unwrap(),
                )
            });
            let session = listener.next(support::PATIENCE).unwrap();
            Receiver::run(session, &receive, &Watch::default()).unwrap();
            sending.join().unwrap()
        });
        assert_eq!(rates.source.unwrap().bytes, SIZE as u64);
        assert!(rates.network.bytes > 0 && rates.network.us > 0);
        assert_eq!(rates.target.is_some(), storage.is_none());
        assert_eq!((sent.files, sent.failed.len()), (1, 0));
    }
    assert_eq!(
        names(target.path()),
        ["f"],
        "what was written to measure is gone"
    );
}
