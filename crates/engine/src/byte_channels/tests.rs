//! Slots and byte channels, between two engines that are neighbours and between two programs of one engine: programs that speak
//! headers and byte channels by hand.

use super::*;
use crate::core::EngineCore;
use crate::harness::{Program, Socket, Wired, small_limits};
use crate::tests::local_peers::wired;
use core::net::SocketAddr;
use engine_config::Limits;
use hostif::byte_channel::Reader;
use hostif::control::Reply;
use hostif::control::Request;
use hostif::{Op, OptionChanges};
use rustix::fd::AsFd as _;

/// Two programs with a connection between them.
struct Scene {
    wired: Wired,
    programs: [Program; 2],
    listener: (Socket, SocketAddr),
}

impl Scene {
    /// On two engines that are neighbours.
    fn new(test: &str) -> Self {
        Self::between(wired(test), [0, 1])
    }

    /// On one engine.
    fn on_one_engine() -> Self {
        Self::between(Wired::new(small_limits()), [0, 0])
    }

    /// Each of the two.
    fn both(test: &str) -> [Self; 2] {
        [Self::new(test), Self::on_one_engine()]
    }

    fn between(mut wired: Wired, sides: [usize; 2]) -> Self {
        let [active, mut passive] = sides.map(|side| wired.attach(side));
        let listener = passive.listen(&mut wired, 8).unwrap();
        Self {
            wired,
            programs: [active, passive],
            listener,
        }
    }

    fn connected(&mut self) -> [Socket; 2] {
        let [active, passive] = &mut self.programs;
        let (near, far) = Program::connected(&mut self.wired, [active, passive], &self.listener);
        self.wired.run_until_idle();
        [near, far]
    }

    /// The byte channels of a program's socket, as its library would map them.
    fn byte_channels(&mut self, side: usize, socket: &Socket) -> (ChannelPair, ChannelPair) {
        let name = socket.header().slot().expect("neighbours have slots");
        let request = Request::MapArea {
            channel_region: name.channel_region,
        };
        let asked = self.programs[side].request(&mut self.wired, &request, &[]);
        let (reply, files) = asked.unwrap();
        assert_eq!(
            reply,
            Reply::ChannelRegion {
                channel_region: name.channel_region
            }
        );
        let channel_region = ChannelRegion::map(files[0].as_fd()).unwrap();
        let byte_channels = channel_region.channel_pairs(name.slot, name.side).unwrap();
        byte_channels.1.byte_channel.begin();
        byte_channels
    }

    fn post(&mut self, side: usize, socket: &Socket, op: Op) {
        self.programs[side].post(Some(socket.id), op);
        self.wired.run_until_idle();
    }
}

#[test]
fn bytes_of_a_connection_on_one_host_pass_through_memory_and_who_waits_is_told() {
    for scene in Scene::both("byte_channels-bytes") {
        bytes_pass(scene);
    }
}

fn bytes_pass(mut scene: Scene) {
    let [near, far] = scene.connected();
    let (near_out, near_back) = scene.byte_channels(0, &near);
    let (far_out, far_back) = scene.byte_channels(1, &far);
    for (out, back, sender, side, receiver) in [
        (&near_out, &far_back, &near, 0, &far),
        (&far_out, &near_back, &far, 1, &near),
    ] {
        assert_eq!(out.byte_channel.reader(), Reader::Reads);
        out.byte_channel.open(sender.header().written());
        out.bytes().copy_in(0, b"hello");
        assert!(out.byte_channel.publish(5), "somebody waits");
        let before = receiver.header().rx_events();
        scene.post(side, sender, Op::TellLane(LaneNews::Bytes));
        assert_eq!(receiver.header().rx_events(), before + 1);
        let mut bytes = [0; 5];
        assert_eq!(
            (back.byte_channel.origin(), back.byte_channel.available(0)),
            (Some(0), Ok(5))
        );
        back.bytes().copy_out(0, &mut bytes);
        assert_eq!(&bytes, b"hello");

        assert!(!back.byte_channel.free(5, 5, 0));
        let before = sender.header().tx_events();
        scene.post(1 - side, receiver, Op::TellLane(LaneNews::Room));
        assert_eq!(sender.header().tx_events(), before + 1);
    }
    let passed = |scene: &Scene| {
        let cores = scene.wired.cores.iter();
        cores
            .map(|core| core.layer.byte_channels.passed_in_all())
            .sum::<u64>()
    };
    assert_eq!(passed(&scene), 10);
    for (side, socket) in [(0, &near), (1, &far)] {
        scene.programs[side].close(socket);
        scene.wired.run_until_idle();
    }
    assert_eq!(passed(&scene), 10, "also of what is over");
}

