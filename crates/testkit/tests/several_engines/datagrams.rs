//! UDP: one socket of an unmodified program on the kernel and on two engines.

use rustix::process::Signal;
use serde_json::Value;
use testkit::{PATIENCE, Program, host, wait_for};

use super::{FIRST, SECOND, SECOND_OWN, SECOND_PEER, Testbed, shunt};

/// Answers whatever comes to ANY, and waits for it in another way each time; forks first where it is told.
const HEARING: &str = "
import os, select, socket, struct, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(('0.0.0.0', 7001))
if sys.argv[1] == 'fork' and os.fork() > 0:
    os.wait()
    sys.exit()
level, edge, poll = select.epoll(), select.epoll(), select.poll()
level.register(one, select.EPOLLIN)
edge.register(one, select.EPOLLIN | select.EPOLLET)
poll.register(one, select.POLLIN)
def limit(seconds):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', seconds, 0))
ways = [lambda: limit(600), lambda: limit(0), poll.poll, lambda: select.select([one], [], []), level.poll, edge.poll]
print('bound', flush=True)
n = 0
while True:
    ways[n % len(ways)]()
    if n % 2:
        looked_at = one.recvfrom(100, socket.MSG_PEEK)
    what, peer = one.recvfrom(100)
    assert n % 2 == 0 or (what, peer) == looked_at
    one.sendto(what, peer)
    n += 1
";

/// Asks each address a few times from the own one that is named with it, and says who has answered.
const ASKING: &str = "
import socket, sys
def ask(one, word, to):
    one.sendto(word, (to, 7001))
    while True:
        try:
            answer, peer = one.recvfrom(100)
        except TimeoutError:
            one.sendto(word, (to, 7001))
            continue
        if answer == word:
            return peer
for own, to in (words.split(',') for words in sys.argv[1:]):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind((own, 0))
    one.settimeout(1)
    print(to, *sorted({ask(one, b'%d' % n, to)[0] for n in range(12)}), flush=True)
";

/// Answers with the address that it was spoken to from, and what was said.
const TELLING: &str = "
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(('0.0.0.0', 8001))
print('listening', flush=True)
while True:
    what, peer = one.recvfrom(100)
    one.sendto(peer[0].encode() + b' ' + what, peer)
";

/// What the programs below begin with: `seen` says which address a peer is spoken to from.
const SEEN: &str = "
import ctypes, errno, itertools, select, signal, socket, subprocess, sys
numbers = map(str, itertools.count())
def made():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.settimeout(1)
    return one
def seen(one, to=None):
    number = next(numbers)
    say = lambda: one.sendto(number.encode(), (to, 8001)) if to else one.send(number.encode())
    say()
    while True:
        try:
            own, told = one.recv(100).decode().split()
        except TimeoutError:
            say()
            continue
        if told == number:
            return own
first, second, own_second = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
";

/// The kernel's table is read once a second: until then it gets what it has no way for any more.
const FLIPPING: &str = "
one = made()
def again():
    try:
        return seen(one, second)
    except OSError as error:
        assert error.errno == errno.ENETUNREACH
print('unbound', seen(one, first), seen(one, second), flush=True)
way = [second + '/32', 'dev', 'eth0']
subprocess.run(['ip', 'route', 'add', *way], check=True)
while again() == own_second: pass
print('flipped', seen(one, second), flush=True)
subprocess.run(['ip', 'route', 'del', *way], check=True)
while again() != own_second: pass
print('back', seen(one, first), seen(one, second), flush=True)
";

const CONNECTING: &str = "
one = made()
one.bind(('0.0.0.0', 7003))
for peer in second, first, second:
    one.connect((peer, 8001))
    print('to', one.getpeername()[0], 'by', seen(one), one.getsockname(), flush=True)
assert ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16) == 0
print('apart', one.getsockname(), seen(one, first), seen(one, second), flush=True)

refused = made()
refused.connect((second, 9))
while True:
    try:
        refused.send(b'x')
        refused.recv(1)
    except TimeoutError:
        continue
    except ConnectionRefusedError:
        break
while refused.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != errno.ECONNREFUSED:
    try:
        refused.send(b'x')
    except ConnectionRefusedError:
        pass
    select.select([refused], [], [], 1)
print('refused', flush=True)

