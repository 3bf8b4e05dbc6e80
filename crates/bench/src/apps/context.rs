//! What all cases share: the lab, a scratch directory with the file to serve, and how servers and
//! clients are started on either side.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use lab::{Finished, Host, INTERFACE, Lab, LabSpec, Program};
use load::{idle::IdleLatency, interrupt::Interrupt};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Scale,
    content::{Content, Scratch},
    side::{Mode, Side, on_side},
};
use crate::{cores, tools};

/// How long a server or an engine may take to be ready.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long one client run may take, whatever it measures.
const CLIENT_PATIENCE: Duration = Duration::from_secs(30);

/// The host whose program is under test, and its peer, always on the kernel.
const TESTED: &str = "a";
const PEER: &str = "b";

/// What all cases share. Dropping it ends every program and removes lab and files.
#[derive(Debug)]
pub struct Context {
    lab: Lab,
    common: Rc<Common>,
    engine: OnceCell<EngineFacts>,
    /// Where `shunt run` puts the engine of a program, by the program's name.
    chosen: RefCell<BTreeMap<String, Chosen>>,
}

/// What the labs of one invocation share.
#[derive(Debug)]
struct Common {
    scratch: Scratch,
    content: Content,
    idle: IdleLatency,
    interrupt: Interrupt,
    scale: Scale,
    begun: Instant,
}

/// A lab that goes with the process.
fn laboratory(segment_bytes: u32) -> anyhow::Result<Lab> {
    let name = format!("bench-{}-{}", std::process::id(), segment_bytes / 1024);
    let spec = LabSpec {
        segment_bytes,
        ..LabSpec::default()
    };
    Ok(Lab::temporary(&name, &spec)?)
}

/// What the engine says about the path that programs take through it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineFacts {
    /// How it reaches the interface.
    pub driver: String,
    /// Its congestion control.
    pub congestion_control: String,
}

/// What `shunt doctor` says of a program.
#[derive(Debug, Deserialize)]
struct Served {
    engine_mode: Chosen,
}

/// Where its engine runs, and why.
#[derive(Debug, Clone, Deserialize)]
struct Chosen {
    mode: Mode,
    because: String,
}

/// A server that answers. Dropping it ends the server first, then its engine.
#[derive(Debug)]
pub struct Server {
    _program: Program,
    _engine: Option<Program>,
    /// Where it listens.
    pub address: SocketAddrV4,
}

/// How to start a server.
#[derive(Debug)]
pub struct ServerSpec<'a> {
    pub name: &'a str,
    pub arguments: Vec<OsString>,
    pub port: u16,
    /// Refuses a mapped root: in a user namespace it is started as an ordinary user.
    pub refuses_mapped_root: bool,
}

impl Context {
    /// Builds the lab and writes the file to serve.
    pub fn create(scale: Scale, interrupt: Interrupt) -> anyhow::Result<Self> {
        let begun = Instant::now();
        // First: what cannot be built is known before the file is written.
        let lab = laboratory(lab::ORDINARY_SEGMENT_BYTES)?;
        let scratch = Scratch::create()?;
        let content = Content::create(scratch.path(), scale.file_bytes, &interrupt)?;
        let common = Rc::new(Common {
            scratch,
            content,
            idle: IdleLatency::hold(),
            interrupt,
            scale,
            begun,
        });
        Ok(Self {
            lab,
            common,
            engine: OnceCell::new(),
            chosen: RefCell::default(),
        })
    }

    /// The same files and scale on a lab of its own, whose cable passes packets of `segment_bytes`.
    pub fn with_segments(&self, segment_bytes: u32) -> anyhow::Result<Self> {
        Ok(Self {
            lab: laboratory(segment_bytes)?,
            common: Rc::clone(&self.common),
            engine: OnceCell::new(),
            chosen: RefCell::default(),
        })
    }

    /// Sizes and counts.
    pub fn scale(&self) -> Scale {
        self.common.scale
    }

    /// The lab.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// True while both hosts stand.
    pub fn alive(&self) -> bool {
        self.lab.alive()
    }

    /// Directory for everything that programs write; also the one that servers serve.
    pub fn scratch(&self) -> &Path {
        self.common.scratch.path()
    }

    /// The file to serve.
    pub fn content(&self) -> &Content {
        &self.common.content
    }

    /// Whether processors are kept from idling.
    pub fn idle(&self) -> &IdleLatency {
        &self.common.idle
    }

    /// Whether somebody asked us to end.
    pub fn interrupt(&self) -> &Interrupt {
        &self.common.interrupt
    }

    /// What the engine said about itself; None where none was started.
    pub fn engine(&self) -> Option<&EngineFacts> {
        self.engine.get()
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.common.begun.elapsed()
    }

