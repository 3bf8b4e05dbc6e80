//! Host `a` with an engine that shares its address, and host `b`.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write as _;

use testkit::{Host, Lab, LabSpec, PATIENCE, Program, host};

/// What the tests' programs do; the first argument says which.
pub const TOOL: &str = include_str!("tool.py");

/// A lab whose host `a` shares its interface.
pub struct World {
    pub lab: Lab,
    pub engine: Program,
}

impl World {
    /// `None`: it cannot be tested here, and that was said.
    pub fn new(test: &str) -> Option<Self> {
        Self::with(test, &["engine", "--share"], |_| {})
    }

    pub fn with(test: &str, engine: &[&str], prepare: impl FnOnce(&Lab)) -> Option<Self> {
        let skip = |reason: &str| {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
            None
        };
        let lab = match Lab::temporary(&format!("t-{test}"), &LabSpec::default()) {
            Ok(lab) => lab,
            Err(error) => return skip(&error.to_string()),
        };
        prepare(&lab);
        let mut engine = testkit::start(host(&lab, "a"), &shunt(), engine);
        let served = engine.wait_until("engine", PATIENCE, |engine| {
            engine.stderr().contains("serving")
        });
        match served {
            Ok(()) => Some(Self { lab, engine }),
            Err(error) if error.to_string().contains("no interface named") => {
                skip("the kernel has no such interface")
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub fn a(&self) -> &Host {
        host(&self.lab, "a")
    }

    pub fn b(&self) -> &Host {
        host(&self.lab, "b")
    }

    /// The shared addresses, IPv4 and IPv6.
    pub fn shared(&self) -> [String; 2] {
        let spec = self.a().spec();
        [
            spec.address.address.to_string(),
            spec.address_v6().to_string(),
        ]
    }

    pub fn peer(&self) -> [String; 2] {
        let spec = self.b().spec();
        [
            spec.address.address.to_string(),
            spec.address_v6().to_string(),
        ]
    }

    /// The tool on Shunt, on host `a`.
    pub fn on_shunt(&self, arguments: &[&str]) -> Program {
        let line = ["run", "--", "python3", "-c", TOOL];
        testkit::start(self.a(), &shunt(), &[&line[..], arguments].concat())
    }

    /// The tool on the kernel.
    pub fn on_kernel(&self, host: &Host, arguments: &[&str]) -> Program {
        testkit::start(host, "python3", &[&["-c", TOOL], arguments].concat())
    }

    /// A server that says "ready" first.
    pub fn server(&self, on_shunt: bool, arguments: &[&str]) -> Program {
        let mut server = if on_shunt {
            self.on_shunt(arguments)
        } else {
            self.on_kernel(self.a(), arguments)
        };
        server
            .wait_until("server", PATIENCE, |server| {
                server.stdout().contains("ready")
            })
            .unwrap_or_else(|error| panic!("{error}"));
        server
    }

    /// Whether BPF is permitted: without it a listener stays with the kernel while that has connections there.
    pub fn is_steered(&self) -> bool {
        let text = testkit::run(self.a(), &shunt(), &["status", "--json"]).stdout;
        text.contains("steered")
    }

    /// How many connections, listeners and UDP sockets the engine has.
    pub fn status(&self, what: &str) -> u64 {
        self.status_of(&format!("/{what}"))
    }

    /// A number in the engine's status, by its JSON pointer.
    pub fn status_of(&self, pointer: &str) -> u64 {
        let text = testkit::run(self.a(), &shunt(), &["status", "--json"]).stdout;
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        let status = status.get("engine").unwrap_or(&status);
        status
            .pointer(pointer)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or_else(|| panic!("no {pointer} in {text}"))
    }
}

/// The binary.
pub fn shunt() -> String {
    testkit::shunt().display().to_string()
}
