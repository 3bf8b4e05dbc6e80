//! Datagram sockets between two engines, and programs that write nonsense into their send rings.

use crate::harness::{ADDRESSES, Program, Socket, Wired, small_limits};
use core::net::{IpAddr, SocketAddr};
use hostif::datagram::{Outgoing, RECORD_BYTES, charged_bytes};
use hostif::{DatagramOptions, FamilyOptions, Flags, MembershipChange, Op};
use proptest::prelude::*;
use rustix::io::Errno;

struct Scene {
    wired: Wired,
    programs: [Program; 2],
    sockets: [(Socket, SocketAddr); 2],
}

impl Scene {
    fn new() -> Self {
        let mut wired = Wired::new(small_limits());
        let mut programs = [wired.attach(0), wired.attach(1)];
        let mut open = |side: usize| programs[side].datagram_socket(&mut wired).unwrap();
        let sockets = [open(0), open(1)];
        wired.run_until_idle();
        Self {
            wired,
            programs,
            sockets,
        }
    }

    fn send(&mut self, from: usize, payload: &[u8]) {
        let to = self.sockets[1 - from].1;
        self.programs[from].send_datagram(&self.sockets[from].0, Some(to), payload);
        self.wired.run_until_idle();
    }

    fn receive(&mut self, side: usize) -> Option<(SocketAddr, Vec<u8>)> {
        let taken = self.programs[side].receive_datagram(&self.sockets[side].0);
        self.wired.run_until_idle();
        taken.map(|(record, payload)| (record.source, payload))
    }

    /// Both sides still serve each other.
    fn goes_on(&mut self) {
        for from in [0, 1] {
            let source = self.sockets[from].1;
            self.send(from, b"ping");
            assert_eq!(self.receive(1 - from), Some((source, b"ping".to_vec())));
        }
    }

    /// As `shunt ss` shows it.
    fn receive_queue(&self, side: usize) -> u64 {
        let rows = crate::core::report::sockets(&self.wired.cores[side]);
        rows[0]["receive_queue"].as_u64().unwrap()
    }

    fn drops(&self, side: usize) -> u64 {
        self.wired.cores[side]
            .layer
            .stack
            .counters()
            .udp_rcvbuf_errors
    }
}

#[test]
fn datagrams_keep_their_bounds_and_senders_both_ways() {
    let mut scene = Scene::new();
    scene.goes_on();
    let source = scene.sockets[0].1;
    // The last one goes in fragments.
    let lengths = [0, 1, 64, 1_472, 3_000];
    for len in lengths {
        scene.send(0, &vec![7; len]);
    }
    for len in lengths {
        assert_eq!(scene.receive(1), Some((source, vec![7; len])));
    }
    scene.goes_on();
}

#[test]
fn several_records_under_one_note_are_several_datagrams() {
    let mut scene = Scene::new();
    let mut bytes = Vec::new();
    for payload in [&b"one"[..], b"two"] {
        let record = Outgoing {
            len: 3,
            destination: Some(scene.sockets[1].1),
            ..Outgoing::default()
        };
        bytes.extend_from_slice(&record.encode());
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(RECORD_BYTES), 0);
    }
    scene.programs[0].write_records(&scene.sockets[0].0, &bytes);
    scene.wired.run_until_idle();
    let source = scene.sockets[0].1;
    for payload in [b"one", b"two"] {
        assert_eq!(scene.receive(1), Some((source, payload.to_vec())));
    }
}

#[test]
fn what_the_ring_has_no_room_for_is_lost_and_counted_until_the_program_reads() {
    let mut scene = Scene::new();
    let ring = 16_384 / charged_bytes(1_000);
    for _ in 0..ring + 3 {
        scene.send(0, &[1; 1_000]);
    }
    assert_eq!(scene.drops(1), 3);
    assert_eq!(scene.receive_queue(1), ring * charged_bytes(1_000));
    for _ in 0..ring {
        assert!(scene.receive(1).is_some());
    }
    assert_eq!(scene.receive(1), None);
    assert_eq!(scene.receive_queue(1), 0);
    scene.goes_on();
}

