//! Two programs of one engine, whose bytes pass through memory between them (docs/decisions/0085-programs-of-one-engine.md): who writes
//! there has the engine wake who reads.

use crate::tests::crashes::scene::{End, Pair, Scene};
use hostif::control::Request;
use hostif::{ChannelPair, ChannelRegion, LaneNews, Op};
use rustix::fd::AsFd as _;

/// An end, and its byte channels: the one it fills, the one it empties.
struct Side {
    end: End,
    out: ChannelPair,
    back: ChannelPair,
}

pub fn play(mut scene: Scene) {
    let program = scene.wired.attach(0);
    scene.programs.push(program);
    let other = scene.programs.len() - 1;
    let listener = scene.listen(0);
    for first in [0, 1] {
        let pair = scene.connected(other, &listener);
        match sides(&mut scene, &pair) {
            Some([active, passive]) => {
                pass(&mut scene, [&active, &passive]);
                pass(&mut scene, [&passive, &active]);
                pass(&mut scene, [&active, &passive]);
            }
            None => {
                scene.carry(&pair[0], &pair[1], 100);
                scene.carry(&pair[1], &pair[0], 100);
            }
        }
        scene.end([&pair[first], &pair[1 - first]]);
    }
    // Who closes with something unread resets.
    let pair = scene.connected(other, &listener);
    match sides(&mut scene, &pair) {
        Some([active, passive]) => {
            write(&mut scene, [&active, &passive]);
        }
        None => {
            let [active, _] = &pair;
            scene.programs[other].send(&active.socket, b"unread");
            scene.wired.run_until_idle();
        }
    }
    scene.close(&pair[1]);
    scene.hears_a_reset(&pair[0]);
    scene.close(&pair[0]);
    scene.close(&listener.0);
    scene.nothing_is_left();
}

/// The byte channels of both ends, as their libraries would map them. Where an engine ended there may be none; then both know of none.
fn sides(scene: &mut Scene, pair: &Pair) -> Option<[Side; 2]> {
    scene.wired.run_until_idle();
    let names = [0, 1].map(|at: usize| pair[at].socket.header().slot());
    let [Some(active), Some(passive)] = names else {
        assert_eq!(names, [None, None], "one end alone has a slot");
        assert!(scene.has_ended.get(), "neither end has a slot");
        return None;
    };
    assert_eq!(
        (active.channel_region, active.slot, active.side),
        (passive.channel_region, passive.slot, passive.side ^ 1)
    );
    Some([(0, active), (1, passive)].map(|(at, name)| {
        let channel_region = name.channel_region;
        let request = Request::MapArea { channel_region };
        let program = &scene.programs[pair[at].program];
        let (_, files) = program.request(&mut scene.wired, &request, &[]).unwrap();
        let memory = ChannelRegion::map(files[0].as_fd()).unwrap();
        let (out, back) = memory.channel_pairs(name.slot, name.side).unwrap();
        back.byte_channel.begin();
        let end = pair[at].clone();
        Side { end, out, back }
    }))
}

/// One side writes, and the other hears of it. What was written.
fn write(scene: &mut Scene, [from, to]: [&Side; 2]) -> Vec<u8> {
    let bytes = scene.bytes(5_000);
    let header = from.end.socket.header();
    let start = header.byte_channel_written();
    if start == 0 {
        from.out.byte_channel.open(header.written());
    }
    from.out.bytes().copy_in(start, &bytes);
    let end = start + bytes.len() as u64;
    header.program_set_byte_channel_written(end);
    let before = to.end.socket.header().rx_events();
    assert!(from.out.byte_channel.publish(end), "nobody waits");
    tell(scene, &from.end, LaneNews::Bytes);
    scene.until("news of bytes", |_| {
        to.end.socket.header().rx_events() != before
    });
    bytes
}

/// Bytes pass from one side to the other, and it hears of the space that is free again.
fn pass(scene: &mut Scene, [from, to]: [&Side; 2]) {
    let bytes = write(scene, [from, to]);
    let header = to.end.socket.header();
    let consumed = header.byte_channel_consumed();
    let there = bytes.len() as u64;
    let channel = &to.back.byte_channel;
    assert_eq!(channel.available(consumed), Ok(there));
    let mut received = vec![0; bytes.len()];
    to.back.bytes().copy_out(consumed, &mut received);
    assert!(received == bytes, "other bytes than were sent");
    header.program_set_byte_channel_consumed(consumed + there);
    from.out.byte_channel.want_capacity(there - 1);
    let before = from.end.socket.header().tx_events();
    assert!(channel.free(consumed + there, there, 0), "nobody waits");
    channel.want_bytes();
    tell(scene, &to.end, LaneNews::Room);
    scene.until("news of space", |_| {
        from.end.socket.header().tx_events() != before
    });
}

fn tell(scene: &mut Scene, end: &End, news: LaneNews) {
    let program = &mut scene.programs[end.program];
    let told = program.try_call(&mut scene.wired, end.socket.id, Op::TellLane(news));
    assert_eq!(told, Ok(0));
}