#[test]
fn who_closes_with_bytes_unread_in_its_byte_channel_resets_and_without_says_the_end() {
    for scene in Scene::both("byte_channels-close") {
        close_with_and_without_bytes_unread(scene);
    }
}

fn close_with_and_without_bytes_unread(mut scene: Scene) {
    for unread in [false, true] {
        let [near, far] = scene.connected();
        let (out, _) = scene.byte_channels(0, &near);
        scene.byte_channels(1, &far);
        if unread {
            out.byte_channel.open(0);
            let _ = out.byte_channel.publish(1);
        }
        scene.programs[1].close(&far);
        scene.wired.run_until_idle();
        assert_eq!(out.byte_channel.reader(), Reader::Gone);
        assert_eq!(
            near.header().error(),
            if unread { 104 } else { 0 },
            "{unread}"
        );
        assert_eq!(near.flags().contains(hostif::Flags::FIN), !unread);
    }
}

#[test]
fn slots_are_given_again_when_their_connections_are_gone() {
    for scene in Scene::both("byte_channels-slots") {
        give_slots_again(scene);
    }
}

fn give_slots_again(mut scene: Scene) {
    let abort = OptionChanges {
        linger_s: Some(Some(0)),
        ..OptionChanges::default()
    };
    for round in 0..2 * hostif::byte_channel::region::SLOTS {
        let [near, far] = scene.connected();
        let names = [&near, &far].map(|one| one.header().slot().expect("a slot"));
        assert_eq!(names[0].slot, names[1].slot, "round {round}");
        assert_ne!(names[0].side, names[1].side);
        scene.post(
            0,
            &near,
            Op::SetOptions {
                changes: abort,
                written_low: 0,
            },
        );
        scene.programs[0].close(&near);
        scene.wired.run_until_idle();
        scene.programs[1].close(&far);
        scene.wired.run_until_idle();
    }
}

#[test]
fn a_program_gets_no_memory_behind_slots_of_others() {
    for scene in Scene::both("byte_channels-foreign") {
        refuse_a_stranger(scene);
    }
}

fn refuse_a_stranger(mut scene: Scene) {
    let [near, _far] = scene.connected();
    let name = near.header().slot().unwrap();
    let request = Request::MapArea {
        channel_region: name.channel_region,
    };
    let stranger = scene.wired.attach(0);
    let refused = stranger.request(&mut scene.wired, &request, &[]);
    assert_eq!(refused.err(), Some(Errno::ACCESS));
    let request = Request::MapArea {
        channel_region: name.channel_region + 1,
    };
    let refused = scene.programs[0].request(&mut scene.wired, &request, &[]);
    assert_eq!(refused.err(), Some(Errno::ACCESS));
}

#[test]
fn nonsense_in_the_memory_resets_the_connection() {
    for scene in Scene::both("byte_channels-nonsense") {
        reset_on_nonsense(scene);
    }
}

fn reset_on_nonsense(mut scene: Scene) {
    let [near, far] = scene.connected();
    scene.post(0, &near, Op::TellLane(LaneNews::Nonsense));
    assert_eq!(near.header().error(), 104, "ECONNRESET");
    assert_eq!(far.header().error(), 104, "ECONNRESET");
}

#[test]
fn offers_that_are_not_the_neighbours_to_make_are_not_taken() {
    let mut scene = Scene::new("byte_channels-offers");
    let [near, far] = scene.connected();
    let name = near.header().slot().unwrap();
    let (now, core) = (scene.wired.now, &mut scene.wired.cores[0]);
    let Between::Neighbour { id: neighbour, .. } = core.layer.byte_channels.regions[0].between
    else {
        panic!("no neighbour");
    };
    let (local, remote) = near.header().addresses();
    let (opener, acceptor) = (local.unwrap(), remote.unwrap());
    let theirs = name.slot + 2;
    let stranger = SocketAddr::new([10, 9, 0, 77].into(), acceptor.port());
    for (slot, acceptor, opener) in [
        // No such slot; one that is in use; one of our half; a connection that has one; one with somebody else.
        (u32::MAX, acceptor, opener),
        (name.slot, acceptor, opener),
        (theirs + 1, acceptor, opener),
        (theirs, acceptor, opener),
        (theirs, stranger, opener),
    ] {
        let offer = ChannelMessage::Offer {
            slot,
            acceptor,
            opener,
        };
        on_message(core, now, neighbour, offer);
        on_message(core, now, neighbour + 1, offer);
    }
    let used = core.layer.byte_channels.regions[0]
        .owners
        .iter()
        .filter(|sides| **sides != [0, 0]);
    assert_eq!(used.count(), 1);
    assert_eq!(near.header().slot(), Some(name));
    let news = LaneNews::Bytes;
    for slot in [theirs, u32::MAX] {
        on_message(core, now, neighbour, ChannelMessage::News { slot, news });
    }
    assert!(!far.flags().contains(hostif::Flags::ERROR));
}

