//! Connections that no engine carries go by the kernel, and an engine that comes later is used: which stack carried
//! one shows in the address that it was made from.
//!
//! The engines are on host `a`, the peer is on the kernel of host `b`. A program or privilege that is missing skips the
//! test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::{Host, Lab, LabSpec, PATIENCE, Program, host, python, world};

const FIRST: &str = "@shunt/engine";
const SECOND: &str = "@shunt/second";
const SECOND_OWN: &str = "10.77.0.13";

/// Two connections more than the engine has room for, all held: blocking, then not, each asked for an echo. Then one
/// from the engine's own address.
const MORE_THAN_FIT: &str = "
import errno, select, socket, sys
peer, own = (sys.argv[1], 8000), sys.argv[2]
def connect(one, blocking):
    if blocking:
        one.connect(peer)
        return
    one.setblocking(False)
    code = one.connect_ex(peer)
    if code != errno.EINPROGRESS: raise OSError(code, 'connect')
    select.select([], [one], [])
    code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code: raise OSError(code, 'connected')
    one.setblocking(True)
held = []
def attempt(name, blocking=True, bound=None):
    one = socket.socket()
    held.append(one)
    try:
        if bound: one.bind((bound, 0))
        connect(one, blocking)
        one.sendall(b'word')
        assert one.recv(4) == b'word'
        print(name, one.getsockname()[0], one.getpeername()[0], flush=True)
    except OSError as error:
        print(name, errno.errorcode[error.errno], flush=True)
attempt('first')
attempt('second')
attempt('third')
attempt('fourth', blocking=False)
attempt('own', bound=own)
";

/// Connects once when it is told to, and when it is told again until the connection comes from the address named.
const LATE: &str = "
import signal, socket, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
def attempt():
    with socket.socket() as one:
        one.connect((sys.argv[1], 8000))
        one.sendall(b'word')
        assert one.recv(4) == b'word'
        return one.getsockname()[0]
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
print('first', attempt(), flush=True)
signal.sigwait([signal.SIGUSR1])
while (found := attempt()) != sys.argv[2]: time.sleep(0.05)
print('then', found, flush=True)
";

/// Sends datagrams to an address that only the kernel has, to one that the engine reaches, and over loopback.
const DATAGRAMS: &str = "
import errno, socket, sys
kernels, reached = (sys.argv[1], 9), (sys.argv[2], 9)
def attempt(name, act):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            act(one)
            print(name, 'ok', flush=True)
        except OSError as error:
            print(name, errno.errorcode[error.errno], flush=True)
def both(one):
    one.sendto(b'x', reached)
    one.sendto(b'x', kernels)
attempt('sendto', lambda one: one.sendto(b'x', kernels))
attempt('connect', lambda one: one.connect(kernels))
attempt('after another', both)
attempt('reached', lambda one: one.sendto(b'x', reached))
attempt('loopback', lambda one: one.sendto(b'x', ('127.0.0.1', 9)))
";

struct Testbed {
    lab: Lab,
    _echo: Program,
}

impl Testbed {
    fn new(test: &str) -> Option<Testbed> {
        if !world::can_run(test, &["python3"]) {
            return None;
        }
        let lab = Lab::temporary(&format!("t-{test}"), &LabSpec::default()).unwrap();
        let mut echo = testkit::start(host(&lab, "b"), "python3", &["-c", python::ECHO_AT_8000]);
        echo.wait_listening(8000, PATIENCE).unwrap();
        Some(Testbed { lab, _echo: echo })
    }

    fn a(&self) -> &Host {
        host(&self.lab, "a")
    }

    fn own(&self) -> String {
        self.a().spec().engine_address.address.to_string()
    }

    fn kernels(&self) -> String {
        self.a().spec().address.address.to_string()
    }

    fn peer(&self) -> String {
        host(&self.lab, "b").spec().address.address.to_string()
    }

    fn engine(&self, flags: &[&str]) -> Program {
        testkit::once_serving(testkit::start(
            self.a(),
            shunt(),
            &[&["engine"], flags].concat(),
        ))
    }

    /// What a program prints that opens more connections than its engine has room for.
    fn more_than_fit(&self, flags: &[&str]) -> String {
        let _engine = self.engine(&["--max-connections", "2"]);
        let line = ["--", "python3", "-c", MORE_THAN_FIT];
        let (peer, own) = (self.peer(), self.own());
        let line = [&["run"], flags, &line, &[&peer, &own]].concat();
        testkit::run(self.a(), shunt(), &line).stdout
    }
}

fn shunt() -> &'static str {
    testkit::shunt().to_str().unwrap()
}

