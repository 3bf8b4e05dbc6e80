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

/// Connects as soon as it can, as often.
const TRIES: &str = "
import socket, sys
refused = cut = 0
for _ in range(int(sys.argv[2])):
    while True:
        with socket.socket() as one:
            try:
                one.connect((sys.argv[1], 7300))
                one.sendall(b'y')
                if one.recv(2): break
                cut += 1
            except ConnectionRefusedError: refused += 1
            except (ConnectionResetError, BrokenPipeError): cut += 1
print('connected')
";

/// Connects of all that may be interrupted for a millisecond between the look whether somebody is there and the kernel's own
/// (docs/decisions/0042-loopback.md), which is the kernel's then. Before listeners were shown four of five went there.
const INTERRUPTED_MAX: u64 = 80;

/// The same where more wants to run than twice the processors, so that somebody is interrupted all the time: half of all.
const INTERRUPTED_BUSY_MAX: u64 = ROUNDS;

/// As often a listener is made while somebody tries to connect, at either address.
const ROUNDS: u64 = 400;

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

/// Whether more wants to run than twice the processors, in the mean of a minute (proc_loadavg(5)).
fn is_busy() -> bool {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = text.split(' ').next().unwrap().parse().unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    load > 2.0 * f64::from(u32::try_from(processors).unwrap())
}

fn listeners_leave_nothing_to_the_kernel(test: &str, engine: &[&str], flags: &[&str]) {
    let Some(testbed) = Testbed::new(test, &["python3"], engine) else {
        return;
    };
    let both = [&["run", "--loopback"], flags, &["--"]].concat();
    let (rounds, was_busy) = (ROUNDS.to_string(), is_busy());
    for address in ["127.0.0.1", "0.0.0.0"] {
        let line = ["python3", "-c", COMES_AND_GOES, address, &rounds];
        let server = testbed.start(&both, &line);
        let line = ["python3", "-c", TRIES, "127.0.0.1", &rounds];
        assert_eq!(testbed.ask(&both, &line), "connected\n", "{address}");
        let served = server.finish(testkit::PATIENCE, || false).unwrap();
        assert_eq!(served.stdout, "served\n", "{}", served.stderr);
    }
    let most = match was_busy || is_busy() {
        true => INTERRUPTED_BUSY_MAX,
        false => INTERRUPTED_MAX,
    };
    // Of this host's network namespace alone.
    let counters = testkit::kernel_tcp::counters(testbed.a());
    assert!(counters["PassiveOpens"] <= most, "{most}: {counters:?}");
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
