//! UDP over loopback on an engine: between programs that are run so on the engine, between others and them by the kernel, in
//! both directions, nothing lost and nothing twice.

use testkit::{PATIENCE, kernel_tcp};

use super::Testbed;

/// Echoes what comes, until it is told to end.
const ECHO: &str = "
import errno, socket, sys
one = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
while True:
    # The one before has let go of it a moment ago.
    try: one.bind((sys.argv[1], int(sys.argv[2])))
    except OSError as error: assert error.errno == errno.EADDRINUSE
    else: break
print('bound', flush=True)
while True:
    text, peer = one.recvfrom(65536)
    one.sendto(text, peer)
    if text == b'end': break
";

/// Sends numbers, a few at a time, by a socket with a peer and by one without, and prints what came back in which order;
/// then ends the server, and prints what becomes of the next datagram.
const ASK: &str = "
import errno, select, socket, sys
to = (sys.argv[1], int(sys.argv[2]))
family = socket.AF_INET6 if ':' in to[0] else socket.AF_INET
for connected in (True, False):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(20)
        if connected: one.connect(to)
        say = one.send if connected else (lambda text: one.sendto(text, to))
        heard = []
        for start in range(0, 2000, 20):
            for number in range(start, start + 20): say(b'%d' % number)
            for _ in range(20): heard.append(int(one.recv(100)))
        big = bytes(range(256)) * 256
        say(big[:65507])
        whole = one.recv(70000) == big[:65507]
        one.setblocking(False)
        try: more = one.recv(10)
        except BlockingIOError: more = None
        print('in order', heard == list(range(2000)), 'whole', whole, 'more', more)
with socket.socket(family, socket.SOCK_DGRAM) as one:
    one.settimeout(20)
    one.connect(to)
    one.send(b'end')
    print(one.recv(10), one.getpeername()[1] == to[1])
    # The server is gone when its port is free.
    while True:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as other: other.bind(to)
            break
        except OSError as error: assert error.errno == errno.EADDRINUSE
    print(one.send(b'more'))
    select.select([one], [], [], 20)
    for call in (lambda: one.recv(10), lambda: one.send(b'again'), lambda: one.recv(10)):
        try: print(call())
        except OSError as error: print(errno.errorcode[error.errno])
";

/// Datagrams that programs have received from the kernel of host `a`.
fn kernels_datagrams(testbed: &Testbed) -> u64 {
    kernel_tcp::datagrams(testbed.a())
}

/// Programs without the library.
const SUPERVISED: [&str; 2] = ["--supervise", "only"];

#[test]
fn programs_of_both_loopbacks_lose_nothing_and_hear_nothing_twice() {
    nothing_is_lost_or_twice("loopback-udp", &[], "ECONNREFUSED");
}

#[test]
fn supervised_programs_of_both_loopbacks_lose_nothing_and_hear_nothing_twice() {
    // Plain calls say so of every error of the network.
    nothing_is_lost_or_twice("loopback-udp-supervised", &SUPERVISED, "ECONNRESET");
}

/// Where each program that is run so is run with these flags; what a call says at a port that nobody has.
fn nothing_is_lost_or_twice(test: &str, flags: &[&str], refused: &str) {
    let Some(testbed) = Testbed::new(test, &["python3"], &[]) else {
        return;
    };
    let both = [&["run", "--loopback"], flags, &["--"]].concat();
    let strict = ["run", "--loopback", "--policy", "engine-only"];
    let strict = [&strict, flags, &["--"]].concat();
    let plain = ["run", "--policy", "kernel-only", "--"];
    let answered = "in order True whole True more None\n".repeat(2)
        + &format!("b'end' True\n4\n{refused}\n5\n{refused}\n");
    let mut port = 7100;
    let mut echoed = |address: &str, server: &[&str], client: &[&str]| {
        port += 1;
        let port = port.to_string();
        let server_line = server;
        let mut server = testbed.start(server, &["python3", "-c", ECHO, address, &port]);
        let is_bound = |server: &testkit::Program| server.stdout().contains("bound");
        server.wait_until("bound", PATIENCE, is_bound).unwrap();
        let asked = match address {
            "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            address => address,
        };
        let told = testbed.ask(client, &["python3", "-c", ASK, asked, &port]);
        let answered = match client == plain {
            true => answered.replace(refused, "ECONNREFUSED"),
            false => answered.clone(),
        };
        assert_eq!(told, answered, "{address} {server_line:?} {client:?}");
        assert!(server.finish(PATIENCE, || false).unwrap().status.success());
    };
    for address in ["127.0.0.1", "127.0.0.9", "0.0.0.0", "::1", "::"] {
        echoed(address, &both, &both);
        echoed(address, &strict, &strict);
    }
    // Nobody hears the kernel's: what finds no socket there is counted as something else.
    assert_eq!(kernels_datagrams(&testbed), 0);
    for address in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
        for (server, client) in [(&both[..], &plain[..]), (&plain, &both)] {
            echoed(address, server, client);
        }
    }
    assert!(kernels_datagrams(&testbed) > 0);
}

