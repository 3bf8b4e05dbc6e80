//! `shunt ui`: the web page.

mod reports;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Args;
use dash::{Server, Settings, Sources};
use inspect::{engines::Which, top::live::Live};
use meter::stages::live;
use serde_json::{Value, json};

use reports::Folder;

/// Stages are told of what was noted since so long ago.
const WINDOW: Duration = Duration::from_secs(1);

/// Serve a web page on this machine: the engines that run, live, and the simulator, to see and to try
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt ui                                    then open the address that it prints
  shunt ui --listen 127.0.0.1:0               any port that is free
  shunt ui --all                              engines of every network namespace of this host
  shunt ui --reports results                  with what `--report` and `--save` wrote into that folder
  ssh -L 7480:127.0.0.1:7480 HOST shunt ui    the page of another machine

  mkdir /tmp/stages                           latency by stage, of an engine and its programs that note:
  SHUNT_STAGES=/tmp/stages shunt engine &
  SHUNT_STAGES=/tmp/stages shunt run -- ./server &
  shunt ui --stages /tmp/stages

The address has a token: whoever has it can use the page. Ends with Ctrl-C.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7480")]
    listen: SocketAddr,
    /// Show the results in this folder: pages of --report, files of `shunt ping --save`
    #[arg(long, value_name = "FOLDER")]
    reports: Option<PathBuf>,
    /// Show latency by stage of the engine and the programs that were started with SHUNT_STAGES=FOLDER
    #[arg(long, value_name = "FOLDER")]
    stages: Option<PathBuf>,
    /// Let every user of this machine open the page; loopback addresses only
    #[arg(long)]
    no_token: bool,
}

pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        listen: arguments.listen,
        token: !arguments.no_token,
    };
    let mut live = Live::new(arguments.which);
    if let Some(folder) = arguments.stages {
        live::look(&folder, WINDOW).with_context(|| format!("--stages {}", folder.display()))?;
        live = live.with("stages", move || stages(&folder));
    }
    let reports = arguments.reports.map(Folder::open).transpose()?;
    let sources = Sources {
        live: Arc::new(move || live.look()),
        reports: reports.map(|folder| Arc::new(folder) as Arc<dyn dash::Reports>),
    };
    let server = Server::bind(settings, sources)?;
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

fn stages(folder: &Path) -> Value {
    match live::look(folder, WINDOW) {
        Ok(found) => json!(found),
        Err(error) => json!({ "error": format!("{}: {error}", folder.display()) }),
    }
}
