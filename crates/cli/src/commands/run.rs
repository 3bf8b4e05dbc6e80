//! `shunt run`: starts an unmodified program on Shunt, in place of this process.
//!
//! It finds the preload library, checks that the dynamic loader will honour it, finds an engine,
//! and executes. What the library then does with each socket is the shim's business.

mod elf;
mod engine;
mod library;

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use hostif::Moderation;

/// Environment variables by which the shim learns the policy, and that it must not fall back to the
/// kernel when the engine is gone.
const POLICY_VARIABLE: &str = "SHUNT_POLICY";
const REQUIRE_VARIABLE: &str = "SHUNT_REQUIRE";

/// Longest spin that can be asked for: one second.
const MAX_SPIN_US: u64 = 1_000_000;

/// Run an unmodified program on Shunt; pid and exit status are the program's own.
///
/// The program's sockets go to the engine where the engine owns the address, and to the kernel
/// otherwise. Programs the dynamic loader does not serve are refused with the reason.
///
/// Where no engine runs, one is started for this program and ends some seconds after it: sharing the
/// kernel's addresses on the interface of the default route or on --nic, or with addresses of its own by
/// --address or in a lab, whose hosts name both in SHUNT_NIC and SHUNT_ADDRESS. Programs that are started
/// with the same interface or address use one engine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt run -- nginx -g 'daemon off;'
  shunt run --nic eth0 --address 10.0.0.5/24 -- redis-server --bind 10.0.0.5
  shunt run --engine @shunt/second -- redis-server --bind 10.77.0.11
  shunt run --inline --nic eth0 --address 10.0.0.5/24 -- redis-server --bind 10.0.0.5
  shunt lab exec a -- shunt run --inline --spin-us 200 -- sockperf server --tcp -i 10.77.0.11
  shunt run --policy kernel-only -- curl http://10.77.0.2/     the kernel's path, same library
  shunt lab exec a -- shunt run -- python3 -m http.server --bind 10.77.0.11

Exit status: the program's own; 2 where it could not be started.")]
pub struct Arguments {
    /// Which sockets may leave the kernel.
    #[arg(long, value_enum, default_value = "auto")]
    policy: Policy,
    /// Control socket of the engine: @NAME (abstract) or a path [default: $SHUNT_ENGINE, else
    /// @shunt/engine].
    #[arg(long, value_name = "ADDRESS")]
    engine: Option<OsString>,
    #[command(flatten)]
    own_engine: engine::Wanted,
    /// Run the engine inside the program: its waiting threads move the packets themselves. The lowest
    /// latency, for one program that has the address to itself; driver af_packet. Children attach to it.
    /// The peers of a program that is killed by a signal hear nothing.
    #[arg(long, conflicts_with = "engine")]
    inline: bool,
    /// How long a thread that waits spins before it sleeps, in microseconds, or auto: up to 50, as long as
    /// that pays.
    #[arg(long, value_name = "US", requires = "inline", default_value = "auto", value_parser = parse_spin)]
    spin_us: String,
    /// How often the engine wakes the program while it sleeps: each (at once, at every event), every=N[,us=T]
    /// (at every Nth, or T microseconds after the first that waits), full[,us=T] (when no more fit) [default:
    /// each; T 1000].
    #[arg(long, value_name = "POLICY", conflicts_with = "inline", value_parser = parse_notify)]
    notify: Option<Moderation>,
    /// Preload this library instead of the one inside shunt.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Which sockets may leave the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Each socket goes to the stack that owns its address.
    Auto,
    /// Every socket stays with the kernel.
    KernelOnly,
    /// TCP that the engine cannot take fails instead of going to the kernel.
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

fn parse_spin(text: &str) -> Result<String, String> {
    match text.parse::<u64>() {
        Ok(us) if us <= MAX_SPIN_US => Ok(text.to_owned()),
        _ if text == "auto" => Ok(text.to_owned()),
        _ => Err(format!("give a number up to {MAX_SPIN_US}, or auto")),
    }
}

fn parse_notify(text: &str) -> Result<Moderation, String> {
    let wrong = "give each, full[,us=T] or every=N[,us=T], N from 1, T to a second";
    Moderation::parse(text).ok_or_else(|| wrong.to_owned())
}

/// Runs the command.
pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Some((program, rest)) = arguments.command.split_first() else {
        bail!("no program given: shunt run -- CMD");
    };
    let file = find_program(program)?;
    elf::check_preloadable(&file)?;
    let library = library::locate(arguments.library.as_deref())?;

    let mut command = Command::new(&file);
    // Scripts and multi-call programs look at the name they were called by.
    command.arg0(program).args(rest);
    command
        .env("LD_PRELOAD", preload_list(&library)?)
        .env(POLICY_VARIABLE, arguments.policy.name());
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
    command.env_remove(hostif::INLINE_VARIABLE);
    if arguments.inline {
        let inline = engine::inside(&arguments.own_engine)?;
        command.env(hostif::ENGINE_VARIABLE, inline.name);
        command.env(hostif::INLINE_VARIABLE, inline.settings);
        command.env(hostif::SPIN_VARIABLE, &arguments.spin_us);
    } else if arguments.policy != Policy::KernelOnly {
        let engine = engine::find(arguments.engine.as_deref(), &arguments.own_engine)?;
        command.env(hostif::ENGINE_VARIABLE, engine);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", file.display()))
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

/// The value of LD_PRELOAD: our library first, so that it sees calls before other libraries do.
fn preload_list(library: &Path) -> anyhow::Result<OsString> {
    // ld.so(8) splits the list at blanks and colons and knows no quoting.
    if library
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':'))
    {
        bail!(
            "the library's path {} holds a blank or colon, which LD_PRELOAD cannot express; move it, or set XDG_CACHE_HOME",
            library.display()
        );
    }
    let mut list = OsString::from(library);
    let existing = env::var_os("LD_PRELOAD").unwrap_or_default();
    let others = existing
        .as_bytes()
        .split(|byte| matches!(byte, b' ' | b':'));
    // A nested `shunt run` finds the library in the list already.
    for other in
        others.filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes())
    {
        list.push(":");
        list.push(OsStr::from_bytes(other));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_path_that_the_loader_would_split_is_refused() {
        assert!(preload_list(Path::new("/home/a b/libshunt.so")).is_err());
        assert!(preload_list(Path::new("/home/a:b/libshunt.so")).is_err());
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