#[test]
fn connections_that_a_full_engine_refuses_are_the_kernels() {
    let Some(testbed) = Testbed::new("kernel-full") else {
        return;
    };
    let (own, kernels, peer) = (testbed.own(), testbed.kernels(), testbed.peer());
    let handed_back = format!(
        "first {own} {peer}\nsecond {own} {peer}\nthird {kernels} {peer}\nfourth {kernels} {peer}\nown ENOBUFS\n"
    );
    let refused = format!(
        "first {own} {peer}\nsecond {own} {peer}\nthird ENOBUFS\nfourth ENOBUFS\nown ENOBUFS\n"
    );
    let (strict, supervised) = (["--policy", "engine-only"], ["--supervise", "only"]);
    assert_eq!(testbed.more_than_fit(&[]), handed_back);
    assert_eq!(testbed.more_than_fit(&strict), refused);
    assert_eq!(testbed.more_than_fit(&supervised), handed_back);
    assert_eq!(
        testbed.more_than_fit(&[strict, supervised].concat()),
        refused
    );
}

#[test]
fn datagrams_to_where_no_engine_reaches_are_the_kernels_unless_only_the_engine_may_carry_them() {
    const KERNELS: &str = "192.0.2.1";
    let Some(testbed) = Testbed::new("kernel-datagrams") else {
        return;
    };
    let _engine = testbed.engine(&[]);
    let words = ["addr", "add", KERNELS, "dev", "lo"];
    testkit::run(testbed.a(), "ip", &words);
    let peer = testbed.peer();
    for supervise in ["auto", "only"] {
        for (policy, result) in [("auto", "ok"), ("engine-only", "ENETUNREACH")] {
            let flags = ["run", "--policy", policy, "--supervise", supervise, "--"];
            let program = ["python3", "-c", DATAGRAMS, KERNELS, &peer];
            let line = [&flags[..], &program].concat();
            let printed = testkit::run(testbed.a(), shunt(), &line).stdout;
            let expected = format!(
                "sendto {result}\nconnect {result}\nafter another {result}\nreached ok\nloopback ok\n"
            );
            assert_eq!(printed, expected, "{policy}, {supervise}");
        }
    }
}

/// A program that was started while engines ran, of which these end before its first socket and come again after it.
fn used_later(test: &str, engines: &[&str], gone: &[&str], expected: &str) {
    let Some(testbed) = Testbed::new(test) else {
        return;
    };
    let (peer, first_own) = (testbed.peer(), testbed.own());
    let own = format!("{SECOND_OWN}/24");
    let start = |name: &&str| match *name {
        FIRST => testbed.engine(&[]),
        second => testbed.engine(&["--name", second, "--address", &own]),
    };
    let mut running: Vec<(&str, Program)> =
        engines.iter().map(|name| (*name, start(name))).collect();
    let named = engines.iter().flat_map(|name| ["--engine", name]);
    let wanted = if gone.contains(&FIRST) {
        &first_own
    } else {
        SECOND_OWN
    };
    let mut line = vec!["run"];
    line.extend(named);
    line.extend(["--placement", "round-robin", "--"]);
    line.extend(["python3", "-c", LATE, &peer, wanted]);
    let mut program = testkit::start(testbed.a(), shunt(), &line);
    let wait_for = |program: &mut Program, text: &str| {
        let printed = |program: &Program| program.stdout() == text;
        program.wait_until(text, PATIENCE, printed).unwrap();
    };
    wait_for(&mut program, "ready\n");
    for (_, mut engine) in running.extract_if(.., |(name, _)| gone.contains(name)) {
        engine.stop();
    }
    program.signal(rustix::process::Signal::USR1).unwrap();
    wait_for(&mut program, &format!("ready\nfirst {expected}\n"));
    let _again: Vec<Program> = gone.iter().map(start).collect();
    program.signal(rustix::process::Signal::USR1).unwrap();
    let done = program.finish(PATIENCE, || false).unwrap().success();
    let printed = done.unwrap().stdout;
    assert_eq!(printed, format!("ready\nfirst {expected}\nthen {wanted}\n"));
}

#[test]
fn a_program_that_was_started_before_its_engine_uses_it_once_it_is_there() {
    let kernels = LabSpec::default().hosts[0].address.address.to_string();
    used_later("late-only", &[FIRST], &[FIRST], &kernels);
}

#[test]
fn one_of_two_engines_is_used_once_it_is_there() {
    let own = LabSpec::default().hosts[0]
        .engine_address
        .address
        .to_string();
    used_later("late-second", &[FIRST, SECOND], &[SECOND], &own);
}