/// A client with a peer that is served by the kernel first, then by the engine, and by the kernel again.
const STAYS: &str = "
import os, socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(20)
one.connect(('127.0.0.1', 7200))
print('connected', flush=True)
for line in os.fdopen(os.open(sys.argv[1], os.O_RDWR)):
    one.send(line.strip().encode())
    print(one.recv(100).decode(), flush=True)
";

#[test]
fn a_peer_may_change_its_stack() {
    peer_changes_its_stack("loopback-udp-change", &[]);
}

#[test]
fn the_peer_of_a_supervised_program_may_change_its_stack() {
    peer_changes_its_stack("loopback-udp-change-supervised", &SUPERVISED);
}

fn peer_changes_its_stack(test: &str, flags: &[&str]) {
    let Some(testbed) = Testbed::new(test, &["python3"], &[]) else {
        return;
    };
    let both = [&["run", "--loopback"], flags, &["--"]].concat();
    let plain = ["run", "--policy", "kernel-only", "--"];
    let fifo = testbed.folder.join("words");
    let fifo = fifo.to_str().unwrap();
    testkit::run(testbed.a(), "mkfifo", &[fifo]);
    let mut client = testbed.start(&both, &["python3", "-c", STAYS, fifo]);
    let mut told = "connected\n".to_owned();
    for (turn, prefix) in [&plain[..], &both, &plain, &both].into_iter().enumerate() {
        let mut server = testbed.start(prefix, &["python3", "-c", ECHO, "127.0.0.1", "7200"]);
        let is_bound = |server: &testkit::Program| server.stdout().contains("bound");
        server.wait_until("bound", PATIENCE, is_bound).unwrap();
        let before = kernels_datagrams(&testbed);
        for word in [format!("{turn}"), "end".to_owned()] {
            std::fs::write(fifo, format!("{word}\n")).unwrap();
            told += &format!("{word}\n");
            let is_told = |client: &testkit::Program| client.stdout() == told;
            client.wait_until("an answer", PATIENCE, is_told).unwrap();
        }
        assert!(server.finish(PATIENCE, || false).unwrap().status.success());
        let is_kernels = kernels_datagrams(&testbed) > before;
        assert_eq!(is_kernels, turn % 2 == 0, "turn {turn}");
    }
}

/// Joins a group by no interface in each way there is.
const JOINS: &str = "
import errno, socket, struct
group, any = socket.inet_aton('239.1.2.3'), socket.inet_aton('0.0.0.0')
sin = struct.pack('=HH4s8x', socket.AF_INET, 0, group)
for name, value in (
    (socket.IP_ADD_MEMBERSHIP, group + any),
    (socket.IP_ADD_MEMBERSHIP, group + any + struct.pack('=i', 0)),
    (42, struct.pack('=I4x', 0) + sin.ljust(128, b'\\0')),
):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(('0.0.0.0', 0))
        try: print(one.setsockopt(socket.IPPROTO_IP, name, value))
        except OSError as error: print(errno.errorcode[error.errno])
";

#[test]
fn a_group_that_no_route_leads_to_is_on_no_interface() {
    let Some(testbed) = Testbed::new("loopback-groups", &["python3"], &[]) else {
        return;
    };
    let told = |prefix: &[&str]| testbed.ask(prefix, &["python3", "-c", JOINS]);
    let plain = told(&["run", "--policy", "kernel-only", "--"]);
    assert_eq!(plain, "ENODEV\n".repeat(3));
    assert_eq!(told(&["run", "--loopback", "--"]), plain);
    assert_eq!(told(&["run", "--"]), plain);
}