    /// Progress, on standard error.
    pub fn say(&self, text: &str) {
        note!("[{:>4} s] {text}", self.common.begun.elapsed().as_secs());
    }

    /// The address of the program under test when it serves.
    pub fn tested_address(&self, side: Side) -> anyhow::Result<Ipv4Addr> {
        let spec = self.lab.host(TESTED)?.spec();
        Ok(match side {
            Side::Kernel => spec.address.address,
            Side::Shunt | Side::Inline | Side::Process => spec.engine_address.address,
        })
    }

    /// The address of the peer's kernel.
    pub fn peer_address(&self) -> anyhow::Result<Ipv4Addr> {
        Ok(self.lab.host(PEER)?.spec().address.address)
    }

    /// Starts the server under test and waits until the peer can connect to it.
    pub fn start_tested_server(&self, side: Side, spec: ServerSpec<'_>) -> anyhow::Result<Server> {
        let engine = self.start_engine(side, spec.name)?;
        let address = SocketAddrV4::new(self.tested_address(side)?, spec.port);
        self.start_server(TESTED, side, engine, address, spec)
    }

    /// Starts a server on the peer's kernel, and for a client under test the engine.
    pub fn start_peer_server(
        &self,
        side: Side,
        client: &str,
        spec: ServerSpec<'_>,
    ) -> anyhow::Result<Server> {
        let engine = self.start_engine(side, client)?;
        let address = SocketAddrV4::new(self.peer_address()?, spec.port);
        self.start_server(PEER, Side::Kernel, engine, address, spec)
    }

    fn start_server(
        &self,
        host: &str,
        side: Side,
        engine: Option<Program>,
        address: SocketAddrV4,
        spec: ServerSpec<'_>,
    ) -> anyhow::Result<Server> {
        let as_user = spec.refuses_mapped_root && self.lab.rootless();
        let mut command = self.command(self.lab.host(host)?, side, spec.name, as_user)?;
        command.args(&spec.arguments);
        let mut program = Program::start(spec.name, command)?;
        // Asked from the other host: from its own, an engine's address cannot be reached.
        let asking = self.lab.host(if host == TESTED { PEER } else { TESTED })?;
        self.wait_ready(&mut program, asking, address)?;
        if self.mode(side, spec.name)? == Some(Mode::Inline) {
            let name = format!("@shunt/run/{}", address.ip());
            self.note_engine(&name)?;
        }
        Ok(Server {
            _program: program,
            _engine: engine,
            address,
        })
    }

    fn wait_ready(
        &self,
        program: &mut Program,
        asking: &Host,
        address: SocketAddrV4,
    ) -> anyhow::Result<()> {
        let what = format!("answer at {address}");
        program.wait_until(&what, START_PATIENCE, |_| {
            self.common.interrupt.came()
                || asking.wait_connect(address.into(), Duration::ZERO).is_ok()
        })?;
        self.common.interrupt.check()
    }

    /// Where the engine of a program under test runs.
    pub fn mode(&self, side: Side, program: &str) -> anyhow::Result<Option<Mode>> {
        Ok(match side {
            Side::Kernel => None,
            Side::Inline => Some(Mode::Inline),
            Side::Process => Some(Mode::Process),
            Side::Shunt => Some(self.chosen(program)?.mode),
        })
    }

    /// What `shunt run` chooses for a program there.
    fn chosen(&self, program: &str) -> anyhow::Result<Chosen> {
        if let Some(known) = self.chosen.borrow().get(program) {
            return Ok(known.clone());
        }
        let mut command = self.lab.host(TESTED)?.command(own_binary()?)?;
        command
            .args(["doctor", "--json"])
            .arg(tools::find(program)?);
        let answer: Served = self.ask("shunt doctor", command)?;
        let chosen = answer.engine_mode;
        let mut all = self.chosen.borrow_mut();
        all.insert(program.to_owned(), chosen.clone());
        Ok(chosen)
    }

    /// Why `shunt run` has chosen as it has, each reason once.
    pub fn reasons(&self) -> Vec<String> {
        let all = self.chosen.borrow();
        let mut reasons: Vec<String> = all
            .values()
            .map(|chosen| format!("{}: {}", chosen.mode, chosen.because))
            .collect();
        reasons.sort();
        reasons.dedup();
        reasons
    }