#[test]
fn a_queue_is_as_short_as_the_program_asks_and_takes_one_datagram_at_least() {
    let mut scene = Scene::new();
    let receiver = scene.sockets[1].0.clone();
    // What may be held, of datagrams of so many bytes, and how many of five that is: as Linux.
    for (receive_bytes, len, held) in [
        (4_000, 64, 4),
        (1, 64, 2),
        (1, 3_000, 1),
        (10_000, 1_000, 4),
    ] {
        let options = DatagramOptions {
            receive_bytes,
            ..DatagramOptions::default()
        };
        let set = Op::SetDatagramOptions(options);
        scene.programs[1].post(Some(receiver.id), set);
        scene.wired.run_until_idle();
        let lost = scene.drops(1);
        for _ in 0..5 {
            scene.send(0, &vec![2; len]);
        }
        assert_eq!(scene.drops(1) - lost, 5 - held, "{receive_bytes} {len}");
        for _ in 0..held {
            let taken = scene.receive(1).map(|(_, payload)| payload.len());
            assert_eq!(taken, Some(len));
        }
        assert_eq!(scene.receive(1), None);
    }
    scene.goes_on();
}

#[test]
fn a_connected_socket_is_refused_again_and_again() {
    let mut scene = Scene::new();
    let nobody = SocketAddr::new(IpAddr::V4(ADDRESSES[1]), 9);
    let socket = scene.sockets[0].0.clone();
    let connect = Op::Connect {
        remote: nobody,
        local: None,
    };
    let Scene {
        wired, programs, ..
    } = &mut scene;
    assert_eq!(programs[0].try_call(wired, socket.id, connect), Ok(0));
    assert!(socket.flags().contains(Flags::CONNECTED | Flags::DATAGRAM));
    for _ in 0..3 {
        programs[0].send_datagram(&socket, None, b"anybody?");
        wired.run_until_idle();
        let refused = u16::try_from(Errno::CONNREFUSED.raw_os_error()).unwrap();
        assert_eq!(socket.header().program_take_soft_error(), Some(refused));
        assert_eq!(socket.header().program_take_soft_error(), None);
    }
    let options = DatagramOptions {
        v4: FamilyOptions {
            error_queue: true,
            ..FamilyOptions::default()
        },
        ..DatagramOptions::default()
    };
    let set = Op::SetDatagramOptions(options);
    assert_eq!(programs[0].try_call(wired, socket.id, set), Ok(0));
    // Nobody takes them: the queue is bounded, and the socket goes on.
    for _ in 0..100 {
        programs[0].send_datagram(&socket, None, b"anybody?");
        wired.run_until_idle();
    }
    let (end, taken) = socket.header().failures();
    assert!(end > 0 && end <= 8_192 && taken == 0);
    assert_eq!(
        programs[0].try_call(wired, socket.id, Op::Disconnect),
        Ok(0)
    );
    scene.goes_on();
}

#[test]
fn what_was_written_before_a_change_of_options_leaves_as_it_was_before() {
    let mut scene = Scene::new();
    let to = scene.sockets[1].1;
    let socket = scene.sockets[0].0.clone();
    for ttl in [64, 9, 7] {
        let options = DatagramOptions {
            v4: FamilyOptions {
                ttl,
                ..FamilyOptions::default()
            },
            ..DatagramOptions::default()
        };
        // The command is taken from its ring before the note of what was written before it.
        scene.programs[0].send_datagram(&socket, Some(to), b"x");
        let set = Op::SetDatagramOptions(options);
        scene.programs[0].post(Some(socket.id), set);
        scene.wired.run_until_idle();
    }
    let receiver = scene.sockets[1].0.clone();
    let mut seen = Vec::new();
    while let Some((record, _)) = scene.programs[1].receive_datagram(&receiver) {
        seen.push(record.ttl);
    }
    assert_eq!(seen, [64, 64, 9]);
}

#[test]
fn a_group_is_heard_across_the_wire_by_who_has_joined_it() {
    let mut scene = Scene::new();
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let to = SocketAddr::new(group, scene.sockets[1].1.port());
    let receiver = scene.sockets[1].0.clone();
    let membership = |join| Op::Membership {
        change: if join {
            MembershipChange::Join
        } else {
            MembershipChange::Leave
        },
        group,
        source: None,
        interface: 0,
    };
    for (join, heard) in [(true, true), (false, false)] {
        let changed = scene.programs[1].try_call(&mut scene.wired, receiver.id, membership(join));
        assert_eq!(changed, Ok(0));
        let sender = scene.sockets[0].0.clone();
        scene.programs[0].send_datagram(&sender, Some(to), b"news");
        scene.wired.run_until_idle();
        let taken = scene.programs[1].receive_datagram(&receiver);
        assert_eq!(taken.is_some(), heard);
        assert!(taken.is_none_or(|(record, _)| record.destination == group));
    }
    let again = scene.programs[1].try_call(&mut scene.wired, receiver.id, membership(false));
    assert_eq!(again, Err(Errno::ADDRNOTAVAIL));
}

