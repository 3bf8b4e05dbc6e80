//! UDP between unmodified programs of the distribution on Shunt (host `a`) and the kernel (host `b`), over
//! both families: a name server, groups both ways, a steady stream.
//!
//! What is missing here skips a test, and that is said past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::{Finished, Lab, PATIENCE, Program, host};

struct World {
    lab: Lab,
    _engine: Program,
}

impl World {
    /// `None`: it cannot be tested here, and that was said.
    fn new(test: &str, programs: &[&str]) -> Option<Self> {
        let (lab, engine) = testkit::served_hosts(test, programs)?;
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

/// What a name server is told, so that it asks nobody and reads no files.
const ALONE: [&str; 9] = [
    "--keep-in-foreground",
    "--no-resolv",
    "--no-hosts",
    "--conf-file=/dev/null",
    "--port=5353",
    "--pid-file=",
    "--user=",
    "--address=/lab.test/10.1.2.3",
    "--address=/lab.test/fd99::3",
];

fn wait_started(server: &mut Program) {
    let started = |server: &Program| server.stderr().contains("started");
    server.wait_until("server", PATIENCE, started).unwrap();
}

/// Tells what came to port 7001, of IPv4 and of IPv6, until both stacks have delivered the last word.
const COUNTING: &str = r#"
import socket, struct
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.bind(("", 7001))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
six.bind(("::", 7001))
group = socket.inet_pton(socket.AF_INET6, "ff15::9")
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("@i", 0))
print("listening", flush=True)
for one in four, six:
    heard = []
    while not {"engine", "kernel"} <= set(heard):
        heard.append(one.recv(100).decode())
    print(sorted(heard), flush=True)
"#;

/// Sends to everybody and to a group, and a last word to each stack's own addresses.
const TELLING: &str = r#"
import socket, sys
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
four.sendto(b"news", (sys.argv[1].rsplit(".", 1)[0] + ".255", 7001))
six.sendto(b"news", ("ff15::9", 7001))
for word, v4, v6 in (b"engine", *sys.argv[1:3]), (b"kernel", *sys.argv[3:]):
    four.sendto(word, (v4, 7001))
    six.sendto(word, (v6, 7001))
"#;

/// Asks a link-local peer, by its link and by a connection, and says who answered.
const ASKING: &str = r#"
import socket, sys
to = socket.getaddrinfo(sys.argv[1] + "%eth0", 7002, socket.AF_INET6, socket.SOCK_DGRAM)[0][4]
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
one.settimeout(50)
peer = None
while peer != to:  # until the engine's own link-local address is no longer tentative
    one.sendto(b"asked", to)
    answer, peer = one.recvfrom(100)
print(answer.decode(), peer == to)
one.connect(to)
one.send(b"connected")
print(one.recv(100).decode(), one.getpeername() == to, one.getsockname()[0][:4], one.getsockname()[3] == to[3])
print(one.getsockopt(socket.IPPROTO_IPV6, 24))  # IPV6_MTU
"#;

/// Answers what it hears.
const ECHOING: &str = r#"
import socket
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
one.bind(("::", 7002))
print("listening", flush=True)
while True:
    what, peer = one.recvfrom(100)
    one.sendto(what, peer)
"#;

fn wait_listening(server: &mut Program) {
    let listens = |server: &Program| server.stdout().contains("listening");
    server.wait_until("listener", PATIENCE, listens).unwrap();
}

#[test]
fn what_is_for_many_on_a_link_that_the_kernel_shares_is_heard_once() {
    let Some(world) = World::new("udp-once", &["python3"]) else {
        return;
    };
    // Any policy that leaves the kernel in: the program hears from both stacks.
    let line = ["run", "--", "python3", "-c", COUNTING];
    let mut counting = testkit::start(host(&world.lab, "a"), &shunt(), &line);
    wait_listening(&mut counting);
    let [v4, v6] = world.tested();
    let spec = host(&world.lab, "a").spec();
    let (own_v4, own_v6) = (
        spec.address.address.to_string(),
        spec.address_v6().to_string(),
    );
    let telling = ["-c", TELLING, &v4, &v6, &own_v4, &own_v6];
    output(world.start_peer("python3", &telling));
    let heard = "['engine', 'kernel', 'news']";
    assert_eq!(output(counting), format!("listening\n{heard}\n{heard}\n"));
}

#[test]
fn a_link_local_peer_is_asked_by_its_link() {
    let Some(world) = World::new("udp-link", &["python3", "ip"]) else {
        return;
    };
    let addresses = output(world.start_peer("ip", &["-6", "-o", "addr", "show", "dev", "eth0"]));
    let mut words = addresses.split_whitespace();
    let peer = words.find(|word| word.starts_with("fe80:")).unwrap();
    let peer = peer.split('/').next().unwrap();
    let mut echo = world.start_peer("python3", &["-c", ECHOING]);
    wait_listening(&mut echo);
    let said = output(world.start_tested("python3", &["-c", ASKING, peer]));
    assert_eq!(said, "asked True\nconnected True fe80 True\n1500\n");
}

#[test]
fn a_resolver_asks_over_both_families() {
    let Some(world) = World::new("udp-resolver", &["dnsmasq", "dig"]) else {
        return;
    };
    let arguments = [&ALONE[..], &["--log-facility=-"]].concat();
    let mut server = world.start_peer("dnsmasq", &arguments);
    wait_started(&mut server);
    for address in world.peer() {
        let at = format!("@{address}");
        for (kind, answer) in [("A", "10.1.2.3\n"), ("AAAA", "fd99::3\n")] {
            let asked = ["+short", "+notcp", "-p", "5353", &at, "lab.test", kind];
            assert_eq!(output(world.start_tested("dig", &asked)), answer);
        }
    }
}

#[test]
fn a_name_server_answers_over_both_families_with_long_answers_in_fragments() {
    let Some(world) = World::new("udp-names", &["dnsmasq", "dig"]) else {
        return;
    };
    let texts: Vec<String> = ('a'..='h').map(|c| c.to_string().repeat(240)).collect();
    let record = format!("--txt-record=long.test,{}", texts.join(","));
    let arguments = [
        &ALONE[..],
        &[&record, "--edns-packet-max=4096", "--log-facility=-"],
    ]
    .concat();
    let mut server = world.start_tested("dnsmasq", &arguments);
    wait_started(&mut server);
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
    for (address, on_shunt) in [(&world.tested()[0], true), (&world.peer()[1], false)] {
        let mut there = if on_shunt {
            world.start_tested("iperf3", &server)
        } else {
            world.start_peer("iperf3", &server)
        };
        wait_listening(&mut there);
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
