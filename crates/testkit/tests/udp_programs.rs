//! UDP between unmodified programs of the distribution on Shunt (host `a`) and the kernel (host `b`), over
//! both families: a name server, groups both ways, a steady stream.
//!
//! What is missing here skips a test, and that is said past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::process::Command;

use testkit::{Finished, Lab, LabSpec, PATIENCE, Program, host};

struct World {
    lab: Lab,
    _engine: Program,
}

impl World {
    /// `None`: it cannot be tested here, and that was said.
    fn new(test: &str, programs: &[&str]) -> Option<Self> {
        let skip = |reason: &str| {
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
            None
        };
        for program in programs {
            let found = Command::new("sh")
                .args(["-c", &format!("PATH=$PATH:/usr/sbin command -v {program}")])
                .output();
            if !found.is_ok_and(|output| output.status.success()) {
                return skip(&format!("{program} is not installed"));
            }
        }
        let lab = match Lab::temporary(&format!("t-{test}"), &LabSpec::default()) {
            Ok(lab) => lab,
            Err(error) => return skip(&error.to_string()),
        };
        if !host(&lab, "a").has_ipv6() {
            return skip("this kernel has no IPv6");
        }
        let mut engine = testkit::start(host(&lab, "a"), &shunt(), &["engine"]);
        let serves = |engine: &Program| engine.stderr().contains("serving");
        engine.wait_until("engine", PATIENCE, serves).unwrap();
        Some(Self {
            lab,
            _engine: engine,
        })
    }

    /// A program on Shunt, on host `a`.
    fn start_tested(&self, program: &str, arguments: &[&str]) -> Program {
        let prefix = ["run", "--policy", "engine-only", "--", program];
        let line = [&prefix[..], arguments].concat();
        testkit::start(host(&self.lab, "a"), &shunt(), &line)
    }

    fn start_peer(&self, program: &str, arguments: &[&str]) -> Program {
        testkit::start(host(&self.lab, "b"), program, arguments)
    }

    /// The addresses of the side under test, IPv4 and IPv6.
    fn tested(&self) -> [String; 2] {
        let spec = host(&self.lab, "a").spec();
        let v4 = spec.engine_address.address.to_string();
        [v4, spec.engine_address_v6().to_string()]
    }

    /// The same of its peer.
    fn peer(&self) -> [String; 2] {
        let spec = host(&self.lab, "b").spec();
        [
            spec.address.address.to_string(),
            spec.address_v6().to_string(),
        ]
    }

    /// What the engine says of its UDP sockets.
    fn listing(&self) -> String {
        let arguments = ["ss", "--udp", "--json"];
        testkit::run(host(&self.lab, "a"), &shunt(), &arguments).stdout
    }
}

fn shunt() -> String {
    testkit::shunt().display().to_string()
}

fn finish(program: Program) -> Finished {
    program.finish(PATIENCE, || false).unwrap()
}

/// Runs it to its successful end and returns what it printed.
fn output(program: Program) -> String {
    let done = finish(program);
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    done.stdout
}

#[test]
fn a_name_server_answers_over_both_families_with_long_answers_in_fragments() {
    let Some(world) = World::new("udp-names", &["dnsmasq", "dig"]) else {
        return;
    };
    let texts: Vec<String> = ('a'..='h').map(|c| c.to_string().repeat(240)).collect();
    let record = format!("--txt-record=long.test,{}", texts.join(","));
    let mut server = world.start_tested(
        "dnsmasq",
        &[
            "--keep-in-foreground",
            "--no-resolv",
            "--no-hosts",
            "--conf-file=/dev/null",
            "--port=5353",
            "--pid-file=",
            "--user=",
            "--address=/lab.test/10.1.2.3",
            "--address=/lab.test/fd99::3",
            &record,
            "--edns-packet-max=4096",
            "--log-facility=-",
        ],
    );
    let started = |server: &Program| server.stderr().contains("started");
    server.wait_until("server", PATIENCE, started).unwrap();
    assert!(
        world.listing().contains("\"UNCONN\""),
        "{}",
        world.listing()
    );
    for address in world.tested() {
        let at = format!("@{address}");
        let ask = |name: &str, kind: &str| {
            let fixed = ["+short", "+notcp", "+bufsize=4096", "-p", "5353"];
            let arguments = [&fixed[..], &[&at, name, kind]].concat();
            output(world.start_peer("dig", &arguments))
        };
        assert_eq!(ask("lab.test", "A"), "10.1.2.3\n");
        assert_eq!(ask("lab.test", "AAAA"), "fd99::3\n");
        // More than a packet carries.
        for text in &texts {
            assert!(ask("long.test", "TXT").contains(text.as_str()));
        }
    }
}

#[test]
fn groups_are_heard_both_ways() {
    let Some(world) = World::new("udp-groups", &["socat"]) else {
        return;
    };
    let ([ours, _], [theirs, _]) = (world.tested(), world.peer());
    let (four, six) = ("239.1.2.3", "[ff15::99]");
    let joined_v4 = |own: &str| format!("UDP4-RECV:7000,ip-add-membership={four}:{own}");
    let joined_v6 = format!("UDP6-RECV:7000,ipv6-join-group={six}:eth0");
    let said_v4 = |own: &str| format!("UDP4-DATAGRAM:{four}:7000,ip-multicast-if={own}");
    let said_v6 = format!("UDP6-DATAGRAM:{six}:7000");
    for (on_shunt, on_kernel, from_shunt, from_kernel) in [
        (
            joined_v4(&ours),
            joined_v4(&theirs),
            said_v4(&ours),
            said_v4(&theirs),
        ),
        (joined_v6.clone(), joined_v6, said_v6.clone(), said_v6),
    ] {
        let hears = |receiver: Program, send: &dyn Fn() -> Program| {
            let mut receiver = receiver;
            // Who hears it says so; until it listens nobody does.
            let heard = |receiver: &Program| {
                drop(finish(send()));
                receiver.stdout().contains("news")
            };
            receiver.wait_until("news", PATIENCE, heard).unwrap();
        };
        let speak = |target: &str| ["-c".to_owned(), format!("echo news | socat -u - {target}")];
        hears(
            world.start_tested("socat", &["-u", &on_shunt, "-"]),
            &|| {
                let [flag, line] = speak(&from_kernel);
                world.start_peer("sh", &[&flag, &line])
            },
        );
        hears(world.start_peer("socat", &["-u", &on_kernel, "-"]), &|| {
            let [flag, line] = speak(&from_shunt);
            world.start_tested("sh", &[&flag, &line])
        });
    }
}

#[test]
fn a_steady_stream_arrives_in_both_directions() {
    let Some(world) = World::new("udp-stream", &["iperf3"]) else {
        return;
    };
    let server = ["--server", "--one-off", "--port", "5201", "--forceflush"];
    let listens = |server: &Program| server.stdout().contains("listening");
    for (address, on_shunt) in [(&world.tested()[0], true), (&world.peer()[1], false)] {
        let mut there = if on_shunt {
            world.start_tested("iperf3", &server)
        } else {
            world.start_peer("iperf3", &server)
        };
        there.wait_until("server", PATIENCE, listens).unwrap();
        let client = [
            "--udp",
            "--client",
            address,
            "--port",
            "5201",
            "--bitrate",
            "5M",
            "--bytes",
            "1M",
        ];
        let said = if on_shunt {
            output(world.start_peer("iperf3", &client))
        } else {
            output(world.start_tested("iperf3", &client))
        };
        assert!(said.contains("(0%)") && said.contains("receiver"), "{said}");
        assert!(finish(there).status.success());
    }
}
