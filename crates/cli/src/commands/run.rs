//! `shunt run`: starts an unmodified program on Shunt, in place of this process.
//!
//! It looks which way the program file gets, finds the preload library and an engine, starts a supervisor where
//! the program needs one, and executes. What library and supervisor then do with each socket is their business.

mod engine;
mod library;
pub mod mode;

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, bail};
use clap::{Args, FromArgMatches as _, ValueEnum};
use client::engines::Placement;
use elf::Service;
use hostif::{BINARY_VARIABLE, LIBRARY_VARIABLE, Moderation, POLICY_VARIABLE, REQUIRE_VARIABLE};
use mode::{Choice, EngineMode};

/// Longest spin that can be asked for: one second.
const MAX_SPIN_US: u64 = 1_000_000;
const SPIN_AUTO: &str = "auto";

/// Run an unmodified program on Shunt; pid and exit status are the program's own.
///
/// The program's sockets go to the engine where the engine owns the address, and to the kernel
/// otherwise. Programs into which no library can be preloaded (static ones, Go's, musl's) are served by a
/// supervisor that hears of their system calls; `shunt doctor FILE` tells which way a program gets.
///
/// Where no engine runs, one is started for this program and ends some seconds after it: sharing the
/// kernel's addresses on the interface of the default route or on --nic, or with addresses of its own by
/// --address or in a lab, whose hosts name both in SHUNT_NIC and SHUNT_ADDRESS. Programs that are started
/// with the same interface or address use one engine. With an address of its own and no processor to spare the engine
/// runs inside the program: see --engine-mode.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt run -- nginx -g 'daemon off;'
  shunt run --nic eth0 --address 10.0.0.5/24 -- redis-server --bind 10.0.0.5
  shunt run --engine @shunt/second -- redis-server --bind 10.77.0.11
  shunt run --engine @shunt/engine --engine @shunt/second -- nginx     a process on two engines
  shunt run --engine-mode inline --nic eth0 --address 10.0.0.5/24 -- redis-server --bind 10.0.0.5
  shunt lab exec a -- shunt run --engine-mode inline --spin-us 200 -- sockperf server --tcp -i 10.77.0.11
  shunt run --loopback -- redis-server --bind 127.0.0.1      and its clients so too: what they say stays on the engine
  shunt run --nic lo --loopback -- redis-server     programs of one host, without any other interface
  shunt run --policy kernel-only -- curl http://10.77.0.2/     the kernel's path, same library
  shunt lab exec a -- shunt run -- python3 -m http.server --bind 10.77.0.11

