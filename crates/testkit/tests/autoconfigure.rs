//! `shunt engine --autoconfigure` beside a real router: dnsmasq on the kernel's host announces a prefix and
//! itself; the engine makes an address of it, and reaches what lies behind the router.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::net::Ipv6Addr;

use serde_json::Value;
use testkit::{Finished, Lab, LabSpec, PATIENCE, Program, host, wait_for};

/// An address of the router that lies on no link of the engine's.
const BEYOND: &str = "2001:db8:99::1";
/// The prefix that the router announces, and its own address in it.
const PREFIX: &str = "2001:db8:5:5::";

const SERVER: &str = r#"
import socket
listener = socket.create_server(("::", 7000), family=socket.AF_INET6)
print("listening", flush=True)
connection, peer = listener.accept()
print(peer[0], connection.getsockname()[0], connection.recv(100).decode(), flush=True)
connection.sendall(b"answer")
"#;
const CLIENT: &str = r#"
import socket, sys
source = (sys.argv[2], 0) if len(sys.argv) > 2 else None
connection = socket.create_connection((sys.argv[1], 7000), 10, source)
connection.sendall(b"question")
print(connection.recv(100).decode(), connection.getsockname()[0], flush=True)
"#;

struct World {
    lab: Lab,
    engine: Option<Program>,
    _router: Program,
}

fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: autoconfigure: {reason}");
}

fn success(program: Program) -> Finished {
    let done = program.finish(PATIENCE, || false).unwrap();
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    done
}

/// A host whose router is real; `None`: that cannot be had here, and it was said.
fn world() -> Option<World> {
    let find = std::process::Command::new("sh")
        .args([
            "-c",
            "PATH=$PATH:/usr/sbin:/sbin command -v dnsmasq && command -v ip",
        ])
        .output();
    if !find.is_ok_and(|output| output.status.success()) {
        skip("dnsmasq or ip is not installed");
        return None;
    }
    let lab = match Lab::temporary("t-autoconfigure", &LabSpec::default()) {
        Ok(lab) => lab,
        Err(error) => {
            skip(&error.to_string());
            return None;
        }
    };
    let b = host(&lab, "b");
    if !b.has_ipv6() {
        skip("this kernel has no IPv6");
        return None;
    }
    let interface = lab::INTERFACE;
    for (address, on) in [
        (format!("{PREFIX}1/64"), interface),
        (format!("{BEYOND}/128"), "lo"),
    ] {
        success(testkit::start(
            b,
            "ip",
            &["-6", "addr", "add", &address, "dev", on, "nodad"],
        ));
    }
    let range = format!("--dhcp-range={PREFIX},ra-only,64,600");
    let on = format!("--interface={interface}");
    let fixed = [
        "--no-daemon",
        "--conf-file=/dev/null",
        "--user=",
        "--port=0",
        "--enable-ra",
        "--bind-interfaces",
    ];
    let lines = [&fixed[..], &[&range, &on, "--dhcp-leasefile=/dev/null"]].concat();
    let mut router = testkit::start(b, "dnsmasq", &lines);
    let announces = |router: &Program| router.stderr().contains("router advertisement");
    router.wait_until("dnsmasq", PATIENCE, announces).unwrap();
    Some(World {
        lab,
        engine: None,
        _router: router,
    })
}

impl World {
    fn start_on_shunt(&self, arguments: &[&str]) -> Program {
        let shunt = testkit::shunt().display().to_string();
        let prefix = ["run", "--policy", "engine-only", "--", "python3", "-c"];
        testkit::start(
            host(&self.lab, "a"),
            &shunt,
            &[&prefix[..], arguments].concat(),
        )
    }

    /// The engine's addresses in the announced prefix.
    fn announced(&self) -> Vec<Ipv6Addr> {
        let shunt = testkit::shunt().display().to_string();
        let done = testkit::run(host(&self.lab, "a"), &shunt, &["status", "--json"]);
        let status: Value = serde_json::from_str(&done.stdout).unwrap();
        let addresses = status["interfaces"][0]["addresses"].as_array().unwrap();
        let prefix: Ipv6Addr = PREFIX.parse().unwrap();
        addresses
            .iter()
            .filter_map(|address| address.as_str()?.strip_suffix("/64")?.parse().ok())
            .filter(|address: &Ipv6Addr| address.segments()[..4] == prefix.segments()[..4])
            .collect()
    }
}

#[test]
fn a_real_router_gives_the_engine_an_address_and_the_way_out() {
    let Some(mut world) = world() else {
        return;
    };
    let shunt = testkit::shunt().display().to_string();
    let own = host(&world.lab, "a").spec().engine_address.to_string();
    let flags = ["engine", "--address", &own, "--autoconfigure"];
    let engine = testkit::once_serving(testkit::start(host(&world.lab, "a"), &shunt, &flags));
    world.engine = Some(engine);
    wait_for("an address of the announced prefix", PATIENCE, || {
        !world.announced().is_empty()
    });
    let address = world.announced()[0];
    // RFC 7217: not made of the hardware address, which has ff:fe in its middle.
    assert_ne!(address.octets()[11..13], [0xff, 0xfe], "{address}");

    // From the link, to the new address.
    let mut server = world.start_on_shunt(&[SERVER]);
    let listens = |server: &Program| server.stdout().contains("listening");
    server.wait_until("listener", PATIENCE, listens).unwrap();
    let client = testkit::start(
        host(&world.lab, "b"),
        "python3",
        &["-c", CLIENT, &address.to_string(), &format!("{PREFIX}1")],
    );
    assert_eq!(success(client).stdout.trim(), format!("answer {PREFIX}1"));
    let heard = success(server).stdout;
    assert_eq!(
        heard.lines().last().unwrap(),
        format!("{PREFIX}1 {address} question")
    );

    // By way of the router, from the new address: no route but the announced one leads there.
    let mut server = testkit::start(host(&world.lab, "b"), "python3", &["-c", SERVER]);
    server.wait_until("listener", PATIENCE, listens).unwrap();
    let client = world.start_on_shunt(&[CLIENT, BEYOND]);
    assert_eq!(success(client).stdout.trim(), format!("answer {address}"));
    assert_eq!(
        success(server).stdout.lines().last().unwrap(),
        format!("{address} {BEYOND} question")
    );
}
