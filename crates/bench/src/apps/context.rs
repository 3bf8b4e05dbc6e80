//! What all cases share: the lab, a scratch directory with the file to serve, and how servers and
//! clients are started on either side.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddrV4},
    rc::Rc,
    time::Instant,
};

use anyhow::{Context as _, bail};
use lab::{Finished, Lab, Program};
use load::{idle::IdleLatency, interrupt::Interrupt};
use serde::{Deserialize, Serialize};

use super::{
    Scale,
    content::{Content, Scratch},
    side::{Mode, Side},
};
use crate::{
    micro::testbed::{self, On, Placement, SHUNT, Stack, Testbed},
    tools,
};

/// The host whose program is under test, and its peer, always on the kernel.
const TESTED: On = On::A;
const PEER: On = On::B;

/// What all cases share. Dropping it ends every program and removes lab and files.
#[derive(Debug)]
pub struct Context {
    testbed: Testbed,
    pub common: Rc<Common>,
    engine: OnceCell<EngineFacts>,
    /// Where `shunt run` puts the engine of a program, by the program's name.
    chosen: RefCell<BTreeMap<String, Chosen>>,
}

/// What the labs of one invocation share.
#[derive(Debug)]
pub struct Common {
    pub scratch: Scratch,
    pub content: Content,
    pub idle: IdleLatency,
    pub interrupt: Interrupt,
    pub scale: Scale,
    pub begun: Instant,
}

/// What the engine says about the path that programs take through it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineFacts {
    /// How it reaches the interface.
    pub driver: String,
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
    _program: testbed::Server,
    _engine: Option<Program>,
    /// Where it listens.
    pub address: SocketAddrV4,
}

impl Context {
    /// Builds the lab and writes the file to serve.
    pub fn create(scale: Scale, interrupt: Interrupt) -> anyhow::Result<Self> {
        let begun = Instant::now();
        // First: what cannot be built is known before the file is written.
        let testbed = Self::testbed(lab::ORDINARY_SEGMENT_BYTES, &interrupt)?;
        let scratch = Scratch::create()?;
        let content = Content::create(&scratch.0, scale.file_bytes, &interrupt)?;
        let common = Common {
            scratch,
            content,
            idle: IdleLatency::hold(),
            interrupt,
            scale,
            begun,
        };
        Ok(Self::of(testbed, Rc::new(common)))
    }

    /// The same files and scale on a lab of its own, whose cable passes packets of `segment_bytes`.
    pub fn with_segments(&self, segment_bytes: u32) -> anyhow::Result<Self> {
        let testbed = Self::testbed(segment_bytes, &self.common.interrupt)?;
        Ok(Self::of(testbed, Rc::clone(&self.common)))
    }

    fn testbed(segment_bytes: u32, interrupt: &Interrupt) -> anyhow::Result<Testbed> {
        Testbed::create(
            testbed::Scale { seconds: 0.0 },
            segment_bytes,
            interrupt.clone(),
        )
    }

    fn of(testbed: Testbed, common: Rc<Common>) -> Self {
        Self {
            testbed,
            common,
            engine: OnceCell::new(),
            chosen: RefCell::default(),
        }
    }

    pub fn lab(&self) -> &Lab {
        &self.testbed.lab
    }

    /// Directory for everything that programs write; also the one that servers serve.
    pub fn scratch(&self) -> String {
        self.common.scratch.0.display().to_string()
    }

    /// What the engine said about itself; None where none was started.
    pub fn engine(&self) -> Option<&EngineFacts> {
        self.engine.get()
    }

    /// Progress, on standard error.
    pub fn say(&self, text: &str) {
        note!("[{:>4} s] {text}", self.common.begun.elapsed().as_secs());
    }

    /// The address of the program under test when it serves.
    pub fn tested_address(&self, side: Side) -> anyhow::Result<Ipv4Addr> {
        Ok(self.testbed.placement(TESTED, side.stack())?.address)
    }

