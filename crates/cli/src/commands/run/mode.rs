//! Where the engine of a program runs: inside it, or as a process beside it (decision 59).
//!
//! An engine process wants a processor of its own. Where none is free, the program's own threads move its packets with less
//! effort. Some programs and flags need the process all the same; here it is said which, and why.

use std::{fs, path::Path, thread};

use clap::ValueEnum;
use elf::{Service, Symbols};

use super::{
    Arguments, Supervise,
    engine::{self, Existing},
};
use crate::commands::engine::arguments::DriverName;

/// Where the engine shall run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineMode {
    /// Inside the program where no processor is free for an engine and nothing speaks against it, else beside it.
    Auto,
    /// Inside the program: its waiting threads move the packets themselves. Needs an address of its own. Children
    /// attach to it; a guard process resets the connections of a program that a signal kills.
    Inline,
    /// A process beside the program.
    Process,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Inside the program.
    pub is_inline: bool,
    /// Why, as `shunt status` and `shunt doctor` say it.
    pub because: String,
}

impl Choice {
    fn inline(because: impl Into<String>) -> Self {
        Self {
            is_inline: true,
            because: because.into(),
        }
    }

    fn process(because: impl Into<String>) -> Self {
        Self {
            is_inline: false,
            because: because.into(),
        }
    }

    /// As on the command line.
    pub fn name(&self) -> &'static str {
        if self.is_inline { "inline" } else { "process" }
    }
}

/// Programs that do nothing but start others, each of which would want an engine.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ksh", "zsh", "fish", "busybox"];

/// Programs that fetch large files, and end. Of what they receive an engine beside them makes one copy on its own processor while they make the next,
/// and it is there before their first connection (docs/performance.md).
const FETCHERS: [&str; 2] = ["curl", "wget"];
/// Programs whose files name everything that a program could call; what is called, the script says.
const INTERPRETERS: [&str; 7] = ["python", "perl", "ruby", "node", "php", "mono", "java"];
/// Calls by which a program gives up privileges; an engine inside it needs them for the device, with its first socket.
const GIVE_UP: [&str; 2] = ["capset", "cap_set_proc"];
/// Those that give them up by changing the user, where there is another.
const CHANGE_USER: [&str; 4] = ["setuid", "seteuid", "setreuid", "setresuid"];
/// See capabilities(7).
const CAP_SETUID: u32 = 7;

/// A processor for the program, and one for the engine.
const NEEDED: f64 = 2.0;
/// So few are never free: what the program's peers and the kernel do needs one as well.
const FEW: usize = 2;

/// Chooses for the file that the kernel will load, and that is about to start or only asked about.
pub fn choose(
    arguments: &Arguments,
    way: Service,
    file: &Path,
    is_about_to_start: bool,
) -> anyhow::Result<Choice> {
    match arguments.engine_mode {
        EngineMode::Inline => return Ok(Choice::inline("--engine-mode asks for it")),
        EngineMode::Process => return Ok(Choice::process("--engine-mode asks for it")),
        EngineMode::Auto => {}
    }
    if let Some(because) = against(arguments, way, file) {
        return Ok(Choice::process(because));
    }
    match engine::existing(&arguments.own_engine, is_about_to_start)? {
        Existing::Serves(name) => return Ok(Choice::process(format!("{name} serves already"))),
        Existing::Shares => {
            return Ok(Choice::process(
                "only an engine process shares the kernel's addresses",
            ));
        }
        Existing::None => {}
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    Ok(by_name(file, processors)
        .unwrap_or_else(|| by_processors(processors, observe::load_average())))
}

/// What is chosen for a program that fetches, where there are two processors.
fn by_name(file: &Path, processors: usize) -> Option<Choice> {
    let name = file.file_name()?.to_str()?;
    (processors > 1 && FETCHERS.contains(&name))
        .then(|| Choice::process("it fetches files, which two processors copy faster than one"))
}

/// Why the engine cannot be inside the program, or had better not be.
fn against(arguments: &Arguments, way: Service, file: &Path) -> Option<&'static str> {
    let driver = arguments.own_engine.driver();
    let supervised = matches!(arguments.supervise, Supervise::Always | Supervise::Only);
    let reasons = [
        (
            supervised || way != Service::Preload,
            "a supervisor serves the program",
        ),
        (!arguments.engine.is_empty(), "--engine names it"),
        (
            arguments.loopback,
            "--loopback joins programs on one engine",
        ),
        (
            arguments.notify.is_some(),
            "--notify is for an engine process",
        ),
        (
            matches!(driver, Some(DriverName::Tap | DriverName::Dpdk)),
            "its driver does not work inside programs",
        ),
    ];
    let of_flags = reasons.into_iter().find(|(applies, _)| *applies);
    of_flags
        .map(|(_, because)| because)
        .or_else(|| against_file(file))
}

