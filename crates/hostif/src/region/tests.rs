//! Regions: what both sides see, and what is refused.

use super::*;

fn layout() -> Layout {
    Layout {
        socket_headers: 8,
        window_pairs: 4,
        ..Layout::default()
    }
}

#[test]
fn a_program_sees_the_layout_and_the_bytes_of_the_engine() {
    let ours = Region::create(layout(), 3, 9).unwrap();
    let theirs = Region::map(ours.file().unwrap()).unwrap();
    assert_eq!(
        (theirs.layout(), theirs.id(), theirs.session()),
        (&layout(), 3, 9)
    );
    let (send, _) = ours.window_pair(3).unwrap();
    ours.window(send)
        .unwrap()
        .copy_in(send.size.into(), b"hello");
    let mut read = [0; 5];
    theirs.window(send).unwrap().copy_out(0, &mut read);
    assert_eq!(&read, b"hello");
    ours.punch_hole(send).unwrap();
    theirs.window(send).unwrap().copy_out(0, &mut read);
    assert_eq!(read, [0; 5]);
    let producer = theirs.command_producer();
    let command = Command {
        token: 1,
        socket: None,
        op: crate::Op::CloseBacking { handle: 2 },
    };
    producer.push(&command).unwrap();
    assert_eq!(ours.command_consumer().pop(), Ok(Some(command)));
}

#[test]
fn the_file_can_neither_shrink_nor_grow() {
    let region = Region::create(layout(), 1, 1).unwrap();
    let file = region.file().unwrap();
    assert_eq!(rustix::fs::ftruncate(file, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(file, 1 << 40), Err(Errno::PERM));
}

#[test]
fn spans_outside_the_windows_are_refused() {
    let region = Region::create(layout(), 1, 1).unwrap();
    let (good, _) = region.window_pair(0).unwrap();
    assert!(region.window(WindowSpan { offset: 0, ..good }).is_none());
    assert!(region.window(WindowSpan { size: 0, ..good }).is_none());
    assert!(region.window(WindowSpan { size: 5000, ..good }).is_none());
    assert!(
        region
            .window(WindowSpan {
                offset: u64::MAX - 10,
                ..good
            })
            .is_none()
    );
    let end = region.layout().region_bytes();
    assert!(
        region
            .window(WindowSpan {
                offset: end - 100,
                ..good
            })
            .is_none()
    );
    assert!(region.socket_header(8).is_none());
}

#[test]
fn a_foreign_file_is_refused() {
    let file = rustix::fs::memfd_create(c"foreign", MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(
        Region::map(file.as_fd()),
        Err(RegionError::Foreign)
    ));
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    assert!(matches!(
        Region::map(file.as_fd()),
        Err(RegionError::Foreign)
    ));
}
