//! `shunt lab exec`: runs a program on a host, in place of this process.

use std::{ffi::OsString, os::unix::process::CommandExt, process::ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use lab::Lab;

use super::Name;

/// Run a program on a host of the lab; pid and exit status are the program's own.
///
/// The program finds in SHUNT_NIC and SHUNT_ADDRESS the interface and the free address for an engine on
/// that host: `shunt engine` and `shunt run` need no flags there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt lab exec a -- ip address
  shunt lab exec b -- curl http://10.77.0.1/
  shunt lab exec a --as-user -- nginx -c /etc/nginx/nginx.conf
  shunt lab exec a -- shunt run -- redis-server --bind 10.77.0.11   (starts an engine if none runs)
  shunt lab exec a -- shunt engine --background                     (one for all programs of host a)")]
pub struct Arguments {
    /// Name of the host.
    host: String,
    #[command(flatten)]
    name: Name,
    /// Run under an ordinary user id (1000) instead of root: without root, the host's root is only
    /// a mapped one, and programs that drop privileges, such as nginx, refuse it.
    #[arg(long)]
    as_user: bool,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let lab = Lab::open(&arguments.name.name)?;
    let host = lab.host(&arguments.host)?;
    let Some((program, rest)) = arguments.command.split_first() else {
        bail!("no program given: shunt lab exec {} -- CMD", arguments.host);
    };
    let mut command = host.detached_command(program, arguments.as_user)?;
    let error = command.args(rest).exec();
    Err(error).with_context(|| {
        format!(
            "cannot run {} on host {}",
            program.to_string_lossy(),
            arguments.host
        )
    })
}
