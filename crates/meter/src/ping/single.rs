//! One measurement, printed.

use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::atomic::AtomicBool,
};

use anyhow::{Context, ensure};

use super::{Arguments, status};
use crate::{
    clock::Clock,
    environment::own_address,
    measure::{self, Request, Way},
    probe::{Kind, frames::FrameWay},
    report::{Report, csv, html},
    saved,
    served::Served,
    session::{SAMPLES_MAX, Sample},
    target,
};

pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let request = request(arguments)?;
    let clock = prepare(arguments)?;
    let measured = request.measure(&clock, stop, !arguments.json && !arguments.csv)?;
    let mut report = measured.report;
    tell_engine(arguments, &mut report);
    report.judge(&arguments.limit, arguments.max_loss);
    report.label.clone_from(&arguments.label);
    // What a file has no place for is printed all the same.
    print(arguments, &report)?;
    if let Some(file) = &arguments.samples {
        output::write_file("--samples", file, &samples_text(&measured.outcome.samples)?)?;
        let missing = report
            .counts
            .received
            .saturating_sub(measured.outcome.samples.len() as u64);
        if missing > 0 {
            note!(
                "--samples: the first {SAMPLES_MAX} round trips are in the file, {missing} are not"
            );
        }
    }
    if let Some(file) = &arguments.report {
        output::write_file("--report", file, &html::page(&report))?;
    }
    if let Some(file) = &arguments.save {
        saved::append(file, &report)?;
    }
    Ok(status(report.is_failure()))
}

fn print(arguments: &Arguments, report: &Report) -> anyhow::Result<()> {
    if arguments.json {
        output::print_json(report)
    } else if arguments.csv {
        output::print(&csv::text(std::slice::from_ref(report)))
    } else {
        output::print(&report.text(arguments.graph))
    }
}

/// What the flags ask for.
pub fn request(arguments: &Arguments) -> anyhow::Result<Request> {
    let request = Request {
        kind: arguments.kind(),
        way: way(arguments)?,
        payload_bytes: arguments.size,
        options: arguments.header_options(),
        plan: arguments.plan(),
        stack: stack(arguments),
        keep_samples: arguments.samples.is_some(),
    };
    request.check_size()?;
    Ok(request)
}

/// The clock, on the processor and with the priority that the flags ask for.
pub fn prepare(arguments: &Arguments) -> anyhow::Result<Clock> {
    match (arguments.cpu, arguments.rt) {
        (Some(cpu), _) => measure::pin(cpu)?,
        (None, true) => measure::pin(measure::last_cpu()?)?,
        (None, false) => {}
    }
    let clock = Clock::start();
    if arguments.rt {
        measure::be_real_time()?;
    }
    Ok(clock)
}

fn way(arguments: &Arguments) -> anyhow::Result<Way> {
    if arguments.kind() != Kind::Raw {
        let name = arguments
            .target
            .clone()
            .context("invariant: a host was named")?;
        let at = target::resolve(&name, arguments.port, arguments.family())?;
        return Ok(Way::Host { name, at });
    }
    let interface = arguments
        .nic
        .first()
        .context("--raw: which interface sends is missing: --nic IFACE")?;
    ensure!(
        arguments.nic.len() <= 2,
        "--nic: frames go from one interface to another, no further"
    );
    let from = target::port(interface)?;
    let back = arguments
        .nic
        .get(1)
        .map(|name| Ok::<_, anyhow::Error>((name.clone(), target::port(name)?)))
        .transpose()?;
    let to = match (&arguments.target, &back) {
        (Some(target), _) => target::hardware_address(target)?,
        (None, Some((_, port))) => port.address,
        (None, None) => anyhow::bail!(
            "--raw: whom to measure is missing: an Ethernet address, or a second interface"
        ),
    };
    Ok(Way::Frames(FrameWay {
        interface: interface.clone(),
        from,
        to,
        back,
        driver: arguments.driver,
    }))
}

/// Says which engine served this end. It is asked afterwards: one inside the program begins with the first socket.
fn tell_engine(arguments: &Arguments, report: &mut Report) {
    if !matches!(report.kind, Kind::Udp | Kind::Tcp | Kind::Connect) {
        return;
    }
    report.served = Served::of_this_process();
    if let (None, Some(served)) = (&arguments.stack, &report.served) {
        report.stack = served.name();
    }
    let is_own = |at: &IpAddr| own_address(SocketAddr::new(*at, arguments.port)) == Some(*at);
    let own = report.address.filter(is_own);
    // An address of the engine's is on no interface of the kernel's.
    if let (Some(at), Some(_), Some(_)) = (own, &report.served, &report.environment.interface) {
        report.warnings.push(format!(
            "{at} is an address of this host's own kernel: connections to it stay there unless the engine has it too; measure to another host"
        ));
    }
}

/// Whose stack this process uses, as far as it can know before it has a socket.
fn stack(arguments: &Arguments) -> String {
    let preloaded = || {
        std::env::var("LD_PRELOAD")
            .ok()
            .filter(|libraries| !libraries.is_empty())
    };
    match (&arguments.stack, preloaded()) {
        (Some(name), _) => name.clone(),
        (None, Some(_)) if matches!(arguments.kind(), Kind::Udp | Kind::Tcp | Kind::Connect) => {
            "a preloaded stack".to_owned()
        }
        _ => match arguments.driver {
            Some(driver) => format!("Shunt's driver {}", driver.name()),
            None => "the kernel".to_owned(),
        },
    }
}

fn samples_text(samples: &[Sample]) -> anyhow::Result<String> {
    let mut text = String::from("sequence,sent_ns,round_trip_ns\n");
    for sample in samples {
        writeln!(
            text,
            "{},{},{}",
            sample.sequence, sample.sent_ns, sample.round_trip_ns
        )?;
    }
    Ok(text)
}
