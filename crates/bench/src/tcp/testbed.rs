//! A testbed: two hosts on a bad cable, an engine on each, and on each stack a sender and a receiver
//! that stay for many transfers.
//!
//! It belongs to one thread: its programs end with it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::SocketAddrV4,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use lab::{Cable, Host, INTERFACE, Lab, LabSpec, Program, own_binary};
use load::{
    interrupt::Interrupt,
    transfer::{Order, Outcome},
};
use netem::{
    Impairment,
    join::{Control, Joined, Settings},
};

use super::grid::{Job, Stack};

/// How long an engine or a receiver may take to be ready.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How much longer than its own patience a sender may take to say that it gave up.
const GRACE: Duration = Duration::from_secs(5);
const PORT: u16 = 5000;
const SENDING: &str = "a";
const RECEIVING: &str = "b";

/// Kernel parameters of both hosts: windows for a gigabit over 100 ms with room to spare, and no
/// memory of earlier connections.
pub const PARAMETERS: [(&str, &str); 3] = [
    ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
    ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// How the engines are started: the same windows (the kernel counts its bookkeeping in, and so
/// has twice the figure), few connections, and no spinning that would take the peer's processor.
pub const ENGINE_FLAGS: [&str; 7] = [
    "--window-kib",
    "32768",
    "--max-connections",
    "64",
    "--spin-us",
    "0",
    "--allow-deep-idle",
];

/// Both hosts, the cable and all programs. Dropping it ends them.
pub struct Testbed {
    // Programs before the lab: fields are dropped in order.
    senders: BTreeMap<Stack, Sender>,
    receivers: Vec<Child>,
    engines: Vec<Program>,
    control: Control,
    cable: Option<JoinHandle<()>>,
    lab: Lab,
    interrupt: Interrupt,
}

/// A sender that waits for orders.
struct Sender {
    child: Child,
    orders: ChildStdin,
    outcomes: Receiver<String>,
}

impl Testbed {
    /// Builds everything; the engines get `more_flags`.
    pub fn create(name: &str, more_flags: &[&str], interrupt: &Interrupt) -> anyhow::Result<Self> {
        let spec = LabSpec {
            cable: Cable::Tap,
            ..LabSpec::default()
        };
        let mut lab = Lab::temporary(name, &spec)?;
        let taps = lab
            .take_taps()
            .context("invariant: a cable of TAPs has TAPs")?;
        let settings = Settings::both(Impairment::default(), 0);
        let mut joined = Joined::new(taps, settings).context("making an eventfd")?;
        let control = joined.control();
        let cable = thread::spawn(move || {
            if let Err(error) = joined.run() {
                note!("shunt: the cable: {error}");
            }
        });
        let mut testbed = Self {
            senders: BTreeMap::new(),
            receivers: Vec::new(),
            engines: Vec::new(),
            control,
            cable: Some(cable),
            lab,
            interrupt: interrupt.clone(),
        };
        testbed.start(more_flags)?;
        Ok(testbed)
    }

    fn start(&mut self, more_flags: &[&str]) -> anyhow::Result<()> {
        for host in self.lab.hosts() {
            for (name, value) in PARAMETERS {
                host.set_parameter(name, value)?;
            }
            let mut command = host.command(own_binary())?;
            let address = host.spec().engine_address.to_string();
            command.args(["engine", "--nic", INTERFACE, "--address", &address]);
            command.args(ENGINE_FLAGS);
            command.args(more_flags);
            self.engines.push(Program::start("shunt engine", command)?);
        }
        for engine in &mut self.engines {
            engine.wait_bound(hostif::DEFAULT_ENGINE_NAME, START_PATIENCE, || {
                self.interrupt.came()
            })?;
        }
        for stack in [Stack::Kernel, Stack::Shunt] {
            let receiver = self.start_receiver(stack)?;
            self.receivers.push(receiver);
            let sender = self.start_sender(stack)?;
            self.senders.insert(stack, sender);
        }
        let asking = self.lab.host(SENDING)?;
        for stack in [Stack::Kernel, Stack::Shunt] {
            asking.wait_connect(self.receiver_address(stack)?.into(), START_PATIENCE)?;
        }
        Ok(())
    }

    fn receiver_address(&self, stack: Stack) -> anyhow::Result<SocketAddrV4> {
        let spec = self.lab.host(RECEIVING)?.spec();
        let address = match stack {
            Stack::Kernel => spec.address.address,
            Stack::Shunt => spec.engine_address.address,
        };
        Ok(SocketAddrV4::new(address, PORT))
    }

    fn start_receiver(&self, stack: Stack) -> anyhow::Result<Child> {
        let mut command = command(self.lab.host(RECEIVING)?, stack)?;
        let address = self.receiver_address(stack)?.to_string();
        command.args(["load", "receive", "--listen", &address]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().context("starting a receiver")
    }

    fn start_sender(&self, stack: Stack) -> anyhow::Result<Sender> {
        let mut command = command(self.lab.host(SENDING)?, stack)?;
        command.args(["load", "send"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().context("starting a sender")?;
        let orders = child.stdin.take().context("invariant: stdin is a pipe")?;
        let answers = child.stdout.take().context("invariant: stdout is a pipe")?;
        let (lines, outcomes) = channel();
        thread::spawn(move || {
            // Ends with the sender, or with the testbed that nobody reads any more.
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Sender {
            child,
            orders,
            outcomes,
        })
    }

    /// Makes one transfer on a new cable.
    pub fn transfer(&mut self, job: &Job) -> anyhow::Result<Outcome> {
        self.control.set(job.cell.settings(job.seed));
        let order = Order {
            to: self.receiver_address(job.combination.receiver)?,
            congestion: job.congestion.clone(),
            bytes: job.cell.bytes(),
            span: None,
            patience_seconds: job.cell.patience_s(),
        };
        self.give(job.combination.sender, &order)?;
        self.wait(job.combination.sender, &order)
    }

    /// Sends from both stacks to the other host's kernel at once, for a time.
    pub fn share(&mut self, settings: Settings, order: &Order) -> anyhow::Result<[Outcome; 2]> {
        self.control.set(settings);
        let order = Order {
            to: self.receiver_address(Stack::Kernel)?,
            ..order.clone()
        };
        self.give(Stack::Kernel, &order)?;
        self.give(Stack::Shunt, &order)?;
        let kernel = self.wait(Stack::Kernel, &order)?;
        Ok([kernel, self.wait(Stack::Shunt, &order)?])
    }

    fn give(&mut self, stack: Stack, order: &Order) -> anyhow::Result<()> {
        let sender = self
            .senders
            .get_mut(&stack)
            .context("invariant: both stacks have a sender")?;
        writeln!(sender.orders, "{}", serde_json::to_string(order)?).context("giving an order")
    }

    fn wait(&mut self, stack: Stack, order: &Order) -> anyhow::Result<Outcome> {
        let sender = &self.senders[&stack];
        let deadline = Instant::now() + Duration::from_secs_f64(order.patience_seconds) + GRACE;
        loop {
            self.interrupt.check()?;
            match sender.outcomes.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => return serde_json::from_str(&line).context("reading an outcome"),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => bail!("the sender hangs"),
                Err(RecvTimeoutError::Disconnected) => bail!("the sender has ended"),
            }
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let senders = self.senders.values_mut().map(|sender| &mut sender.child);
        for child in senders.chain(&mut self.receivers) {
            // Already gone is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.engines.clear();
        self.control.stop();
        if let Some(cable) = self.cable.take() {
            let _ = cable.join();
        }
    }
}

/// This program on a host, under `shunt run` for our stack. The policy makes sure that nothing is
/// measured that went to the kernel after all.
fn command(host: &Host, stack: Stack) -> anyhow::Result<std::process::Command> {
    let own = own_binary();
    let mut command = host.command(&own)?;
    if stack == Stack::Shunt {
        command
            .args(["run", "--policy", "engine-only", "--"])
            .arg(&own);
    }
    Ok(command)
}