#[test]
fn a_closed_socket_still_sends_what_was_written() {
    let mut scene = Scene::new();
    let (source, to) = (scene.sockets[0].1, scene.sockets[1].1);
    scene.goes_on();
    scene.programs[0].send_datagram(&scene.sockets[0].0, Some(to), b"bye");
    scene.programs[0].close(&scene.sockets[0].0.clone());
    scene.wired.run_until_idle();
    assert_eq!(scene.receive(1), Some((source, b"bye".to_vec())));
    assert_eq!(scene.wired.cores[0].layer.stack.udp_sockets(), 0);
}

#[test]
fn a_poll_that_brings_datagrams_to_a_thread_that_waits_for_them_is_brief_and_their_event_comes_with_a_whole_one()
 {
    let mut scene = Scene::new();
    scene.goes_on();
    let (sender, (receiver, to)) = (scene.sockets[0].0.clone(), scene.sockets[1].clone());
    let (session, slot) = (scene.programs[1].session, scene.programs[1].slot);
    scene.programs[1].reap();
    let told = |scene: &Scene| {
        let session = scene.wired.cores[1].programs.get(slot).unwrap();
        session.notifications()[0]
    };
    let before = told(&scene);
    let now = scene.wired.now;
    let brief_for = |socket, scene: &mut Scene| {
        scene.programs[0].send_datagram(&sender, Some(to), b"ping");
        scene.wired.cores[0].poll(now, None);
        let core = &mut scene.wired.cores[1];
        assert!(core.poll_for_datagrams(now, (session, socket)) > 0);
        assert!(scene.programs[1].receive_datagram(&receiver).is_some());
        scene.wired.cores[1].owes_whole_poll()
    };
    for _ in 0..3 {
        assert!(brief_for(receiver.id, &mut scene));
    }
    assert_eq!(told(&scene), before);
    scene.wired.run_until_idle();
    assert!(!scene.wired.cores[1].owes_whole_poll());
    assert_eq!(told(&scene), before + 1);
    // Nobody who waits for another socket looks at this one.
    let (other, _) = scene.programs[1].datagram_socket(&mut scene.wired).unwrap();
    assert!(!brief_for(other.id, &mut scene));
}

#[test]
fn a_program_that_says_it_consumed_what_never_came_has_no_more_space_for_it() {
    let mut scene = Scene::new();
    let ring = 16_384 / charged_bytes(1_000);
    for _ in 0..ring {
        scene.send(0, &[1; 1_000]);
    }
    let receiver = scene.sockets[1].0.clone();
    let came = receiver.header().received_end();
    for lie in [came + 1, u64::MAX] {
        receiver.header().program_set_consumed(lie);
        scene.send(0, &[1; 1_000]);
        assert_eq!(receiver.header().received_end(), came);
    }
    assert_eq!(scene.drops(1), 2);
    // Nor does one that takes back what it said.
    receiver.header().program_set_consumed(came);
    scene.send(0, &[1; 1_000]);
    receiver.header().program_set_consumed(0);
    scene.send(0, &[1; 1_000]);
    assert_eq!(scene.drops(1), 2);
    assert!(receiver.header().received_end() > came);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_in_the_send_ring_harms_nobody_else(
        chunks in proptest::collection::vec((any::<[u8; 32]>(), 1_usize..20, any::<bool>()), 1..12)
    ) {
        let mut scene = Scene::new();
        let to = scene.sockets[1].1;
        let mut hostile = scene.wired.attach(0);
        let (socket, _) = hostile.datagram_socket(&mut scene.wired).unwrap();
        for (seed, lines, plausible) in chunks {
            let mut bytes: Vec<u8> = seed.iter().copied().cycle().take(lines * RECORD_BYTES).collect();
            if plausible {
                let len = u32::from(seed[0]) * 8;
                let record = Outgoing { len, destination: Some(to), segment_bytes: u16::from(seed[1]), ..Outgoing::default() };
                bytes[..RECORD_BYTES].copy_from_slice(&record.encode());
            }
            let used = socket.header().written() - socket.header().acknowledged();
            if used + bytes.len() as u64 <= 8_192 {
                hostile.write_records(&socket, &bytes);
            }
            scene.wired.run_until_idle();
        }
        let header = socket.header();
        prop_assert_eq!(header.written(), header.acknowledged(), "everything was dealt with");
        while scene.receive(1).is_some() {}
        scene.goes_on();
    }
}
