//! Bad days of the network device: it goes down and up, it is deleted and made again, its peer's end does, its addresses go and
//! come. Programs on the engine and on the kernel keep their connections, and what they exchange is whole.
//!
//! What a machine cannot do (AF_XDP, another network namespace) skips that way of serving, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::time::{Duration, Instant};

use testkit::{Lab, LabSpec, PATIENCE, Program, host, shunt};

/// Serves everybody with an echo.
const SERVER: &str = r#"
import socket, sys, threading
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(16)
print("ready", flush=True)
def serve(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;

/// Exchanges blocks over one connection and leaves another one idle, until its input ends; each block that came back
/// as it went is a line. Then the idle one is used too.
const CLIENT: &str = r#"
import os, select, socket, sys, time
to = (sys.argv[1], int(sys.argv[2]))
busy, idle = socket.create_connection(to, 60), socket.create_connection(to, 60)
def exchange(c, size):
    block = os.urandom(size)
    c.sendall(block)
    back = b""
    while len(back) < size:
        part = c.recv(size - len(back))
        assert part, "the peer closed"
        back += part
    assert back == block, "other bytes"
exchange(idle, 10)
while not os.path.exists(sys.argv[3]):
    exchange(busy, 100_000)
    print("block", flush=True)
    time.sleep(0.02)
exchange(idle, 1000)
print("whole", flush=True)
"#;

/// Who serves the program under test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Kernel,
    /// With these flags.
    Engine(&'static [&'static str]),
}

impl Mode {
    fn shares(self) -> bool {
        matches!(self, Self::Engine(flags) if flags.contains(&"--share"))
    }
}

const WAYS: &[Mode] = &[
    Mode::Kernel,
    Mode::Engine(&["--cores", "1", "--driver", "af_packet"]),
    Mode::Engine(&["--cores", "2", "--driver", "af_packet"]),
    Mode::Engine(&["--cores", "1", "--driver", "af_xdp"]),
    Mode::Engine(&["--share", "--cores", "1", "--driver", "af_packet"]),
    Mode::Engine(&["--share", "--cores", "2", "--driver", "af_packet"]),
];

struct Day {
    way: Mode,
    // Ends before its hosts do.
    engine: Option<Program>,
    client: Program,
    _server: Program,
    /// Tells the client that it is over.
    end: std::path::PathBuf,
    lab: Lab,
}

impl Day {
    /// A client in one way, an echo on the kernel of the other host, and blocks on their way.
    fn begin(test: &str, way: Mode) -> Option<Self> {
        let skip = |reason: &str| {
            let _ = writeln!(std::io::stderr(), "skipped: {test} {way:?}: {reason}");
            None
        };
        let number = WAYS.iter().position(|one| *one == way).unwrap();
        let name = format!("{test}-{number}");
        let lab = match Lab::temporary(&format!("t-{name}"), &LabSpec::default()) {
            Ok(lab) => lab,
            Err(error) => return skip(&error.to_string()),
        };
        let binary = shunt().display().to_string();
        let engine = match way {
            Mode::Kernel => None,
            Mode::Engine(flags) => {
                let words = [&["engine"], flags].concat();
                let mut engine = testkit::start(host(&lab, "a"), &binary, &words);
                let serves =
                    engine.wait_until("engine", PATIENCE, |one| one.stderr().contains("serving"));
                match serves {
                    Err(_) if flags.contains(&"af_xdp") => {
                        return skip(&format!("no AF_XDP here: {}", engine.stderr()));
                    }
                    serves => serves.unwrap(),
                }
                Some(engine)
            }
        };
        let peer = host(&lab, "b").spec().address.address.to_string();
        let mut server = testkit::start(host(&lab, "b"), "python3", &["-c", SERVER, &peer, "9300"]);
        server
            .wait_until("server", PATIENCE, |one| one.stdout().contains("ready"))
            .unwrap();
        let end = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
        let end_text = end.display().to_string();
        let client = ["python3", "-c", CLIENT, &peer, "9300", &end_text];
        let client = match way {
            Mode::Kernel => testkit::start(host(&lab, "a"), client[0], &client[1..]),
            Mode::Engine(_) => {
                let run = ["run", "--policy", "engine-only", "--"];
                testkit::start(host(&lab, "a"), &binary, &[&run[..], &client].concat())
            }
        };
        let mut day = Self {
            way,
            engine,
            client,
            _server: server,
            end,
            lab,
        };
        day.goes_on("the start");
        Some(day)
    }

    fn ip(&self, on: &str, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        testkit::run(host(&self.lab, on), "ip", &arguments);
    }