    /// Starts an engine process where the program under test gets one, and waits for its control socket.
    fn start_engine(&self, side: Side, program: &str) -> anyhow::Result<Option<Program>> {
        if self.mode(side, program)? != Some(Mode::Process) {
            return Ok(None);
        }
        let host = self.lab.host(TESTED)?;
        let mut command = host.command(own_binary()?)?;
        command.args([
            "engine",
            "--nic",
            INTERFACE,
            "--address",
            &host.spec().engine_address.to_string(),
        ]);
        if let Some(cpu) = cores::for_engine() {
            command.args(["--cpu", &cpu.to_string()]);
        }
        // The same control on both sides, where the engine has the kernel's; the report names both.
        if engine::CongestionControl::from_name(self.lab.congestion()).is_some() {
            command.args(["--congestion", self.lab.congestion()]);
        }
        let mut engine = Program::start("shunt engine", command)?;
        engine.wait_until("control socket", START_PATIENCE, |engine| {
            // /proc/PID/net/unix shows the process's own network namespace, see unix(7).
            let sockets = fs::read_to_string(format!("/proc/{}/net/unix", engine.pid()));
            self.common.interrupt.came()
                || sockets.is_ok_and(|text| {
                    text.lines()
                        .any(|line| line.ends_with(hostif::DEFAULT_ENGINE_NAME))
                })
        })?;
        self.common.interrupt.check()?;
        self.note_engine(hostif::DEFAULT_ENGINE_NAME)?;
        Ok(Some(engine))
    }

    /// Asks an engine what it is, the first time; on its host, because another network namespace does not reach its control
    /// socket.
    fn note_engine(&self, name: &str) -> anyhow::Result<()> {
        if self.engine.get().is_none() {
            let mut command = self.lab.host(TESTED)?.command(own_binary()?)?;
            command.args(["status", "--json", "--engine", name]);
            let facts = self.ask("shunt status", command)?;
            self.engine.get_or_init(|| facts);
        }
        Ok(())
    }

    /// What a command prints as JSON.
    fn ask<T: DeserializeOwned>(&self, name: &str, command: Command) -> anyhow::Result<T> {
        let interrupt = self.common.interrupt.clone();
        let finished = Program::start(name, command)?
            .finish(START_PATIENCE, move || interrupt.came())?
            .success()?;
        serde_json::from_str(&finished.stdout)
            .with_context(|| format!("{name} printed {:?}", finished.stdout))
    }

    /// Runs a client on the peer's kernel to its end.
    pub fn run_peer_client(&self, name: &str, arguments: &[OsString]) -> anyhow::Result<Finished> {
        self.run_client(PEER, Side::Kernel, name, arguments)
    }

    /// Runs the client under test to its end.
    pub fn run_tested_client(
        &self,
        side: Side,
        name: &str,
        arguments: &[OsString],
    ) -> anyhow::Result<Finished> {
        self.run_client(TESTED, side, name, arguments)
    }

    fn run_client(
        &self,
        host: &str,
        side: Side,
        name: &str,
        arguments: &[OsString],
    ) -> anyhow::Result<Finished> {
        let mut command = self.command(self.lab.host(host)?, side, name, false)?;
        command.args(arguments);
        let interrupt = self.common.interrupt.clone();
        Ok(Program::start(name, command)?
            .finish(CLIENT_PATIENCE, move || interrupt.came())?
            .success()?)
    }

    /// Runs a client that writes what it fetched to standard output, and checks that by SHA-256.
    pub fn check_fetched(
        &self,
        tested: Option<Side>,
        name: &str,
        arguments: &[OsString],
    ) -> anyhow::Result<()> {
        let (host, side) = tested.map_or((PEER, Side::Kernel), |side| (TESTED, side));
        let mut client = vec![tools::find(name)?.into_os_string()];
        client.extend_from_slice(arguments);
        client = on_side(side, client)?;
        let mut command = self.lab.host(host)?.command("sh")?;
        command
            .args(["-c", "\"$@\" | sha256sum", "sh"])
            .args(client);
        let interrupt = self.common.interrupt.clone();
        let finished = Program::start(name, command)?
            .finish(CLIENT_PATIENCE, move || interrupt.came())?
            .success()?;
        let sum = finished
            .stdout
            .split_ascii_whitespace()
            .next()
            .unwrap_or_default();
        if sum != self.common.content.sha256() {
            bail!(
                "{name} received other bytes than were served (SHA-256 {sum}, expected {}): {}",
                self.common.content.sha256(),
                finished.stderr.trim()
            );
        }
        Ok(())
    }

    fn command(
        &self,
        host: &Host,
        side: Side,
        program: &str,
        as_user: bool,
    ) -> anyhow::Result<Command> {
        let mut line = vec![tools::find(program)?.into_os_string()];
        line = on_side(side, line)?;
        let (program, arguments) = line
            .split_first()
            .context("invariant: the line names a program")?;
        let mut command = if as_user {
            host.command_as_user(program)?
        } else {
            host.command(program)?
        };
        command.args(arguments);
        Ok(command)
    }
}

fn own_binary() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("finding this binary")
}

/// A list of arguments from anything that can be one.
pub fn words<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}
