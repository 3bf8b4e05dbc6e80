//! Slots and byte channels between two engines that are neighbours: programs that speak headers and byte channels by hand.

use super::*;
use crate::core::EngineCore;
use crate::harness::{Program, Socket, Wired};
use crate::local_peers::tests::wired;
use core::net::SocketAddr;
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
    fn new(test: &str) -> Self {
        let mut wired = wired(test);
        let active = wired.attach(0);
        let mut passive = wired.attach(1);
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
fn bytes_of_a_connection_between_neighbours_pass_through_memory_and_who_waits_is_told() {
    let mut scene = Scene::new("byte_channels-bytes");
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
}

#[test]
fn who_closes_with_bytes_unread_in_its_byte_channel_resets_and_without_says_the_end() {
    let mut scene = Scene::new("byte_channels-close");
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
    let mut scene = Scene::new("byte_channels-slots");
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
    let mut scene = Scene::new("byte_channels-foreign");
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
    let mut scene = Scene::new("byte_channels-nonsense");
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
    let neighbour = core.layer.byte_channels.regions[0].neighbour;
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
        .filter(|owner| **owner != 0);
    assert_eq!(used.count(), 1);
    assert_eq!(near.header().slot(), Some(name));
    let news = LaneNews::Bytes;
    for slot in [theirs, u32::MAX] {
        on_message(core, now, neighbour, ChannelMessage::News { slot, news });
    }
    assert!(!far.flags().contains(hostif::Flags::ERROR));
}

/// A neighbour says something.
fn on_message(core: &mut EngineCore, now: Instant, neighbour: u64, message: ChannelMessage) {
    let layer = &mut core.layer;
    let (stack, sockets, link) = (&mut layer.stack, &mut layer.sockets, &mut layer.link);
    layer
        .byte_channels
        .on_message(now, neighbour, message, stack, sockets, link);
}
