//! Who uses the processors now: what runs beside a measurement is in it, and beside an engine that spins it waits.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use observe::process;

use super::{Finding, State};

/// How long it is watched; processor time of processes is told in ticks, of which a second has a hundred.
const WATCHED: Duration = Duration::from_millis(300);
/// Processors that may be in use on a machine that is called quiet; two ticks are 0.07.
const QUIET_PROCESSORS: f64 = 0.2;
/// Processes that are named.
const NAMED: usize = 3;

/// Watches the machine for a moment.
pub fn quiet() -> Finding {
    let own = std::process::id();
    let pids = process::all().into_iter().filter(|&pid| pid != own);
    let before: HashMap<u32, f64> = pids.map(|pid| (pid, process::processor_s(pid))).collect();
    let (began, machine) = (Instant::now(), process::machine_s());
    thread::sleep(WATCHED);
    let seconds = began.elapsed().as_secs_f64();
    let in_use = process::machine_s()
        .zip(machine)
        .map(|((now_s, _), (before_s, _))| (now_s - before_s) / seconds);
    let used = before.into_iter().filter_map(|(pid, before_s)| {
        let processors = (process::processor_s(pid) - before_s) / seconds;
        (processors > 0.0).then(|| (pid, process::name(pid), processors))
    });
    let used = used.filter_map(|(pid, name, processors)| Some((pid, name?, processors)));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    finding(in_use, used.collect(), cores)
}

fn finding(in_use: Option<f64>, mut used: Vec<(u32, String, f64)>, cores: usize) -> Finding {
    let Some(in_use) = in_use else {
        return Finding::lack(
            "quiet",
            State::Limited,
            "/proc/stat cannot be read",
            "knowing whether others disturb a measurement",
            "mount /proc",
        );
    };
    let found = format!("{in_use:.1} of {cores} processors in use");
    if in_use <= QUIET_PROCESSORS {
        return Finding::ok("quiet", found);
    }
    used.sort_by(|one, other| other.2.total_cmp(&one.2));
    let named = used.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|(pid, name, processors)| format!("{name} ({pid}) {processors:.1}"))
        .collect();
    let by = if named.is_empty() {
        "; no process of this PID namespace".to_owned()
    } else {
        format!(": {}", named.join(", "))
    };
    Finding::lack(
        "quiet",
        State::Limited,
        found + &by,
        "figures that mean something: what runs beside a measurement is in it, and an engine that spins waits for a processor",
        "measure when they have ended, or keep them to other processors: taskset --all-tasks --pid --cpu-list CPUS PID",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told_with_those_who_make_it_so() {
        let used = (1..=4).map(|pid| (pid, format!("p{pid}"), f64::from(pid) / 10.0));
        let busy = finding(Some(1.9), used.collect(), 2);
        assert_eq!(busy.state, State::Limited);
        assert_eq!(
            busy.found,
            "1.9 of 2 processors in use: p4 (4) 0.4, p3 (3) 0.3, p2 (2) 0.2"
        );
        let unseen = finding(Some(1.0), Vec::new(), 2);
        assert!(unseen.found.ends_with("PID namespace"), "{unseen:?}");
        let quiet = finding(Some(0.1), vec![(7, "x".to_owned(), 0.1)], 2);
        assert_eq!(
            (quiet.state, quiet.found.as_str()),
            (State::Ok, "0.1 of 2 processors in use")
        );
        assert_eq!(finding(None, Vec::new(), 2).state, State::Limited);
    }
}
