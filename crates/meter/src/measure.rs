//! One measurement in this process: opens the probe, runs the session, puts the report together.

use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    clock::Clock,
    environment::{Environment, Interface},
    probe::{
        Kind, Probe,
        datagram::HeaderOptions,
        frames::{FrameWay, Frames, HEADER_BYTES as FRAME_HEADER_BYTES},
        icmp::Icmp,
        message::{HEADER_BYTES, Message},
        tcp_connect::TcpConnect,
        tcp_echo::TcpEcho,
        udp::Udp,
    },
    report::{Report, Subject},
    session::{Outcome, Plan, Progress, Session},
    sys, target,
};

/// Where probes go.
#[derive(Debug, Clone)]
pub enum Way {
    /// To a host; the port is not used by ICMP.
    Host {
        name: String,
        /// Its address, with the port of UDP or TCP.
        at: SocketAddr,
    },
    Frames(FrameWay),
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Request {
    pub kind: Kind,
    /// Where probes go.
    pub way: Way,
    /// Payload of a probe.
    pub payload_bytes: usize,
    /// Of the IP header.
    pub options: HeaderOptions,
    /// When probes are sent.
    pub plan: Plan,
    /// Whose stack this process uses.
    pub stack: String,
    /// Keep round trips one by one.
    pub keep_samples: bool,
}

/// A report with what it does not hold.
#[derive(Debug)]
pub struct Measured {
    pub report: Report,
    pub outcome: Outcome,
}

impl Request {
    /// Checks the size.
    pub fn check_size(&self) -> anyhow::Result<()> {
        let bytes = self.payload_bytes;
        let (least, most) = match self.kind {
            Kind::Icmp | Kind::Udp => (HEADER_BYTES, 65_507),
            Kind::Tcp => (1, 1 << 20),
            Kind::Connect => return Ok(()),
            Kind::Raw => (HEADER_BYTES, 65_536 - FRAME_HEADER_BYTES),
        };
        let kind = self.kind.name();
        ensure!(
            (least..=most).contains(&bytes),
            "--size: {bytes} bytes do not fit {kind}: {least} to {most} do (the first {HEADER_BYTES} tell probes apart)"
        );
        Ok(())
    }

    pub fn open(&self) -> anyhow::Result<Box<dyn Probe>> {
        let run = run_number()?;
        let message = Message::new(run, self.payload_bytes);
        let options = self.options;
        Ok(match (&self.way, self.kind) {
            (Way::Frames(way), _) => Box::new(Frames::open(way, message)?),
            (Way::Host { name, at }, kind) => {
                let identifier = u16::try_from(run & 0xffff).unwrap_or(0);
                let opened: io::Result<Box<dyn Probe>> = match kind {
                    Kind::Icmp => Icmp::open(*at, message, identifier, options)
                        .map(|probe| Box::new(probe) as _),
                    Kind::Udp => Udp::open(*at, message, options).map(|probe| Box::new(probe) as _),
                    Kind::Connect => Ok(Box::new(TcpConnect::new(*at, options))),
                    Kind::Tcp | Kind::Raw => {
                        TcpEcho::connect(*at, message, options, self.plan.timeout)
                            .map(|probe| Box::new(probe) as _)
                    }
                };
                opened.with_context(|| match kind {
                    Kind::Tcp => format!(
                        "connecting to {name} ({at}): is an echo there? `shunt echo` is one"
                    ),
                    _ => format!("{} to {name}", kind.title()),
                })?
            }
        })
    }

    /// Measures.
    ///
    /// # Errors
    /// The probe cannot be opened. What goes wrong later is in the report.
    pub fn measure(
        &self,
        clock: &Clock,
        stop: &AtomicBool,
        show: bool,
    ) -> anyhow::Result<Measured> {
        let outcome = match self.open() {
            Ok(mut probe) => self.run(probe.as_mut(), clock, stop, show),
            // Whoever does not let this connect was measured.
            Err(error) if self.kind == Kind::Tcp && is_peers_answer(&error) => Outcome {
                ended_early: Some(format!("{error:#}")),
                ..Outcome::default()
            },
            Err(error) => return Err(error),
        };
        let report = Report::of(
            self.subject(),
            &self.plan,
            &outcome,
            self.environment(clock),
        );
        Ok(Measured { report, outcome })
    }