queue = made()
queue.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
events = select.poll()
events.register(queue, 0)
while True:
    queue.sendto(b'lost', (second, 9))
    if events.poll(1000):
        break
what, _, _, whom = queue.recvmsg(100, 1000, 0x2000)  # MSG_ERRQUEUE
print('error queue', what, whom, flush=True)

def bound(address):
    one = made()
    try:
        one.bind(address)
    except OSError as error:
        return errno.errorcode[error.errno]
    return one
two = bound((own_second, 7004))
print('bound', seen(two, second), bound((own_second, 7004)), bound(('0.0.0.0', 7004)), bound((own_second, 7003)), flush=True)
three = made()
three.connect((second, 8001))
print('holds', flush=True)
signal.sigwait({signal.SIGUSR1})
for each in one, refused, queue, two, three:
    each.close()
print('closed', flush=True)
signal.pause()
";

/// Hears a group and everybody, until each stack has brought its last word.
const COUNTING: &str = "
import socket, struct
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(('', 7006))
group = socket.inet_aton('239.1.2.3')
one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + bytes(4))
print('listening', flush=True)
heard = []
while not {'first', 'second', 'kernel'} <= set(heard):
    heard.append(one.recv(100).decode())
print(*sorted(heard), flush=True)
one.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, group + bytes(4))
";

const CALLING: &str = "
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], 0))
one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
one.sendto(b'group', ('239.1.2.3', 7006))
one.sendto(b'everybody', (sys.argv[1].rpartition('.')[0] + '.255', 7006))
for word, to in zip((b'first', b'second', b'kernel'), sys.argv[2:]):
    one.sendto(word, (to, 7006))
";

impl Testbed {
    /// A Python program on both engines that has said `word`.
    fn run(&self, program: &str, words: &[&str], word: &str) -> Program {
        let line = ["run", "--engine", FIRST, "--engine", SECOND, "--"];
        let line = [&line[..], &["python3", "-c", program], words].concat();
        let mut program = testkit::start(self.a(), shunt(), &line);
        // What it says with that is there too.
        let says = |program: &Program| program.lines().iter().any(|line| line.contains(word));
        program.wait_until(word, PATIENCE, says).unwrap();
        program
    }

    fn peers_program(&self, program: &str, word: &str) -> Program {
        let mut peer = testkit::start(host(&self.lab, "b"), "python3", &["-c", program]);
        let says = |peer: &Program| peer.stdout().contains(word);
        peer.wait_until(word, PATIENCE, says).unwrap();
        peer
    }

    /// Who answers from those addresses, asked from host `b`, or from the kernel of host `a` itself.
    fn answers(&self, host_name: &str, pairs: &[(&str, &str)]) -> String {
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(own, to)| format!("{own},{to}"))
            .collect();
        let pairs = pairs.iter().map(String::as_str);
        let line: Vec<&str> = ["-c", ASKING].into_iter().chain(pairs).collect();
        let on = host(&self.lab, host_name);
        let done = testkit::start(on, "python3", &line)
            .finish(PATIENCE, || false)
            .unwrap();
        assert!(done.status.success(), "{}", done.stderr);
        done.stdout
    }

    fn udp_sockets(&self, engine: &str) -> usize {
        let line = ["ss", "--udp", "--engine", engine, "--json"];
        let told = testkit::run(self.a(), shunt(), &line);
        let rows: Value = serde_json::from_str(&told.stdout).unwrap();
        rows.as_array().unwrap().len()
    }
}

#[test]
fn a_udp_socket_on_any_hears_from_all_stacks_however_it_waits_and_answers_each() {
    let Some(mut testbed) = Testbed::new("udp") else {
        return;
    };
    let (first, peer) = (testbed.first_own(), testbed.peer());
    for mode in ["stay", "fork"] {
        let program = testbed.run(HEARING, &[mode], "bound");
        let by_engines = [(&peer[..], &first[..]), (SECOND_PEER, SECOND_OWN)];
        let heard = testbed.answers("b", &by_engines);
        assert_eq!(
            heard,
            format!("{first} {first}\n{SECOND_OWN} {SECOND_OWN}\n")
        );
        let loopback = [("127.0.0.1", "127.0.0.1")];
        assert_eq!(testbed.answers("a", &loopback), "127.0.0.1 127.0.0.1\n");
        if mode == "fork" {
            continue;
        }
        let all = format!("kernel + {FIRST} + {SECOND}");
        assert_eq!(testbed.explain(program.pid())["0.0.0.0:7001"], [all]);
    }
    let _program = testbed.run(HEARING, &["stay"], "bound");
    testbed.engines.pop().unwrap().stop();
    let left = testbed.answers("b", &[(&peer, &first)]);
    assert_eq!(left, format!("{first} {first}\n"));
    let loopback = testbed.answers("a", &[("127.0.0.1", "127.0.0.1")]);
    assert_eq!(loopback, "127.0.0.1 127.0.0.1\n");
}

