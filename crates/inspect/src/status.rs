//! `shunt status`: what each engine says about itself, all its cores together.

pub mod merge;
mod text;

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use hostif::control::QueryKind;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    control::Channel,
    engines::{
        Found, Which,
        answer::{Silent, ask_each, namespace_of},
    },
    explain::process::Process,
    figures::programs::with_outside,
};
use output::{print, print_json};

/// Show the engines that run: devices, programs, counters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt status
  shunt status --all
  shunt status --json | jq .stack_counters
  shunt status --json | jq '.engines[] | {name, pid, connections}'

Exit status: 0 where an engine answered, 2 otherwise.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Print JSON: the fields of the first engine that answers, and all engines in `engines`.
    #[arg(long)]
    json: bool,
}

/// Runs `shunt status`.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let answers = ask_each(arguments.which.find()?, report);
    let answers = with_places(answers);
    if answers.iter().all(|(_, answer)| answer.is_err()) {
        let lines = answers
            .iter()
            .filter_map(|(found, answer)| Some(answer.as_ref().err()?.line(found)));
        bail!(
            "{}\n{}",
            lines.collect::<Vec<_>>().join("\n"),
            arguments.which.nobody()
        );
    }
    if arguments.json {
        print_json(&as_json(&answers))?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts = answers.iter().map(|(found, answer)| match answer {
        Ok(status) => text_of(found, status),
        Err(silent) => format!("{}\n", silent.line(found)),
    });
    print(&texts.collect::<Vec<_>>().join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Everything that an engine tells of itself but its sockets.
pub fn report(channels: &[Channel]) -> anyhow::Result<Value> {
    let ask = |kind| -> anyhow::Result<Vec<Value>> {
        channels.iter().map(|channel| channel.query(kind)).collect()
    };
    let programs = with_outside(merge::programs(&ask(QueryKind::Sessions)?));
    let mut status = merge::status(&ask(QueryKind::Status)?, &programs);
    let interfaces = channels
        .first()
        .map(|first| first.query(QueryKind::Interfaces));
    status["interfaces"] = interfaces.transpose()?.unwrap_or(Value::Null);
    status["attached"] = programs;
    Ok(status)
}

type Answers = Vec<(Found, Result<Value, Silent>)>;

/// Adds what the engines cannot know: where they are, and who is not with them.
fn with_places(mut answers: Answers) -> Answers {
    for (found, answer) in &mut answers {
        if let Ok(status) = answer {
            status["answers"] = true.into();
            status["namespace"] = namespace_of(found).into();
            status["outside"] = json!(outside(found));
        }
    }
    answers
}

fn as_json(answers: &Answers) -> Value {
    let one = |(found, answer): &(Found, Result<Value, Silent>)| match answer {
        Ok(status) => status.clone(),
        Err(silent) => silent.to_json(found),
    };
    let first = answers.iter().find_map(|(_, answer)| answer.as_ref().ok());
    let mut whole = first.cloned().unwrap_or_default();
    whole["engines"] = answers.iter().map(one).collect();
    whole
}

fn text_of(found: &Found, status: &Value) -> String {
    let mut text = text::status_text(status, &status["interfaces"], &status["attached"]);
    if let Some(namespace) = &found.namespace {
        text = format!("in {namespace}:\n{text}");
    }
    for one in status["outside"].as_array().into_iter().flatten() {
        text += &format!(
            "not on Shunt, though `shunt run` led to it: {} (process {}); its sockets are the kernel's\n",
            one["program"].as_str().unwrap_or_default(),
            one["pid"]
        );
    }
    text
}

/// A process that `shunt run` was to put on an engine, and that is not there.
#[derive(Serialize)]
struct Outside {
    pid: u32,
    program: String,
}

/// Those of an engine's network that may be looked at.
fn outside(engine: &Found) -> Vec<Outside> {
    let is_there = |process: &Process| {
        let namespace = process.namespace().ok();
        namespace.is_some_and(|namespace| namespace.map(|one| one.inode) == namespace_of(engine))
    };
    let is_outside = |pid: &u32| {
        Process::open(*pid)
            .is_ok_and(|process| process.is_outside(&engine.name) && is_there(&process))
    };
    let pids = observe::process::all().into_iter().filter(is_outside);
    let described = |pid| Outside {
        pid,
        program: observe::process::name(pid).unwrap_or_default(),
    };
    pids.map(described).collect()
}