#[test]
fn memory_between_programs_goes_when_one_of_them_has_ended() {
    let mut scene = Scene::on_one_engine();
    let mut numbers = Vec::new();
    for _ in 0..3 * scene.wired.cores[0].layer.byte_channels.rows.len() {
        let [near, far] = scene.connected();
        numbers.push(near.header().slot().expect("a slot").channel_region);
        scene.programs[1].close(&far);
        scene.wired.run_until_idle();
        // With its sockets, and what they have to say to the engine.
        drop(near);
        let next = scene.wired.attach(0);
        drop(core::mem::replace(&mut scene.programs[0], next));
        scene.wired.run_until_idle();
        scene.wired.advance(tcp::Duration::from_secs(120));
    }
    let channels = &scene.wired.cores[0].layer.byte_channels;
    let used = channels.rows.iter().filter(|row| row.used == 1).count();
    assert_eq!(used, channels.regions.len());
    assert!(used <= 2, "{used}");
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn one_user_has_not_all_memory_between_programs() {
    let limits = Limits {
        sessions: 512,
        connections: 512,
        ..small_limits()
    };
    let mut scene = Scene::between(Wired::new(limits), [0, 0]);
    let (mut connections, mut with_slot) = (Vec::new(), 0);
    for _ in 0..2 * same_engine::REGIONS_PER_USER {
        let mut user = scene.wired.try_attach_as(0, 1_000).unwrap();
        let ends = [&mut user, &mut scene.programs[1]];
        let (near, far) = Program::connected(&mut scene.wired, ends, &scene.listener);
        scene.wired.run_until_idle();
        let has_slot = [&near, &far].map(|one| one.header().slot().is_some());
        assert_eq!(has_slot[0], has_slot[1]);
        with_slot += usize::from(has_slot[0]);
        connections.push((user, near, far));
    }
    assert_eq!(with_slot, same_engine::REGIONS_PER_USER);
    let [near, _far] = scene.connected();
    assert!(near.header().slot().is_some(), "others have theirs");
}

#[test]
fn who_goes_on_after_a_crash_finds_slots_that_both_sides_have() {
    let mut scene = Scene::on_one_engine();
    let [near, far] = scene.connected();
    let names = [&near, &far].map(|socket| socket.header().slot().unwrap());
    let layer = &mut scene.wired.cores[0].layer;
    let rows = [near.id.row(), far.id.row()];
    // As `finish_joining` has it: who of them was told of the slot, and who is kept as its owner.
    for (is_kept, is_told, stays) in [
        ([true, true], [true, true], true),
        ([true, true], [false, false], true),
        ([true, false], [false, false], false),
    ] {
        for (n, socket) in [&near, &far].into_iter().enumerate() {
            layer.sockets.companion(rows[n]).slot = None;
            let owner = if is_kept[n] { socket.id.to_bits() } else { 0 };
            layer.byte_channels.set_owner(names[n], owner);
            let told = is_told[n].then_some(names[n]);
            socket.header().engine_set_slot(told);
        }
        layer.byte_channels.regions[0].owners.fill([0, 0]);
        layer.byte_channels.resume_slots(&mut layer.sockets);
        for (n, socket) in [&near, &far].into_iter().enumerate() {
            let expected = stays.then_some(names[n]);
            assert_eq!(socket.header().slot(), expected);
            assert_eq!(layer.sockets.slot(rows[n]), expected);
        }
        let is_used = layer.byte_channels.regions[0].is_used();
        assert_eq!(is_used, stays);
    }
}

/// A neighbour says something.
fn on_message(core: &mut EngineCore, now: Instant, neighbour: u64, message: ChannelMessage) {
    let layer = &mut core.layer;
    let (stack, sockets, link) = (&mut layer.stack, &mut layer.sockets, &mut layer.link);
    layer
        .byte_channels
        .on_message(now, neighbour, message, stack, sockets, link);
}
