//! Listeners and clients over loopback on an engine that come and go: each connection is the engine's, whenever it is begun.

use super::Testbed;

/// Listens on a port, takes a connection, and closes, over and over.
const COMES_AND_GOES: &str = "
import socket, sys
for _ in range(int(sys.argv[2])):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((sys.argv[1], 7300))
        listener.listen()
        one, _ = listener.accept()
        with one: one.sendall(b'x' + one.recv(1))
print('served')
";

/// Connects as soon as it can, as often, and says in how many of the connects that were no refusal it or its parent, who may be its supervisor, waited
/// for a processor as long as a listener that is shown waits before the kernel hears for it: a millisecond (decision 42).
const TRIES: &str = "
import glob, os, socket, sys
def waited_ns():
    ns = 0
    for pid in os.getpid(), os.getppid():
        for name in glob.glob(f'/proc/{pid}/task/*/schedstat'):
            try:
                with open(name) as file: ns += int(file.read().split()[1])
            except OSError: pass
    return ns
interrupted = 0
for _ in range(int(sys.argv[2])):
    while True:
        with socket.socket() as one:
            before = waited_ns()
            try:
                one.connect((sys.argv[1], 7300))
                interrupted += waited_ns() - before >= 1_000_000
                one.sendall(b'y')
                if one.recv(2): break
            except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError): pass
print(interrupted)
";

/// Further connects of all whom the hypervisor may have interrupted, which no process can see.
const INTERRUPTED_UNSEEN_MAX: u64 = 8;

/// However often somebody was interrupted: half of what went to the kernel before listeners were shown.
const KERNEL_MAX: u64 = 320;

/// As often a listener is made while somebody tries to connect.
const ROUNDS: &str = "400";

#[test]
fn a_listener_in_the_making_leaves_no_connection_to_the_kernel() {
    listeners_leave_nothing_to_the_kernel("loopback-making", &[], &[]);
}

#[test]
fn a_listener_in_the_making_on_two_cores_leaves_no_connection_to_the_kernel() {
    listeners_leave_nothing_to_the_kernel("loopback-making-cores", &["--cores", "2"], &[]);
}

#[test]
fn a_supervised_listener_in_the_making_leaves_no_connection_to_the_kernel() {
    let flags = ["--supervise", "only"];
    listeners_leave_nothing_to_the_kernel("loopback-making-supervised", &[], &flags);
}

fn listeners_leave_nothing_to_the_kernel(test: &str, engine: &[&str], flags: &[&str]) {
    let Some(testbed) = Testbed::new(test, &["python3"], engine) else {
        return;
    };
    let both = [&["run", "--loopback"], flags, &["--"]].concat();
    let mut interrupted: u64 = INTERRUPTED_UNSEEN_MAX;
    for address in ["127.0.0.1", "0.0.0.0"] {
        let line = ["python3", "-c", COMES_AND_GOES, address, ROUNDS];
        let server = testbed.start(&both, &line);
        let line = ["python3", "-c", TRIES, "127.0.0.1", ROUNDS];
        interrupted += testbed.ask(&both, &line).trim().parse::<u64>().unwrap();
        let served = server.finish(testkit::PATIENCE, || false).unwrap();
        assert_eq!(served.stdout, "served\n", "{}", served.stderr);
    }
    let counters = testkit::kernel_tcp::counters(testbed.a());
    // Who goes to the kernel looked before the listener was shown, and was interrupted until the kernel heard. Before listeners were shown four of
    // five went there, and nobody was interrupted.
    println!("{counters:?}, {interrupted} may have been interrupted");
    assert!(counters["PassiveOpens"] <= interrupted.min(KERNEL_MAX));
}

/// What a client's automatic port keeps others from, on its own address and on others; and where a socket may go that has
/// failed on loopback.
const PORTS: &str = "
import errno, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
one = socket.create_connection(listener.getsockname())
name, port = one.getsockname()
print(name)
for address in ('127.0.0.2', '127.0.0.1', '0.0.0.0', sys.argv[1]):
    with socket.socket() as other:
        try:
            other.bind((address, port))
            other.listen()
            print('bound')
        except OSError as error: print(errno.errorcode[error.errno])
with socket.socket(socket.AF_INET6) as dual:
    dual.connect(('::ffff:127.0.0.1', listener.getsockname()[1]))
    print(dual.getsockname()[0])
    with socket.create_server(('127.0.0.2', dual.getsockname()[1])): print('bound')
with socket.socket() as other:
    print(other.connect_ex(('127.0.0.1', 7399)))
    print(other.connect_ex((sys.argv[1], 7398)))
    print(other.connect_ex((sys.argv[2], 22)))
    print(other.connect_ex(listener.getsockname()))
";

#[test]
fn an_automatic_port_on_one_address_of_loopback_is_free_on_others() {
    for cores in ["1", "2"] {
        let test = format!("loopback-ports-{cores}");
        let Some(testbed) = Testbed::new(&test, &["python3"], &["--cores", cores]) else {
            return;
        };
        let plain = ["run", "--policy", "kernel-only", "--"];
        // The kernel's own address of host `a`, and host `b`, where nobody listens.
        let line = ["python3", "-c", PORTS, "10.77.0.1", "10.77.0.2"];
        let expected = testbed.ask(&plain, &line);
        assert!(
            expected.starts_with("127.0.0.1\nbound\nEADDRINUSE"),
            "{expected}"
        );
        assert_eq!(testbed.ask(&["run", "--loopback", "--"], &line), expected);
    }
}
