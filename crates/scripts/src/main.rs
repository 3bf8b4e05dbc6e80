//! `scripts`: runs packet scripts; also the agent that it starts on the host under test.

use std::{
    io::Write as _,
    net::IpAddr,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use scripts::{
    agent::{self, Addresses},
    bench::{self, Tools},
    report::{self, Counts, Outcome, Verdict},
    script::{Family, Side},
    suite::{self, Plan},
};

/// Packet scripts against the kernel and against Shunt; docs/packet-scripts.md has the format.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scripts.
    Run(Run),
    /// Make the socket calls of a script; the commands come on standard input.
    #[command(hide = true)]
    Agent {
        #[arg(long)]
        host: IpAddr,
        #[arg(long)]
        port: u16,
        #[arg(long)]
        peer: IpAddr,
    },
    /// Open a packet socket and hand it over on standard input.
    #[command(hide = true)]
    PacketSocket,
}

#[derive(Debug, Args)]
struct Run {
    /// Only scripts whose name contains this; repeatable.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Which stack.
    #[arg(long, value_enum, default_value = "both")]
    side: Sides,
    /// Which version of IP.
    #[arg(long, value_enum, default_value = "both")]
    family: Families,
    /// Folder with the scripts.
    #[arg(long, value_name = "DIR", default_value_os_t = usual_folder())]
    folder: PathBuf,
    /// The shunt binary [default: beside this program].
    #[arg(long, value_name = "FILE")]
    shunt: Option<PathBuf>,
    /// Run only the slow scripts, those of `make long`.
    #[arg(long, conflicts_with = "all")]
    slow: bool,
    /// Run the slow scripts too.
    #[arg(long)]
    all: bool,
    /// How many run at once.
    #[arg(long, value_name = "N", default_value_t = suite::usual_workers())]
    workers: usize,
    /// Do not run a script again that failed.
    #[arg(long)]
    once: bool,
    /// Show also what the open ones do.
    #[arg(long)]
    show_open: bool,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sides {
    Kernel,
    Shunt,
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Families {
    Ip4,
    Ip6,
    Both,
}

fn usual_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Agent { host, port, peer } => {
            let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
            agent::serve(channel, Addresses { host, port, peer })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::PacketSocket => {
            bench::hand_over_packet_socket(std::io::stdin().as_fd())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run(arguments: &Run) -> anyhow::Result<ExitCode> {
    let sides = match arguments.side {
        Sides::Kernel => vec![Side::Kernel],
        Sides::Shunt => vec![Side::Shunt],
        Sides::Both => vec![Side::Kernel, Side::Shunt],
    };
    let families = match arguments.family {
        Families::Ip4 => vec![Family::Ip4],
        Families::Ip6 => vec![Family::Ip6],
        Families::Both => vec![Family::Ip4, Family::Ip6],
    };
    let own = std::env::current_exe().context("finding this program")?;
    let shunt = match &arguments.shunt {
        _ if !sides.contains(&Side::Shunt) => None,
        Some(file) => Some(file.clone()),
        None => Some(own.with_file_name("shunt")),
    };
    if let Some(file) = shunt.as_ref().filter(|file| !file.exists()) {
        bail!(
            "{} does not exist: build it with `cargo build -p cli`, or name one with --shunt",
            file.display()
        );
    }
    let scripts =
        suite::load(&arguments.folder).map_err(|errors| anyhow::anyhow!(errors.join("\n")))?;
    let plan = Plan {
        sides,
        families,
        filters: arguments.filter.clone(),
        slow: if arguments.all {
            None
        } else {
            Some(arguments.slow)
        },
        workers: arguments.workers,
        retry: !arguments.once,
    };
    let tools = Tools::new(own, shunt)?;
    let outcomes = suite::run(&scripts, &plan, &tools, |outcome| {
        if !arguments.json {
            show(outcome, arguments.show_open);
        }
    });
    if outcomes.is_empty() {
        bail!(
            "no script in {} has such a name",
            arguments.folder.display()
        );
    }
    let counts = Counts::of(&outcomes);
    let last = if arguments.json {
        format!("{:#}\n", report::json(&outcomes))
    } else {
        format!("{}\n", counts.line())
    };
    std::io::stdout().write_all(last.as_bytes())?;
    Ok(if counts.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn show(outcome: &Outcome, show_open: bool) {
    let is_open = matches!(outcome.verdict, Verdict::Open(..));
    let story = outcome
        .story()
        .filter(|_| show_open || !is_open)
        .unwrap_or_default();
    // A closed pipe ends the program at its last line.
    let _ = write!(std::io::stdout(), "{}\n{story}", outcome.line());
}