/// The same of a program file.
fn against_file(file: &Path) -> Option<&'static str> {
    let file = file.canonicalize().ok()?;
    let name = file.file_name()?.to_str()?;
    if SHELLS.contains(&name) {
        return Some("a shell starts other programs, which share it");
    }
    let is_interpreter = INTERPRETERS.iter().any(|one| name.starts_with(one));
    let symbols = if is_interpreter {
        Symbols::default()
    } else {
        Symbols::of(&file)
    };
    let gives_up =
        symbols.name_any(&GIVE_UP) || symbols.name_any(&CHANGE_USER) && can_change_user();
    gives_up.then_some("the program can give up what an engine inside it needs (setuid, capset)")
}

/// Whether a program that is started here could become another user.
fn can_change_user() -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (status, map) = (read("/proc/self/status"), read("/proc/self/uid_map"));
    is_privileged(&status, CAP_SETUID) && users(&map) > 1
}

/// Whether /proc/self/status shows a capability.
fn is_privileged(status: &str, capability: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    set.is_some_and(|set| set >> capability & 1 == 1)
}

/// How many users a map of user_namespaces(7) has.
fn users(map: &str) -> u64 {
    let lengths = map
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(2));
    lengths
        .filter_map(|length| length.parse::<u64>().ok())
        .sum()
}

fn by_processors(processors: usize, load: Option<f64>) -> Choice {
    let plural = if processors == 1 { "" } else { "s" };
    if processors <= FEW {
        return Choice::inline(format!(
            "{processors} processor{plural}: none is free for an engine"
        ));
    }
    let load = load.unwrap_or_default();
    // A machine has fewer processors than there are numbers that an f64 tells apart.
    let free = u32::try_from(processors).map_or(f64::from(u32::MAX), f64::from) - load;
    if free < NEEDED {
        Choice::inline(format!(
            "load {load:.1} on {processors} processors: none is free for an engine"
        ))
    } else {
        Choice::process(format!(
            "load {load:.1} on {processors} processors: one is free for an engine"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_a_namespace_with_one_user_cannot_become_another() {
        assert_eq!(users("         0       1000          1\n"), 1);
        assert_eq!(users("0 0 4294967295\n"), 4_294_967_295);
        assert_eq!(users("0 1000 1\n1 100000 65536\n"), 65_537);
        let status = "Name:\tx\nCapEff:\t0000000000000080\nCapBnd:\t000001ffffffffff\n";
        assert!(is_privileged(status, CAP_SETUID) && !is_privileged(status, CAP_SETUID + 1));
        assert!(!is_privileged("", CAP_SETUID));
    }

    #[test]
    fn who_fetches_has_an_engine_beside_it_on_two_processors() {
        for (file, processors, is_process) in [
            ("/usr/bin/curl", 2, true),
            ("/usr/bin/wget", 8, true),
            ("/usr/bin/curl", 1, false),
            ("/usr/bin/redis-server", 2, false),
            ("/", 2, false),
        ] {
            let choice = by_name(Path::new(file), processors);
            assert_eq!(
                choice.is_some_and(|choice| !choice.is_inline),
                is_process,
                "{file} {processors}"
            );
        }
    }

    #[test]
    fn an_engine_gets_a_process_where_a_processor_is_free_for_it() {
        for (processors, load, is_inline) in [
            (1, None, true),
            (2, Some(0.0), true),
            (3, Some(0.9), false),
            (3, Some(1.1), true),
            (8, Some(5.9), false),
            (8, Some(6.5), true),
            (64, None, false),
        ] {
            let choice = by_processors(processors, load);
            assert_eq!(choice.is_inline, is_inline, "{processors} {load:?}");
            assert!(choice.because.contains(&processors.to_string()));
        }
    }
}