#[test]
fn each_datagram_goes_where_the_routes_lead_at_that_moment() {
    let Some(testbed) = Testbed::new("udp-routes") else {
        return;
    };
    let (first, kernels, peer) = (testbed.first_own(), testbed.kernels(), testbed.peer());
    let _peer = testbed.peers_program(TELLING, "listening");
    let flipping = [SEEN, FLIPPING].concat();
    let program = testbed.run(&flipping, &[&peer, SECOND_PEER, SECOND_OWN], "back");
    let told = program.stdout();
    let expected =
        format!("unbound {first} {SECOND_OWN}\nflipped {kernels}\nback {first} {SECOND_OWN}\n");
    assert_eq!(told, expected);
}

#[test]
fn udp_sockets_with_a_peer_or_an_address_are_on_its_engine_and_leave_nothing_behind() {
    let Some(testbed) = Testbed::new("udp-peers") else {
        return;
    };
    let (first, peer) = (testbed.first_own(), testbed.peer());
    let _peer = testbed.peers_program(TELLING, "listening");
    let connecting = [SEEN, CONNECTING].concat();
    let mut program = testbed.run(&connecting, &[&peer, SECOND_PEER, SECOND_OWN], "holds");
    let second = format!("to {SECOND_PEER} by {SECOND_OWN} ('{SECOND_OWN}', 7003)");
    let expected = [
        second.clone(),
        format!("to {peer} by {first} ('{first}', 7003)"),
        second,
        format!("apart ('0.0.0.0', 7003) {first} {SECOND_OWN}"),
        "refused".to_owned(),
        format!("error queue b'lost' ('{SECOND_PEER}', 9)"),
        format!("bound {SECOND_OWN} EADDRINUSE EADDRINUSE EADDRINUSE"),
        "holds".to_owned(),
    ];
    let told = program.stdout();
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    let stacks = testbed.explain(program.pid());
    let all = format!("kernel + {FIRST} + {SECOND}");
    assert_eq!(stacks["0.0.0.0:7003"], [all]);
    assert_eq!(stacks[&format!("{SECOND_OWN}:7004")], [SECOND]);
    assert_eq!(stacks[&format!("{SECOND_PEER}:8001")], [SECOND]);
    program.signal(Signal::USR1).unwrap();
    let closed = |program: &Program| program.stdout().contains("closed");
    program.wait_until("close", PATIENCE, closed).unwrap();
    for engine in [FIRST, SECOND] {
        wait_for("the sockets' end", PATIENCE, || {
            testbed.udp_sockets(engine) == 0
        });
    }
}

#[test]
fn what_is_for_a_group_or_everybody_comes_once_however_many_stacks_hear_it() {
    let Some(testbed) = Testbed::new("udp-once") else {
        return;
    };
    // Without a route to it a group is on no interface that anybody means (ENODEV).
    testkit::run(
        testbed.a(),
        "ip",
        &["route", "add", "239.0.0.0/8", "dev", "eth0"],
    );
    let (first, kernels, peer) = (testbed.first_own(), testbed.kernels(), testbed.peer());
    let counting = testbed.run(COUNTING, &[], "listening");
    let line = ["-c", CALLING, &peer, &first, SECOND_OWN, &kernels];
    let called = testkit::run(host(&testbed.lab, "b"), "python3", &line);
    assert_eq!(called.stderr, "");
    let done = counting.finish(PATIENCE, || false).unwrap();
    let expected = "listening\neverybody first group kernel second\n";
    assert_eq!(done.stdout, expected, "{}", done.stderr);
    assert!(done.status.success(), "{}", done.stderr);
}
