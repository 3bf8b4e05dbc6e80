//! Ends a process whose body does not come back from an input. Clocks of processors are asked, since others may have
//! the processor for any time.

use std::process::abort;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What one input may have of a processor at most.
const STUCK: Duration = Duration::from_secs(30);

/// Which input is executed.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Input `number` is executed from now on.
pub fn note(number: u64) {
    NUMBER.store(number, Ordering::Relaxed);
}

/// What a thread or the process has had of a processor.
pub fn processor_time(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().unwrap_or_default()
}

/// Watches this process from now on.
pub fn begin(body: &'static str, sequence: u64) {
    thread::spawn(move || {
        let (mut number, mut since) = (u64::MAX, Duration::ZERO);
        loop {
            let (now, at) = (
                processor_time(ClockId::ProcessCPUTime),
                NUMBER.load(Ordering::Relaxed),
            );
            if at != number {
                (number, since) = (at, now);
            } else if now.saturating_sub(since) > STUCK {
                eprintln!("{body}: input {at} of sequence {sequence} does not end");
                abort();
            }
            thread::sleep(Duration::from_secs(1));
        }
    });
}
