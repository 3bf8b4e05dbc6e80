//! `shunt ui`: the web page.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Args;
use dash::{Server, Settings};
use inspect::{engines::Which, top::live::Live};

/// Serve a web page on this machine: the engines that run, live, and the simulator, to see and to try
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt ui                                    then open the address that it prints
  shunt ui --listen 127.0.0.1:0               any port that is free
  shunt ui --all                              engines of every network namespace of this host
  ssh -L 7480:127.0.0.1:7480 HOST shunt ui    the page of another machine

The address has a token: whoever has it can use the page. Ends with Ctrl-C.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7480")]
    listen: SocketAddr,
    /// Let every user of this machine open the page; loopback addresses only
    #[arg(long)]
    no_token: bool,
}

/// Runs the command.
pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        listen: arguments.listen,
        token: !arguments.no_token,
    };
    let live = Live::new(arguments.which);
    let server = Server::bind(settings, Arc::new(move || live.look()))?;
    output::print(&format!("{}\n", server.url()))?;
    note!("shunt ui: open the address above; Ctrl-C ends it");
    if server.is_exposed() {
        note!(
            "shunt ui: others can reach {}, and what goes over the network is not encrypted; prefer 127.0.0.1 \
             and ssh -L",
            arguments.listen
        );
    }
    server.serve_until_signal().context("serving the page")?;
    Ok(ExitCode::SUCCESS)
}
