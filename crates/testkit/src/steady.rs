//! Traffic that must not notice what happens beside it (`peers/steady.c`), and the echo server that it talks to.

use lab::Program;
use rustix::process::Signal;

use crate::{
    PATIENCE,
    world::{self, Mode, World, finish},
};

/// The echo server's port.
pub const PORT: u16 = 8000;

/// The echo server: as many connections as come.
const ECHO: &str = "
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            while part := self.request.recv(65536): self.request.sendall(part)
        except OSError: pass
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
";

/// A world with an echo server on host `b`, and the compiled program.
#[derive(Debug)]
pub struct Steady {
    /// The world.
    pub world: World,
    binary: String,
    _echo: Program,
}

impl Steady {
    /// `None`: it cannot be had here, and that was said.
    ///
    /// # Panics
    /// Where something does not start.
    pub fn new(test: &str, way: Mode) -> Option<Self> {
        if !world::can_run(test, &["cc", "python3"]) {
            return None;
        }
        let world = World::new(test, way);
        let binary = world.path("steady");
        let mut words = vec!["cc", "-O1", "-pthread", "-o", &binary];
        if way == Mode::Supervised {
            words.push("-static");
        }
        words.push(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/steady.c"));
        let compiled = finish(world.start("a", &words));
        assert!(compiled.status.success(), "{}", compiled.stderr);
        let (address, port) = (world.peer_address(), PORT.to_string());
        let mut echo = world.start_peer(&["python3", "-c", ECHO, &address, &port]);
        world.wait_ready(&mut echo, "a", &format!("{address}:{port}"));
        Some(Self {
            world,
            binary,
            _echo: echo,
        })
    }

    /// Starts the program; it exchanges bytes on two connections when this returns.
    ///
    /// # Panics
    /// Where it does not.
    pub fn start(&self, rounds: u32) -> Traffic {
        let (address, port) = (self.world.peer_address(), PORT.to_string());
        let rounds = rounds.to_string();
        let words = [&self.binary, &address, &port, &rounds].map(String::as_str);
        let mut traffic = Traffic(self.world.start_tested(&words));
        traffic.wait_said("ready");
        traffic
    }
}

/// The running program.
#[derive(Debug)]
pub struct Traffic(pub Program);

impl Traffic {
    /// Asks for one more connection, and does not wait for it.
    pub fn ask_for_another(&self) {
        self.signal(Signal::USR1);
    }

    /// Has descriptors closed twice, and waits until that is over; what was said of it.
    ///
    /// # Panics
    /// Where it does not end.
    pub fn close_twice(&mut self) -> String {
        self.signal(Signal::HUP);
        self.wait_said("closed twice");
        let lines = self.0.lines();
        let line = lines
            .into_iter()
            .find(|line| line.starts_with("closed twice"));
        line.unwrap_or_default()
    }

    /// Waits until the program has said a line that begins so.
    ///
    /// # Panics
    /// Where it does not.
    pub fn wait_said(&mut self, start: &str) {
        let said = |program: &Program| program.lines().iter().any(|line| line.starts_with(start));
        let waited = self.0.wait_until(start, PATIENCE, said);
        waited.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Ends its connections: how each went.
    ///
    /// # Panics
    /// Where it does not end.
    pub fn finish(self) -> Vec<String> {
        self.signal(Signal::USR2);
        let done = finish(self.0);
        let is_of_connection = |line: &&str| line.starts_with("connection");
        done.stdout
            .lines()
            .filter(is_of_connection)
            .map(str::to_owned)
            .collect()
    }

    fn signal(&self, signal: Signal) {
        let sent = self.0.signal(signal);
        sent.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What `count` connections say that nothing has disturbed.
#[must_use]
pub fn undisturbed(count: usize) -> Vec<String> {
    let line = |number| format!("connection {number}: well, exchanged: 1");
    (0..count).map(line).collect()
}
