//! How much two engine cores move compared with one, with the load made inside the engine's thread: no other
//! process, no other thread.
//!
//! ```text
//! cargo bench --package testkit --bench cores_scaling
//! ```
//!
//! Each thread turns a sending and a receiving core, joined by shared memory, and the two programs that talk
//! over them. The cores of two threads are of different engines: cores of one engine share no more on the
//! way of data than these, the program text. Bytes per second say how it scales on this
//! machine, now; bytes per second of processor time say whether cores hinder each other, whatever else runs.

#![allow(clippy::unwrap_used)] // a failure here ends the measurement, as it should

use std::sync::Barrier;
use std::time::{Duration, Instant};

use engine::harness::{Program, Wired, small_limits};
use hostif::Layout;
use rustix::time::{ClockId, clock_gettime};

const TIME: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
/// Written at a time: a segment as large as the cable takes.
const PIECE: usize = 64 * 1024;
/// Turns between looks at clock and control channels.
const TURNS: usize = 64;

/// What one thread moved: bytes in the time, and bytes per second of its processor's time.
#[derive(Clone, Copy, Default)]
struct Moved {
    per_second: f64,
    per_busy_second: f64,
}

fn busy() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn bytes(count: u64) -> f64 {
    f64::from(u32::try_from(count / 1024).unwrap()) * 1024.0
}

fn run(start: &Barrier) -> Moved {
    let limits = engine::Limits {
        region: Layout {
            send_window_bytes: 1 << 20,
            receive_window_bytes: 1 << 20,
            ..small_limits().region
        },
        ..small_limits()
    };
    let mut wired = Wired::new(limits);
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let (near, far) = Program::connected(&mut wired, [&mut active, &mut passive], &listener);
    let (piece, mut buffer) = (vec![7; PIECE], vec![0; 4 * PIECE]);
    let origin = wired.now;
    start.wait();
    let (began, busy_before) = (Instant::now(), busy());
    let mut received = 0;
    while began.elapsed() < TIME {
        let us = u64::try_from(began.elapsed().as_micros()).unwrap();
        wired.now = origin + tcp::Duration::from_us(us);
        for _ in 0..TURNS {
            active.send(&near, &piece);
            wired.turn();
            received += u64::try_from(passive.receive(&far, &mut buffer)).unwrap();
        }
        active.reap();
        passive.reap();
        active.reaped.clear();
        passive.reaped.clear();
    }
    Moved {
        per_second: bytes(received) / began.elapsed().as_secs_f64(),
        per_busy_second: bytes(received) / (busy() - busy_before).as_secs_f64(),
    }
}

/// The sum over `cores` threads, and the mean of what each moved per busy second.
fn run_cores(cores: usize) -> Moved {
    let start = Barrier::new(cores);
    let moved: Vec<Moved> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(|| run(&start))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let count = f64::from(u32::try_from(cores).unwrap());
    Moved {
        per_second: moved.iter().map(|one| one.per_second).sum(),
        per_busy_second: moved.iter().map(|one| one.per_busy_second).sum::<f64>() / count,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let (mut scaling, mut efficiency) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (one, two) = (run_cores(1), run_cores(2));
        println!(
            "round {round}: one core {:.1} Gbit/s, two {:.1} Gbit/s; for each busy second {:.1} and {:.1} Gbit",
            one.per_second * 8e-9,
            two.per_second * 8e-9,
            one.per_busy_second * 8e-9,
            two.per_busy_second * 8e-9,
        );
        scaling.push(two.per_second / one.per_second);
        efficiency.push(two.per_busy_second / one.per_busy_second);
    }
    println!(
        "two cores move {:.2} times what one does; each does {:.2} of its work beside the other (medians of {ROUNDS})",
        median(scaling),
        median(efficiency),
    );
}
