//! sendfile by reference over whole engine cores: what arrives is what stood in window and file, in the
//! order of the stream; who names a file wrongly harms himself.

use super::scene::Scene;
use crate::harness::{Program, Socket, Wired};
use hostif::control::{Reply, Request};
use hostif::{FileSource, Flags, Op, ShutdownHow, Written};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;

impl Scene {
    fn received(&mut self, far: &Socket) -> Vec<u8> {
        let mut all = Vec::new();
        let mut bytes = [0; 20_000];
        loop {
            self.wired.run_until_idle();
            match self.passive.receive(far, &mut bytes) {
                0 => return all,
                len => all.extend_from_slice(&bytes[..len]),
            }
        }
    }

    fn is_dropped(&self) -> bool {
        self.wired.cores[0].programs.get(self.active.slot).is_none()
    }
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 9).to_le_bytes()[0])
        .collect()
}

pub fn file(bytes: &[u8]) -> OwnedFd {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("shunt-files-{}-{number}", std::process::id());
    // Not every place for temporary files is on a local file system; the build folder is.
    let folder = std::env::current_exe().unwrap();
    let path = folder.parent().unwrap().join(name);
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    file.unwrap().into()
}

pub fn share(program: &Program, wired: &mut Wired, file: &OwnedFd) -> Result<u32, Errno> {
    match program.request(wired, &Request::ShareFile, &[file.as_fd()])? {
        (Reply::Prepared { first, count: 1 }, _) => Ok(first),
        (reply, _) => panic!("{reply:?} shares nothing"),
    }
}

/// Notes bytes of a file as the client does: the note, then the position.
pub fn send_file(program: &Program, socket: &Socket, handle: u32, offset: u64, len: u64) {
    let header = socket.header();
    let start = header.written();
    let note = Written {
        socket: socket.id,
        start,
        end: start + len,
        source: Some(FileSource { handle, offset }),
        mode: hostif::WriteMode::Plain,
        in_place: false,
        stamps: 0,
    };
    program.written.push(&note).unwrap();
    header.program_set_written(start + len);
}

#[test]
fn header_file_and_trailer_arrive_in_order_whatever_their_sizes() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let content = pattern(40_000);
    let file = file(&content);
    let handle = share(&scene.active, &mut scene.wired, &file).unwrap();
    for (header, offset, len, trailer) in [
        (1, 0, 1, 1),
        (0, 4095, 4097, 0),
        (100, 1, 16_000, 284),
        (7, 39_999, 1, 9),
    ] {
        let (before, after) = (pattern(header), pattern(trailer));
        assert_eq!(scene.active.send(&near, &before), header);
        send_file(&scene.active, &near, handle, offset, len);
        assert_eq!(scene.active.send(&near, &after), trailer);
        let from = usize::try_from(offset).unwrap();
        let bytes = &content[from..from + usize::try_from(len).unwrap()];
        assert!(scene.received(&far) == [&before, bytes, &after].concat());
    }
}

#[test]
fn a_close_or_a_forgotten_file_comes_after_what_was_noted_before() {
    let mut scene = Scene::new();
    let content = pattern(10_000);
    let file = file(&content);
    for ends_with_close in [true, false] {
        let (near, far) = scene.connected();
        let handle = share(&scene.active, &mut scene.wired, &file).unwrap();
        send_file(&scene.active, &near, handle, 0, 10_000);
        scene.active.post(None, Op::CloseBacking { handle });
        if ends_with_close {
            scene.active.close(&near);
        } else {
            let (how, written) = (ShutdownHow::Write, near.header().written());
            scene
                .active
                .post(Some(near.id), Op::Shutdown { how, written });
        }
        assert!(scene.received(&far) == content);
        assert!(far.flags().contains(Flags::FIN));
    }
    let session = scene.wired.cores[0].programs.get(scene.active.slot);
    assert!(session.unwrap().files.is_empty());
}

