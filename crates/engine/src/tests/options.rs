//! Options and queries through the rings: what reaches the stack, and what a program may not ask for.

use super::scene::Scene;
use crate::harness::{Program, Socket, Wired};
use hostif::{FastOpenKeys, Figures, Flags, Op, Query, SocketOption};
use rustix::io::Errno;

fn set(
    program: &mut Program,
    wired: &mut Wired,
    socket: &Socket,
    option: SocketOption,
    value: u64,
) -> Result<u64, Errno> {
    program.try_call(
        wired,
        socket.id,
        Op::SetOption {
            option,
            value,
            written_low: 0,
        },
    )
}

fn ask(program: &mut Program, wired: &mut Wired, socket: &Socket, what: Query) -> Vec<u64> {
    let len = program
        .try_call(wired, socket.id, Op::Query { what })
        .unwrap();
    let words = usize::try_from(len.div_ceil(8)).unwrap();
    program.region.answer()[..words].to_vec()
}

fn figures(program: &mut Program, wired: &mut Wired, socket: &Socket) -> Figures {
    Figures::from_words(&ask(program, wired, socket, Query::Figures))
}

#[test]
fn figures_tell_what_was_sent_and_received() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let Scene {
        wired,
        active,
        passive,
        listener,
    } = &mut scene;
    assert_eq!(active.send(&near, &[7; 3_000]), 3_000);
    wired.run_until_idle();
    let sender = figures(active, wired, &near);
    let receiver = figures(passive, wired, &far);
    assert_eq!((sender.state, receiver.state), (1, 1));
    assert_eq!(
        (sender.bytes_acked, receiver.bytes_received),
        (3_001, 3_000)
    );
    assert_eq!((sender.bytes_sent, sender.bytes_retrans), (3_000, 0));
    assert!(sender.snd_mss > 500 && sender.snd_cwnd >= 10 && sender.pmtu >= 576);
    assert_eq!(sender.advmss, receiver.advmss);
    let listener = figures(passive, wired, &listener.0);
    assert_eq!(
        (listener.state, listener.unacked, listener.sacked),
        (10, 0, 8)
    );
}

#[test]
fn what_a_listener_has_its_connections_have() {
    let mut scene = Scene::new();
    let listener = scene.listener.0.clone();
    let Scene { wired, passive, .. } = &mut scene;
    for (option, value) in [
        (SocketOption::SaveSyn, 1),
        (SocketOption::MaxSegment, 600),
        (SocketOption::TypeOfService, 8),
    ] {
        assert_eq!(set(passive, wired, &listener, option, value), Ok(0));
    }
    let (near, far) = scene.connected();
    let Scene {
        wired,
        active,
        passive,
        ..
    } = &mut scene;
    let saved = ask(passive, wired, &far, Query::SavedSyn);
    let bytes: Vec<u8> = saved.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(
        (bytes[0] >> 4, bytes[9], bytes[33]),
        (4, 6, 2),
        "IPv4, TCP, SYN"
    );
    assert_eq!(
        ask(active, wired, &near, Query::SavedSyn),
        Vec::<u64>::new()
    );
    assert_eq!(figures(active, wired, &near).snd_mss, 600 - 12);
    assert_eq!(figures(passive, wired, &far).advmss, 600 - 12);
    let record = wired.cores[1].layer.sockets.row(far.id.index);
    assert_eq!((record.tos, record.ip().ttl), (8, 64));
}

#[test]
fn an_urgent_byte_is_announced_with_its_place() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    scene.write_urgent(&near, b"abX");
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::URGENT));
    assert_eq!(
        (far.header().urgent_end(), far.header().received_end()),
        (3, 3)
    );
}

#[test]
fn the_largest_values_are_bounded_not_believed() {
    let mut scene = Scene::new();
    let (near, _far) = scene.connected();
    for option in SocketOption::ALL {
        let Scene { wired, active, .. } = &mut scene;
        assert_eq!(set(active, wired, &near, *option, u64::MAX), Ok(0));
    }
    scene.wired.run_until_idle();
    assert!(near.flags().contains(Flags::CONNECTED));
}

#[test]
fn the_second_fast_connect_takes_its_first_bytes_along() {
    let mut scene = Scene::new();
    let (listener, remote) = (scene.listener.0.clone(), scene.listener.1);
    let Scene {
        wired,
        active,
        passive,
        ..
    } = &mut scene;
    let keys = FastOpenKeys {
        primary: [7; 16],
        backup: Some([8; 16]),
    };
    assert_eq!(
        passive.try_call(wired, listener.id, Op::SetFastOpenKeys(keys)),
        Ok(0)
    );
    assert_eq!(
        set(passive, wired, &listener, SocketOption::FastOpen, 4),
        Ok(0)
    );
    let connect = Op::ConnectFast {
        remote,
        local: None,
    };
    let first = active.open(wired).unwrap();
    assert_eq!(active.try_call(wired, first.id, connect), Ok(0));
    wired.run_until_idle();
    assert!(first.flags().contains(Flags::CONNECTED));
    let second = active.open(wired).unwrap();
    let room = active.try_call(wired, second.id, connect).unwrap();
    assert!((500..1_500).contains(&room), "{room}");
    wired.run_until_idle();
    assert!(second.flags().contains(Flags::CONNECTING), "it waits");
    assert_eq!(active.send(&second, b"hello"), 5);
    wired.run_until_idle();
    assert!(second.flags().contains(Flags::CONNECTED));
    assert_eq!(figures(active, wired, &second).options & 32, 32);
}
