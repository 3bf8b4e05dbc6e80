//! Regions: what both sides see, and what is refused.

use super::*;
use rustix::fs::MemfdFlags;

fn layout() -> Layout {
    Layout {
        socket_headers: 8,
        window_pairs: 4,
        ..Layout::default()
    }
}

impl Region {
    /// One with two sockets, whose windows have so many bytes for sending.
    pub(crate) fn small(send_window_bytes: u32) -> Region {
        let ring_entries = RingEntries {
            command: 2,
            send: 2,
            receive: 2,
            completion: 2,
        };
        let layout = Layout {
            ring_entries,
            socket_headers: 2,
            window_pairs: 2,
            send_window_bytes,
            receive_window_bytes: 8192,
        };
        Region::create(layout, 1, 1).unwrap()
    }
}

#[test]
fn a_program_sees_the_layout_and_the_bytes_of_the_engine() {
    let ours = Region::create(layout(), 3, 9).unwrap();
    let theirs = Region::map(rustix::io::dup(ours.file()).unwrap()).unwrap();
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
    let file = region.file();
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
        Region::map(rustix::io::dup(&file).unwrap()),
        Err(RegionError::Foreign)
    ));
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    assert!(matches!(
        Region::map(rustix::io::dup(&file).unwrap()),
        Err(RegionError::Foreign)
    ));
}

/// Address space that this process has for the region's file.
fn mapped_bytes(region: &Region) -> u64 {
    let inode = rustix::fs::fstat(region.file()).unwrap().st_ino;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let own = maps.lines().filter(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(4) == Some(&inode.to_string())
    });
    own.map(|line| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        number(to) - number(from)
    })
    .sum()
}

#[test]
fn windows_take_address_space_when_they_are_used() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let before = mapped_bytes(&region);
    assert_eq!(before, region.layout().windows_start());
    let (send, receive) = region.window_pair(5_000).unwrap();
    region.window(send).unwrap().copy_in(0, b"some");
    region.window(receive).unwrap();
    let one_group = mapped_bytes(&region) - before;
    assert!(one_group <= 8 << 20, "{one_group} bytes for one connection");
    for pair in 0..region.layout().window_pairs {
        let (send, _) = region.window_pair(pair).unwrap();
        region.try_window(send).unwrap();
    }
    assert_eq!(mapped_bytes(&region), region.layout().region_bytes());
    let mut read = [0; 4];
    region.window(send).unwrap().copy_out(0, &mut read);
    assert_eq!(&read, b"some");
    drop(region);
}

#[test]
fn threads_that_use_a_window_first_at_once_see_the_same() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    for pair in (0..4_000).step_by(500) {
        let (send, _) = region.window_pair(pair).unwrap();
        std::thread::scope(|scope| {
            for place in 0..4_u64 {
                let region = &region;
                let write = move || region.window(send).unwrap().copy_in(place, &[7]);
                scope.spawn(write);
            }
        });
        let mut read = [0; 4];
        region.window(send).unwrap().copy_out(0, &mut read);
        assert_eq!(read, [7; 4]);
    }
    assert_eq!(
        mapped_bytes(&region) - region.layout().windows_start(),
        64 << 20
    );
}

#[test]
fn a_window_in_two_groups_is_refused() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let span = WindowSpan {
        offset: region.layout().windows_start() + (8 << 20) - 4096,
        size: 8192,
    };
    assert!(matches!(region.try_window(span), Err(RegionError::Outside)));
}