Exit status: the program's own; 2 where it could not be started.")]
pub struct Arguments {
    /// Which sockets may leave the kernel.
    #[arg(long, value_enum, default_value = "auto")]
    policy: Policy,
    /// Control socket of the engine: @NAME (abstract) or a path. Repeatable: a program may use several, each
    /// for its own addresses and what its routes lead to, the first before the others; UDP uses the first
    /// alone [default: $SHUNT_ENGINE, else @shunt/engine].
    #[arg(long, value_name = "ADDRESS")]
    engine: Vec<OsString>,
    /// Which of several engines gets a connection that all of them could carry: priority (the first),
    /// round-robin, least-load (where the process has the fewest sockets) or flow-hash (by addresses and ports)
    /// [default: $SHUNT_PLACEMENT, else priority].
    #[arg(long, value_name = "HOW", requires = "engine", value_parser = parse_placement)]
    placement: Option<&'static str>,
    #[command(flatten)]
    own_engine: engine::Wanted,
    /// Loopback (127.0.0.0/8, ::1) on the engine too, among the programs that are run so on it. Their sockets hear
    /// the kernel's loopback as well, and what no socket on the engine hears goes there.
    #[arg(long)]
    loopback: bool,
    /// Where the engine runs, if none serves yet; `shunt status` says what was chosen and why.
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    engine_mode: EngineMode,
    /// With an engine inside the program: how long a thread that waits spins before it sleeps, in microseconds, or auto:
    /// up to 50, as long as that pays.
    #[arg(long, value_name = "US", default_value = SPIN_AUTO, value_parser = parse_spin)]
    spin_us: String,
    /// How often the engine wakes the program while it sleeps: each (at once, at every event), every=N[,us=T]
    /// (at every Nth, or T microseconds after the first that waits), full[,us=T] (when no more fit) [default:
    /// each; T 1000].
    #[arg(long, value_name = "POLICY", value_parser = parse_notify)]
    notify: Option<Moderation>,
    /// Preload this library instead of the one inside shunt; with --engine-mode inline one that has an engine in it.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Whether a supervisor hears of the program's own system calls: auto (where the file shows that it makes
    /// them), always, never, or only: in place of the library, for programs that hand open connections on by
    /// executing another program (sshd, inetd).
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    supervise: Supervise,
    /// The name that the program is called by, where that is not the first word of CMD.
    #[arg(long, value_name = "NAME", hide = true)]
    name: Option<OsString>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Arguments {
    /// Refuses flags that contradict each other.
    fn check(&self) -> anyhow::Result<()> {
        let conflicts = match self.engine_mode {
            EngineMode::Inline => [
                ("--engine", !self.engine.is_empty()),
                ("--notify", self.notify.is_some()),
            ],
            EngineMode::Process => [("--spin-us", self.spin_us != SPIN_AUTO), ("", false)],
            EngineMode::Auto => [("", false); 2],
        };
        if let Some((flag, _)) = conflicts.into_iter().find(|(_, is_asked)| *is_asked) {
            bail!("{flag} and this --engine-mode cannot be used together: leave out one of them");
        }
        Ok(())
    }
}

/// Which sockets may leave the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Each socket goes to the stack that owns its address.
    Auto,
    /// Every socket stays with the kernel.
    KernelOnly,
    /// What the engine cannot take fails instead of going to the kernel; loopback is the kernel's all the same.
    EngineOnly,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::KernelOnly => "kernel-only",
            Self::EngineOnly => "engine-only",
        }
    }
}

/// When a program is supervised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Supervise {
    /// Where its file shows that it makes socket calls itself.
    Auto,
    /// In any case.
    Always,
    /// In any case, and no library is preloaded.
    Only,
    /// Not even then; a program into which nothing can be preloaded is refused.
    Never,
}

fn parse_spin(text: &str) -> Result<String, String> {
    match text.parse::<u64>() {
        Ok(us) if us <= MAX_SPIN_US => Ok(text.to_owned()),
        _ if text == SPIN_AUTO => Ok(text.to_owned()),
        _ => Err(format!("give a number up to {MAX_SPIN_US}, or auto")),
    }
}

fn parse_placement(text: &str) -> Result<&'static str, String> {
    let names = Placement::ALL.map(|(name, _)| name);
    let known = names.into_iter().find(|name| *name == text);
    known.ok_or_else(|| format!("give one of {}", names.join(", ")))
}

fn parse_notify(text: &str) -> Result<Moderation, String> {
    let wrong = "give each, full[,us=T] or every=N[,us=T], N from 1, T to a second";
    Moderation::parse(text).ok_or_else(|| wrong.to_owned())
}

