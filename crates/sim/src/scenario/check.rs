//! Values that cannot be, and bounds that keep a run finite.

use super::{Arrivals, BottomHalf, Distribution, Kind, Mode, Receive, Scenario, Workload};

/// Most requests of a run: each takes some 24 bytes.
pub const MOST_REQUESTS: usize = 5_000_000;
/// Most processors, queues and background processes.
pub const MOST_UNITS: usize = 1024;
/// Most background processes of all processors together.
const MOST_PROCESSES: usize = 4096;
/// Most packets of one request.
const MOST_PACKETS: usize = 10_000;

/// The key at fault and what is wrong with it.
pub type Fault = (&'static str, String);

/// A table of a file: the beginning of its keys, and each key with its default value and what may be its values.
macro_rules! table {
    ($(#[$about:meta])* $name:ident in $prefix:literal {
        $($(#[$what:meta])* $key:ident: $kind:ty = $default:expr $(, $bound:ident $(($($end:expr),*))?)?;)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($(#[$what])* pub $key: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $name {
            /// Values that cannot be by themselves.
            pub(super) fn check(&self) -> Result<(), $crate::scenario::check::Fault> {
                $($(
                    let key = concat!($prefix, stringify!($key));
                    $crate::scenario::check::$bound(key, &self.$key $($(, $end)*)?)?;
                )?)*
                Ok(())
            }
        }
    };
}

fn fault_unless(
    is_right: bool,
    key: &'static str,
    wrong: impl Fn() -> String,
) -> Result<(), Fault> {
    match is_right {
        true => Ok(()),
        false => Err((key, wrong())),
    }
}

pub fn above_zero(key: &'static str, value: &f64) -> Result<(), Fault> {
    let is_right = value.is_finite() && *value > 0.0;
    fault_unless(is_right, key, || format!("must be above 0, is {value}"))
}

pub fn not_negative(key: &'static str, value: &f64) -> Result<(), Fault> {
    let is_right = value.is_finite() && *value >= 0.0;
    fault_unless(is_right, key, || format!("must be 0 or above, is {value}"))
}

pub fn not_negative_if_any(key: &'static str, value: &Option<f64>) -> Result<(), Fault> {
    value.iter().try_for_each(|value| not_negative(key, value))
}

pub fn share(key: &'static str, value: &f64) -> Result<(), Fault> {
    let is_right = (0.0..=1.0).contains(value);
    fault_unless(is_right, key, || {
        format!("must be between 0 and 1, is {value}")
    })
}

pub fn count(key: &'static str, value: &usize, least: usize, most: usize) -> Result<(), Fault> {
    let wrong = || format!("must be between {least} and {most}, is {value}");
    fault_unless((least..=most).contains(value), key, wrong)
}

pub fn from_to(key: &'static str, value: &f64, least: f64, most: f64) -> Result<(), Fault> {
    let wrong = || format!("cannot be {value}: it is from {least} to {most}");
    fault_unless((least..=most).contains(value), key, wrong)
}

pub fn part(key: &'static str, value: &f64) -> Result<(), Fault> {
    let is_right = (0.0..=1.0).contains(value);
    fault_unless(is_right, key, || "must be between 0 and 1".to_owned())
}

pub fn between(key: &'static str, value: &usize, least: usize, most: usize) -> Result<(), Fault> {
    let wrong = || format!("must be between {least} and {most}");
    fault_unless((least..=most).contains(value), key, wrong)
}

pub fn at_most(key: &'static str, value: &usize, most: usize) -> Result<(), Fault> {
    fault_unless(*value <= most, key, || format!("must be {most} at most"))
}

pub fn all_above_zero(
    key: &'static str,
    values: &[f64],
    least: usize,
    most: usize,
) -> Result<(), Fault> {
    count(key, &values.len(), least, most)?;
    values.iter().try_for_each(|value| above_zero(key, value))
}

pub fn all_not_negative(
    key: &'static str,
    values: &[f64],
    least: usize,
    most: usize,
) -> Result<(), Fault> {
    count(key, &values.len(), least, most)?;
    values.iter().try_for_each(|value| not_negative(key, value))
}

/// The key at fault and what is wrong with it.
pub fn check(s: &Scenario) -> Result<(), Fault> {
    s.host.check()?;
    s.stack.check()?;
    s.nic.check()?;
    s.interrupts.check()?;
    s.bus.check()?;
    s.network.check()?;
    s.loss.check()?;
    s.workload.check()?;
    requests(&s.workload)?;
    s.runs.check()?;
    s.cost.check()?;
    together(s)
}

/// As many as fit the memory.
fn requests(w: &Workload) -> Result<(), Fault> {
    let requests = match w.requests_total {
        0 => {
            let most = MOST_REQUESTS / w.clients;
            count(
                "workload.requests_per_client",
                &w.requests_per_client,
                1,
                most,
            )?;
            w.requests_per_client * w.clients
        }
        total => total,
    };
    let most = MOST_PACKETS.min(MOST_REQUESTS / requests.max(1)).max(2);
    count("workload.request_packets", &w.request_packets, 0, most)
}

/// Keys that contradict each other.
fn together(s: &Scenario) -> Result<(), Fault> {
    let fault = |key, reason: &str| Err((key, reason.to_owned()));
    if s.host.cores * s.host.background > MOST_PROCESSES {
        return fault(
            "host.background",
            "times host.cores is more than 4096 processes",
        );
    }
    if s.nic.mode == Mode::Urgent && s.nic.memory_kib == 0.0 {
        return fault("nic.mode", "\"urgent\" needs a limit: set nic.memory_kib");
    }
    if s.nic.memory_low > s.nic.memory_high {
        return fault("nic.memory_low", "must not be above nic.memory_high");
    }
    if s.interrupts.frames == 0 && s.interrupts.after_us == 0.0 {
        return fault(
            "interrupts.frames",
            "0 would never interrupt: set interrupts.after_us",
        );
    }
    if s.interrupts.frames > 1
        && s.interrupts.after_us == 0.0
        && (s.interrupts.ring_frames > 0 && s.interrupts.ring_frames < s.interrupts.frames)
    {
        return fault("interrupts.frames", "is more than interrupts.ring_frames");
    }
    if s.bus.zero_copy && s.stack.kind != Kind::Nic {
        return fault(
            "bus.zero_copy",
            "is between host and NIC: needs stack.kind = \"nic\"",
        );
    }
    if s.stack.busy_poll && s.stack.kind != Kind::User {
        return fault("stack.busy_poll", "needs stack.kind = \"user\"");
    }
    if s.stack.busy_poll && s.stack.receive == Receive::Interrupt {
        return fault(
            "stack.busy_poll",
            "contradicts stack.receive = \"interrupt\"",
        );
    }
    if s.stack.bottom_half == BottomHalf::Napi && s.interrupts.after_us > 0.0 {
        return fault(
            "interrupts.after_us",
            "stack.bottom_half = \"napi\" masks interrupts itself",
        );
    }
    let w = &s.workload;
    if (w.arrivals == Arrivals::Trace) == w.arrivals_us.is_empty() {
        return fault(
            "workload.arrivals_us",
            "and workload.arrivals = \"trace\" need each other",
        );
    }
    if (w.compute == Distribution::Empirical) == w.compute_samples.is_empty() {
        return fault(
            "workload.compute_samples",
            "and workload.compute = \"empirical\" need each other",
        );
    }
    if s.nic.service == Distribution::Empirical {
        return fault("nic.service", "\"empirical\" is for workload.compute only");
    }
    if s.workload.batch > 1 && s.workload.arrivals != Arrivals::Batch {
        return fault("workload.batch", "needs workload.arrivals = \"batch\"");
    }
    Ok(())
}