    /// The address of the peer's kernel.
    pub fn peer_address(&self) -> anyhow::Result<Ipv4Addr> {
        Ok(self.testbed.placement(PEER, Stack::Kernel)?.address)
    }

    /// Starts the server under test and waits until the peer can connect to it.
    pub fn start_tested_server(
        &self,
        side: Side,
        port: u16,
        line: &[&str],
    ) -> anyhow::Result<Server> {
        let tested = line.first().copied().unwrap_or_default();
        let engine = self.start_engine(side, tested)?;
        let placement = self.testbed.placement(TESTED, side.stack())?;
        let server = self.start_server(engine, placement, port, line)?;
        if self.mode(side, tested)? == Some(Mode::Inline) {
            self.note_engine(&format!("@shunt/run/{}", placement.address))?;
        }
        Ok(server)
    }

    /// Starts a server on the peer's kernel, and for a client under test the engine.
    pub fn start_peer_server(
        &self,
        side: Side,
        client: &str,
        port: u16,
        line: &[&str],
    ) -> anyhow::Result<Server> {
        let engine = self.start_engine(side, client)?;
        let placement = self.testbed.placement(PEER, Stack::Kernel)?;
        self.start_server(engine, placement, port, line)
    }

    fn start_server(
        &self,
        engine: Option<Program>,
        placement: Placement,
        port: u16,
        line: &[&str],
    ) -> anyhow::Result<Server> {
        // nginx refuses a mapped root: in a user namespace it is started as an ordinary user.
        let as_user = line.first() == Some(&"nginx") && self.lab().rootless();
        let placement = placement.as_user(as_user);
        Ok(Server {
            _program: self.testbed.serve_answering(placement, port, line)?,
            _engine: engine,
            address: placement.at(port),
        })
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
        let file = tools::find(program)?.display().to_string();
        let kernel = self.testbed.placement(TESTED, Stack::Kernel)?;
        let line = [SHUNT, "doctor", "--json", &file];
        let chosen = self.testbed.ask::<Served>(kernel, &line)?.engine_mode;
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
        let engine = self.testbed.start_engine(TESTED, &[])?;
        self.note_engine(hostif::DEFAULT_ENGINE_NAME)?;
        Ok(Some(engine))
    }

    /// Asks an engine what it is, the first time; on its host, because another network namespace does not reach its control
    /// socket.
    fn note_engine(&self, name: &str) -> anyhow::Result<()> {
        if self.engine.get().is_none() {
            let status = self.testbed.status(TESTED, name)?;
            let facts = serde_json::from_value(status).context("reading the status")?;
            self.engine.get_or_init(|| facts);
        }
        Ok(())
    }

    /// Runs a client to its end: one under test on this side, or one on the peer's kernel.
    pub fn run(&self, tested: Option<Side>, line: &[&str]) -> anyhow::Result<Finished> {
        self.testbed.run(self.client(tested)?, line)
    }

    fn client(&self, tested: Option<Side>) -> anyhow::Result<Placement> {
        match tested {
            Some(side) => self.testbed.placement(TESTED, side.stack()),
            None => self.testbed.placement(PEER, Stack::Kernel),
        }
    }

    /// Runs a client that writes what it fetched to standard output, and checks that by SHA-256.
    pub fn check_fetched(&self, tested: Option<Side>, line: &[&str]) -> anyhow::Result<()> {
        let name = line.first().copied().unwrap_or_default();
        let finished = self.testbed.run_hashed(self.client(tested)?, line)?;
        let mut words = finished.stdout.split_ascii_whitespace();
        let (sum, expected) = (
            words.next().unwrap_or_default(),
            &self.common.content.sha256,
        );
        if sum != expected {
            bail!(
                "{name} received other bytes than were served (SHA-256 {sum}, expected {expected}): {}",
                finished.stderr.trim()
            );
        }
        Ok(())
    }
}