#[test]
fn notes_of_two_holders_count_in_the_order_of_the_stream() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let channel = scene.active.fork(&mut scene.wired).unwrap();
    let child = scene.wired.greet(0, channel).unwrap();
    let content = pattern(6_000);
    let file = file(&content);
    // The parent's ring is looked at first, and the parent writes second.
    let handle = share(&child, &mut scene.wired, &file).unwrap();
    send_file(&child, &near, handle, 0, 3_000);
    assert_eq!(scene.active.send(&near, b"parent"), 6);
    send_file(&child, &near, handle, 3_000, 3_000);
    let written = near.header().written();
    let how = ShutdownHow::Write;
    scene
        .active
        .post(Some(near.id), Op::Shutdown { how, written });
    let expected = [&content[..3_000], b"parent", &content[3_000..]].concat();
    assert!(scene.received(&far) == expected);
    assert!(far.flags().contains(Flags::FIN));
}

#[test]
fn a_holder_that_dies_before_it_notes_what_it_wrote_leaves_no_gap() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let channel = scene.active.fork(&mut scene.wired).unwrap();
    let child = scene.wired.greet(0, channel).unwrap();
    assert!(near.header().send_lock().try_lock(child.session));
    near.header().program_set_written(5_000);
    drop(child);
    scene.wired.run_until_idle();
    assert_eq!(scene.active.send(&near, b"goes on"), 7);
    assert_eq!(scene.received(&far), b"goes on");
}

#[test]
fn a_file_that_ends_too_early_ends_the_connection_alone() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let (other, other_far) = scene.connected();
    let file = file(&pattern(5_000));
    let handle = share(&scene.active, &mut scene.wired, &file).unwrap();
    rustix::fs::ftruncate(&file, 4_999).unwrap();
    send_file(&scene.active, &near, handle, 0, 5_000);
    scene.wired.run_until_idle();
    assert!(near.flags().contains(Flags::ERROR | Flags::HUP));
    assert_eq!(near.header().error(), 5, "EIO");
    assert_eq!(far.header().error(), 104, "ECONNRESET");
    assert!(scene.received(&far).is_empty());
    assert!(!scene.is_dropped());
    scene.active.close(&near);
    assert_eq!(scene.active.send(&other, b"fine"), 4);
    assert_eq!(scene.received(&other_far), b"fine");
}

#[test]
fn a_handle_of_another_program_or_a_gap_in_the_stream_ends_the_program() {
    for gap in [false, true] {
        let mut scene = Scene::new();
        let (near, far) = scene.connected();
        let other = scene.wired.attach(0);
        let file = file(&pattern(5_000));
        let mut handle = share(&other, &mut scene.wired, &file).unwrap();
        let honest = share(&scene.active, &mut scene.wired, &file).unwrap();
        if gap {
            handle = honest;
            near.header().program_set_written(1);
        } else {
            handle += 1;
        }
        send_file(&scene.active, &near, handle, 0, 100);
        scene.wired.run_until_idle();
        assert!(scene.is_dropped());
        assert!(scene.received(&far).is_empty());
    }
}

#[test]
fn an_older_note_of_a_file_says_nothing() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let file = file(&pattern(5_000));
    let handle = share(&scene.active, &mut scene.wired, &file).unwrap();
    assert_eq!(scene.active.send(&near, b"window"), 6);
    for end in [3, 6, 9] {
        let source = Some(FileSource { handle, offset: 0 });
        let (socket, start) = (near.id, 0);
        let note = Written {
            socket,
            start,
            end,
            source,
            mode: hostif::WriteMode::Plain,
            in_place: false,
            stamps: 0,
        };
        scene.active.written.push(&note).unwrap();
    }
    assert_eq!(scene.received(&far), b"window");
}

#[test]
fn files_are_shared_up_to_a_bound_and_only_if_they_can_be_read_at_once() {
    let mut scene = Scene::new();
    let file = file(b"content");
    for _ in 0..64 {
        share(&scene.active, &mut scene.wired, &file).unwrap();
    }
    let refused = share(&scene.active, &mut scene.wired, &file);
    assert_eq!(refused, Err(Errno::MFILE));
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let refused = share(&scene.passive, &mut scene.wired, &pipe);
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
}