pub fn execute(mut arguments: Arguments) -> anyhow::Result<ExitCode> {
    arguments.check()?;
    arguments.own_engine.inherit()?;
    let Some((program, rest)) = arguments.command.split_first() else {
        bail!("no program given: shunt run -- CMD");
    };
    let file = find_program(program)?;
    let loaded = elf::inspect(&file)?;
    let way = match loaded.way {
        // This binary asks the system itself too, but makes its sockets by libc.
        Service::Both(_) | Service::Supervise(_) if is_own(&file) => Service::Preload,
        way => way,
    };
    let choice = if arguments.policy == Policy::KernelOnly {
        None
    } else {
        Some(mode::choose(&arguments, way, &loaded.file, true)?)
    };
    let is_inline = choice.as_ref().is_some_and(|choice| choice.is_inline);
    let supervised = is_supervised(&arguments, is_inline, way, &file)?;

    let mut command = Command::new(&file);
    // Scripts and multi-call programs look at the name they were called by.
    command.arg0(arguments.name.as_ref().unwrap_or(program));
    command.args(rest);
    if way.preloads() && arguments.supervise != Supervise::Only {
        let kind = library::Kind::of(is_inline);
        let library = library::locate(kind, arguments.library.as_deref())?;
        let list = preload_list(loaded.first.as_deref(), Some(&library))?;
        command
            .env("LD_PRELOAD", list)
            .env(LIBRARY_VARIABLE, library);
    } else {
        let list = preload_list(None, None)?;
        command.env("LD_PRELOAD", list).env(LIBRARY_VARIABLE, "");
    }
    command.env(POLICY_VARIABLE, arguments.policy.name());
    if let Ok(own) = env::current_exe() {
        command.env(BINARY_VARIABLE, own);
    }
    // Set either way: this may be a `shunt run` within another one of a different policy.
    command.env(
        REQUIRE_VARIABLE,
        if arguments.policy == Policy::EngineOnly {
            "1"
        } else {
            "0"
        },
    );
    match arguments.notify {
        Some(policy) => command.env(hostif::NOTIFY_VARIABLE, policy.to_string()),
        None => command.env_remove(hostif::NOTIFY_VARIABLE),
    };
    // An outer `shunt run` may have been another kind.
    command.env(
        hostif::LOOPBACK_VARIABLE,
        u8::from(arguments.loopback).to_string(),
    );
    command.env_remove(hostif::INLINE_VARIABLE);
    if let Some(choice) = choice {
        lead_to_engine(&mut command, &choice, supervised, &arguments)?;
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", file.display()))
}

/// Where the engine of a program would run that is started here without flags.
pub fn usual_choice(loaded: &elf::Program) -> anyhow::Result<Choice> {
    let command = Arguments::augment_args(clap::Command::new("run"));
    let line = [OsStr::new("run"), OsStr::new("--"), loaded.file.as_os_str()];
    let arguments = Arguments::from_arg_matches(&command.try_get_matches_from(line)?)?;
    mode::choose(&arguments, loaded.way, &loaded.file, false)
}

/// Finds the program's engine, or has one started inside it, and puts the program under a supervisor where it needs one.
fn lead_to_engine(
    command: &mut Command,
    choice: &Choice,
    supervised: bool,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    if choice.is_inline {
        let inline = engine::inside(&arguments.own_engine, &choice.because)?;
        command.env(hostif::ENGINE_VARIABLE, inline.name);
        command.env(hostif::INLINE_VARIABLE, inline.settings);
        command.env(hostif::SPIN_VARIABLE, &arguments.spin_us);
        return Ok(());
    }
    let engines = engine::find(&arguments.engine, &arguments.own_engine, &choice.because)?;
    let separator = hostif::ENGINE_SEPARATOR.to_string();
    command.env(hostif::ENGINE_VARIABLE, engines.join(&separator));
    if let Some(placement) = arguments.placement {
        command.env(hostif::PLACEMENT_VARIABLE, placement);
    }
    if supervised {
        start_supervisor(engines, arguments)?;
    }
    Ok(())
}

/// Whether a file is this binary.
fn is_own(file: &Path) -> bool {
    let own = env::current_exe().and_then(|own| own.canonicalize());
    own.is_ok_and(|own| file.canonicalize().is_ok_and(|file| file == own))
}

/// Whether a supervisor is needed, or wanted; refuses what cannot be.
fn is_supervised(
    arguments: &Arguments,
    is_inline: bool,
    way: Service,
    file: &Path,
) -> anyhow::Result<bool> {
    let reason = match way {
        // On the kernel alone there is nothing to do for anybody.
        _ if arguments.policy == Policy::KernelOnly => return Ok(false),
        Service::Supervise(reason) if arguments.supervise == Supervise::Never => bail!(
            "{} can only be supervised, which --supervise never forbids: {reason}",
            file.display()
        ),
        Service::Supervise(reason) => reason,
        Service::Both(reason) if is_inline || arguments.supervise == Supervise::Never => {
            let flag = if is_inline {
                "--engine-mode inline"
            } else {
                "--supervise never"
            };
            note!(
                "{}: {reason}. Those calls are the kernel's here; without {flag} a supervisor serves them too",
                file.display()
            );
            return Ok(false);
        }
        Service::Preload if arguments.supervise == Supervise::Never => return Ok(false),
        Service::Both(reason) => reason,
        Service::Preload if arguments.supervise == Supervise::Auto => return Ok(false),
        Service::Preload => "--supervise asks for a supervisor",
    };
    if is_inline {
        bail!(
            "{} cannot have the engine inside it: {reason}. Leave out --engine-mode: a supervisor connects it to an engine",
            file.display()
        );
    }
    Ok(true)
}

/// Puts this process, and so the program, under a supervisor of its own. A `shunt run` within another one uses
/// the outer one's.
fn start_supervisor(engines: Vec<String>, arguments: &Arguments) -> anyhow::Result<()> {
    let settings = supervise::Settings {
        engines,
        placement: arguments.placement.map_or_else(Placement::wanted, |name| {
            Placement::parse(name).unwrap_or_default()
        }),
        engine_only: arguments.policy == Policy::EngineOnly,
        loopback: arguments.loopback,
    };
    supervise::start(settings)?;
    Ok(())
}

/// Looks the program up as execvp(3) does.
fn find_program(program: &OsStr) -> anyhow::Result<PathBuf> {
    let executable = |path: &Path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        if !executable(&path) {
            bail!("{} is not an executable file", path.display());
        }
        return Ok(path);
    }
    let search = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found = env::split_paths(&search)
        .map(|directory| directory.join(program))
        .find(|path| executable(path));
    found.with_context(|| {
        format!(
            "{}: no such program in PATH; install it, or give its path",
            program.to_string_lossy()
        )
    })
}