    fn run(&self, probe: &mut dyn Probe, clock: &Clock, stop: &AtomicBool, show: bool) -> Outcome {
        let progress = Progress::default();
        with_live_line(&progress, show, || {
            Session::new(self.plan, clock, &progress, self.keep_samples).run(probe, stop)
        })
    }

    /// Where it is measured.
    pub fn environment(&self, clock: &Clock) -> Environment {
        let interface = match &self.way {
            Way::Host { at, .. } => Interface::towards(*at),
            Way::Frames(way) => Some(Interface::read(&way.interface)),
        };
        Environment::read(clock.report(), interface, sys::is_scheduled_first())
    }

    /// Whom it asks.
    pub fn subject(&self) -> Subject {
        let (target, address, port) = match &self.way {
            Way::Host { name, at } => {
                let port = (self.kind != Kind::Icmp).then_some(at.port());
                (name.clone(), Some(at.ip()), port)
            }
            Way::Frames(FrameWay { interface, to, .. }) => (
                format!("{} by {interface}", target::hardware_name(*to)),
                None,
                None,
            ),
        };
        Subject {
            kind: self.kind,
            target,
            address,
            port,
            payload_bytes: if self.kind == Kind::Connect {
                0
            } else {
                self.payload_bytes
            },
            stack: self.stack.clone(),
        }
    }
}

/// Whether an error of connect(2) says something of the peer or the way to it, and not of this host.
fn is_peers_answer(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let kinds = [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::TimedOut,
        io::ErrorKind::HostUnreachable,
        io::ErrorKind::NetworkUnreachable,
    ];
    kind.is_some_and(|kind| kinds.contains(&kind))
}

/// A number that no other run has.
fn run_number() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes, flags).context("asking for a random number")?;
    Ok(u64::from_ne_bytes(bytes))
}

/// How often the live line changes.
const LIVE: Duration = Duration::from_millis(250);

/// Runs something, with a line on a terminal that says how far it is.
fn with_live_line<T>(progress: &Progress, show: bool, run: impl FnOnce() -> T) -> T {
    if !show || !io::stderr().is_terminal() {
        return run();
    }
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut shown = false;
            while ended.recv_timeout(LIVE) == Err(RecvTimeoutError::Timeout) {
                let (sent, received) = (
                    progress.sent.load(Ordering::Relaxed),
                    progress.received.load(Ordering::Relaxed),
                );
                let last_us = progress.last_ns.load(Ordering::Relaxed) as f64 / 1e3;
                progress!("\r{sent} sent, {received} received, last {last_us:.1} µs\x1b[K");
                shown = true;
            }
            if shown {
                progress!("\r\x1b[K");
            }
        });
        let result = run();
        drop(end);
        result
    })
}

/// Puts the calling thread on a processor.
pub fn pin(cpu: usize) -> anyhow::Result<()> {
    let allowed = sched_getaffinity(None).context("reading this thread's processors")?;
    ensure!(
        cpu < CpuSet::MAX_CPU && allowed.is_set(cpu),
        "--cpu: processor {cpu} is none of those on which this program may run; taskset -p $$ lists them"
    );
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).with_context(|| format!("--cpu: moving to processor {cpu}"))
}

/// The last processor that this process may use: the first one serves most interrupts.
pub fn last_cpu() -> anyhow::Result<usize> {
    let allowed = sched_getaffinity(None).context("reading this thread's processors")?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu));
    last.context("this thread may use no processor")
}

/// Lets nothing but the kernel and real-time threads stand before the calling thread, and keeps its memory.
pub fn be_real_time() -> anyhow::Result<()> {
    sys::lock_memory().context(
        "--rt: locking memory needs CAP_IPC_LOCK or a larger `ulimit -l`; run this as root",
    )?;
    sys::schedule_first()
        .context("--rt: SCHED_FIFO needs CAP_SYS_NICE or `ulimit -r 1`; run this as root")
}