    /// Waits until some more blocks have come back.
    fn goes_on(&mut self, after: &str) {
        let before = self.client.lines().len();
        let more = self.client.wait_until("blocks", PATIENCE, |client| {
            client.lines().len() > before + 3
        });
        let said = self.engine.as_ref().map(Program::stderr);
        more.unwrap_or_else(|error| {
            panic!("{:?} after {after}: {error}; engine: {said:?}", self.way)
        });
    }

    /// Waits until the engine has said this, if there is one.
    fn is_told(&mut self, word: &str) {
        self.is_told_times(word, 1);
    }

    fn is_told_times(&mut self, word: &str, times: usize) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        engine
            .wait_until(word, PATIENCE, |engine| {
                engine.stderr().matches(word).count() >= times
            })
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.way));
    }

    /// The engine's processor time.
    fn cpu(&self) -> Duration {
        let Some(engine) = &self.engine else {
            return Duration::ZERO;
        };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", engine.serving_pid())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // A hundred in a second, whatever the kernel's own clock (USER_HZ).
        Duration::from_millis(ticks * 10)
    }

    /// While the device is away the engine sleeps: two seconds of it cost no more than a part of one.
    fn is_at_rest(&self) {
        let (before, began) = (self.cpu(), Instant::now());
        testkit::wait_for("two seconds", PATIENCE, || {
            began.elapsed() > Duration::from_secs(2)
        });
        let used = self.cpu() - before;
        assert!(
            used < Duration::from_secs(1),
            "{:?}: {used:?} of processor time",
            self.way
        );
    }

    /// The client is done, with all that it did as it should be; the engine lives.
    fn ends_whole(mut self) {
        std::fs::write(&self.end, "").unwrap();
        let ended = self
            .client
            .wait_until("end", PATIENCE, |client| client.stdout().contains("whole"));
        let _ = std::fs::remove_file(&self.end);
        ended.unwrap_or_else(|error| panic!("{:?}: {error}", self.way));
        if let Some(engine) = &mut self.engine {
            assert!(
                engine.try_wait().unwrap().is_none(),
                "{:?}: the engine has ended",
                self.way
            );
        }
    }
}

#[test]
fn an_interface_that_goes_down_and_up_keeps_its_connections() {
    for way in WAYS {
        let Some(mut day) = Day::begin("device-down", *way) else {
            continue;
        };
        for (turn, on) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
            day.ip(on, "link set eth0 down");
            if turn == 0 {
                day.is_told("is down");
                day.is_at_rest();
            }
            day.ip(on, "link set eth0 up");
            day.goes_on(&format!("turn {turn}"));
        }
        day.is_told("is there again");
        day.ends_whole();
    }
}

#[test]
fn an_interface_that_is_deleted_and_made_again_keeps_its_connections() {
    for way in WAYS {
        let Some(mut day) = Day::begin("device-gone", *way) else {
            continue;
        };
        if day.lab.rootless() {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: device-gone: moving an interface needs root"
            );
            return;
        }
        let inside = testkit::start(host(&day.lab, "b"), "sleep", &["600"]);
        let addresses = ["a", "b"].map(|on| host(&day.lab, on).spec().address.to_string());
        for turn in 0..2 {
            day.ip("a", "link del eth0");
            if turn == 0 {
                day.is_told("is gone");
                day.is_at_rest();
            }
            day.ip(
                "a",
                &format!(
                    "link add eth0 type veth peer name eth0 netns {}",
                    inside.pid()
                ),
            );
            for (on, address) in ["a", "b"].into_iter().zip(&addresses) {
                day.ip(on, &format!("addr add {address} dev eth0"));
                day.ip(on, "link set eth0 up");
                // Where addresses are shared the kernel answers the peers of a new interface until the engine has found it.
                if on == "a" && way.shares() {
                    day.is_told_times("is there again", turn + 1);
                }
            }
            day.goes_on(&format!("turn {turn}"));
        }
        day.ends_whole();
    }
}

#[test]
fn an_address_an_mtu_and_a_name_that_change_end_no_connection() {
    for way in WAYS {
        let Some(mut day) = Day::begin("device-change", *way) else {
            continue;
        };
        let address = host(&day.lab, "a").spec().address.to_string();
        day.ip("a", &format!("addr del {address} dev eth0"));
        day.ip("a", &format!("addr add {address} dev eth0"));
        day.goes_on("an address that went and came");
        for mtu in ["1400", "4000", "1300", "1500"] {
            for on in ["a", "b"] {
                day.ip(on, &format!("link set eth0 mtu {mtu}"));
            }
            day.goes_on(&format!("an MTU of {mtu}"));
        }
        for (from, to) in [("eth0", "other0"), ("other0", "eth0")] {
            day.ip("a", &format!("link set {from} name {to}"));
            day.goes_on("another name");
        }
        day.ends_whole();
    }
}