/// The value of LD_PRELOAD: our library first, so that it sees calls before other libraries do, but for one that insists on that place;
/// or not at all.
fn preload_list(first: Option<&str>, library: Option<&Path>) -> anyhow::Result<OsString> {
    let own = library.map_or(OsStr::new(""), Path::as_os_str);
    // ld.so(8) splits the list at blanks and colons and knows no quoting.
    if own
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':'))
    {
        bail!(
            "the library's path {} holds a blank or colon, which LD_PRELOAD cannot express; move it, or set XDG_CACHE_HOME",
            own.display()
        );
    }
    let existing = env::var_os("LD_PRELOAD").unwrap_or_default();
    let others = existing
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'))
        // A nested `shunt run` finds the library in the list already.
        .filter(|other| {
            !other.is_empty() && !library::is_ours(Path::new(OsStr::from_bytes(other)))
        });
    let all: Vec<&[u8]> = [first.unwrap_or_default().as_bytes(), own.as_bytes()]
        .into_iter()
        .filter(|own| !own.is_empty())
        .chain(others)
        .collect();
    Ok(OsString::from_vec(all.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_path_that_the_loader_would_split_is_refused() {
        assert!(preload_list(None, Some(Path::new("/home/a b/libshunt.so"))).is_err());
        assert!(preload_list(None, Some(Path::new("/home/a:b/libshunt.so"))).is_err());
    }

    #[test]
    fn a_library_that_insists_on_the_first_place_has_it() {
        let list = preload_list(Some("libasan.so.8"), Some(Path::new("/a/libshunt.so"))).unwrap();
        assert!(list.as_bytes().starts_with(b"libasan.so.8:/a/libshunt.so"));
    }

    #[test]
    fn a_placement_has_one_of_four_names() {
        assert_eq!(parse_placement("round-robin"), Ok("round-robin"));
        assert!(parse_placement("best").unwrap_err().contains("flow-hash"));
    }

    #[test]
    fn a_spin_is_a_number_of_microseconds_or_auto() {
        assert_eq!(parse_spin("0").unwrap(), "0");
        assert_eq!(parse_spin("auto").unwrap(), "auto");
        assert!(parse_spin("2000000").unwrap_err().contains("1000000"));
        assert!(parse_spin("soon").unwrap_err().contains("auto"));
    }

    #[test]
    fn programs_are_found_in_the_path_and_by_path() {
        assert!(find_program(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(
            find_program(OsStr::new("/bin/sh")).unwrap(),
            Path::new("/bin/sh")
        );
        assert!(find_program(OsStr::new("/etc/passwd")).is_err());
        assert!(find_program(OsStr::new("no-such-program-anywhere")).is_err());
    }
}
