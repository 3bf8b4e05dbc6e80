//! Many connections one after the other and at once: what is held meanwhile and what is left. Two
//! engine cores in virtual time; a binary of its own, as it measures the memory of its process.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::sync::{Mutex, PoisonError};

use engine::Limits;
use engine::harness::{Program, Socket, Wired, small_limits};
use hostif::{Flags, Layout, RingEntries};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tcp::Duration;

/// One test at a time: they count the memory and the descriptors of the process.
static TURN: Mutex<()> = Mutex::new(());

fn limits(connections: usize) -> Limits {
    let many = u32::try_from(connections + 64).unwrap();
    Limits {
        connections,
        time_waits: 4_096,
        region: Layout {
            ring_entries: RingEntries {
                command: 1_024,
                send: 1_024,
                receive: 1_024,
                completion: 4_096,
            },
            socket_headers: many,
            window_pairs: many,
            send_window_bytes: 65_536,
            receive_window_bytes: 65_536,
        },
        ..small_limits()
    }
}

/// Resident memory of this process, KiB: of its own, and of memory files (windows, tables).
fn resident_kib() -> [i64; 2] {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    ["RssAnon:", "RssShmem:"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_end_matches("kB").trim().parse().unwrap()
    })
}

/// Opens connections, moves a byte over each, closes them from the active side first.
fn short_connections(
    wired: &mut Wired,
    [active, passive]: [&mut Program; 2],
    listener: &(Socket, core::net::SocketAddr),
    count: usize,
) {
    const AT_ONCE: usize = 32;
    for _ in 0..count / AT_ONCE {
        let near: Vec<Socket> = (0..AT_ONCE)
            .map(|_| active.connect(wired, listener.1).unwrap())
            .collect();
        wired.run_until_idle();
        for socket in &near {
            assert!(socket.flags().contains(Flags::CONNECTED));
            assert_eq!(active.send(socket, b"?"), 1);
            active.close(socket);
        }
        for _ in 0..AT_ONCE {
            let far = passive.accept(wired, &listener.0).unwrap();
            assert_eq!(passive.receive(&far, &mut [0; 4]), 1);
            passive.close(&far);
        }
        wired.run_until_idle();
        // Ports and TIME-WAIT records come free with time, as in a server that lives for hours.
        wired.now += Duration::from_secs(1);
        for program in [&mut *active, &mut *passive] {
            program.reap();
            program.reaped.clear();
        }
    }
}

#[test]
fn a_hundred_thousand_short_connections_leave_nothing_behind() {
    const WARM: usize = 10_000;
    const COUNT: usize = 100_000;
    const MARGIN_KIB: i64 = 4_096;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wired = Wired::new(limits(256));
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 128).unwrap();
    let idle = wired.holdings();
    let start = std::time::Instant::now();
    let programs = [&mut active, &mut passive];
    short_connections(&mut wired, programs, &listener, WARM);
    let before = resident_kib();
    let programs = [&mut active, &mut passive];
    short_connections(&mut wired, programs, &listener, COUNT - WARM);
    let after = resident_kib();
    println!(
        "{COUNT} short connections in {:.1} s; resident KiB (own, files) {before:?} then {after:?}",
        start.elapsed().as_secs_f32()
    );
    let [_, _, _, connections, _, time_waits] = wired.holdings()[0];
    assert!(time_waits <= 4_096, "{time_waits} in TIME-WAIT");
    assert_eq!(connections, 0);
    wired.advance(Duration::from_secs(130));
    assert_eq!(wired.holdings(), idle);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before < MARGIN_KIB, "{} KiB grew", after - before);
    }
}

#[test]
fn ten_thousand_connections_at_once_cost_little_while_idle() {
    const WANTED: usize = 10_000;
    const BYTES_MAX: i64 = 32 * 1_024;
    /// These wait to be accepted: an end that a program holds costs a descriptor, of which a process
    /// often has 20,000 at most.
    const WAITING: usize = 600;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Each other end holds a descriptor in this process.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).unwrap();
    let possible = maximum.map_or(WANTED, |limit| {
        usize::try_from(limit.saturating_sub(500)).unwrap() / 2 + WAITING / 2
    });
    let count = WANTED.min(possible);
    if count < WANTED {
        println!("only {count} connections: the limit of open files allows no more");
    }
    let mut wired = Wired::new(limits(WANTED));
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 1_024).unwrap();
    let idle = wired.holdings();
    let before = resident_kib();
    let (mut sockets, mut waiting) = (Vec::with_capacity(count), Vec::new());
    for number in 0..count {
        if number < count - WAITING {
            let programs = [&mut active, &mut passive];
            sockets.push(Program::connected(&mut wired, programs, &listener));
        } else {
            waiting.push(active.connect(&mut wired, listener.1).unwrap());
            wired.run_until_idle();
        }
        if number % 32 == 31 {
            active.reap();
            active.reaped.clear();
            passive.reap();
            passive.reaped.clear();
        }
    }
    let after = resident_kib();
    let per_end = |n: usize| (after[n] - before[n]) * 1_024 / i64::try_from(2 * count).unwrap();
    println!(
        "{count} idle connections: {} own bytes and {} bytes of files at each end",
        per_end(0),
        per_end(1)
    );
    assert!(per_end(0) + per_end(1) < BYTES_MAX);
    for [_, _, _, connections, ..] in wired.holdings() {
        assert_eq!(connections, count);
    }
    // Each of them still works.
    for (near, far) in sockets.iter().step_by(97) {
        assert_eq!(active.send(near, b"!"), 1);
        wired.run_until_idle();
        assert_eq!(passive.receive(far, &mut [0; 4]), 1);
    }
    for (number, (near, far)) in sockets.iter().enumerate() {
        active.close(near);
        passive.close(far);
        if number % 256 == 255 {
            wired.run_until_idle();
        }
    }
    for near in &waiting {
        let far = passive.accept(&mut wired, &listener.0).unwrap();
        passive.close(&far);
        active.close(near);
        wired.run_until_idle();
    }
    wired.advance(Duration::from_secs(130));
    assert_eq!(wired.holdings(), idle);
}

#[test]
fn an_engine_without_free_descriptors_refuses_and_keeps_what_it_has() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wired = Wired::new(limits(64));
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    let before = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let few = Rlimit {
        current: Some(open + 2),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let refused = (0..8).find_map(|_| active.open(&mut wired).err());
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(refused, Some(Errno::NFILE));
    assert_eq!(active.send(&near, b"still here"), 10);
    wired.run_until_idle();
    assert_eq!(passive.receive(&far, &mut [0; 16]), 10);
    active.open(&mut wired).unwrap();
}
