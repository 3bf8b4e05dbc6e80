//! Clients that write their requests byte by byte, and clients that do not read their answers: others are served meanwhile, the slow lose
//! nothing, and the engine holds afterwards what it held before. The kernel's server goes through the same.

use rustix::process::Signal;
use testkit::{
    EngineState, PATIENCE, Witness, python,
    world::{self, Mode, World, finish},
};

const PORT: &str = "8080";
/// Fetches of the client that is not slow.
const FETCHES: u32 = 10;

/// All slow clients at once.
const BACKLOG: &str = "128";

/// Sixty that write and sixty that do not read, until SIGUSR1: then all fetch the whole file.
const SLOW: &str = "
import hashlib, signal, socket, sys, threading
address, port, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3]
request = b'GET /content HTTP/1.0\\r\\n' + b'X-Slow: ' + 4000 * b'x' + b'\\r\\n\\r\\n'
haste = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: haste.set())
def connect():
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.settimeout(60)
    one.connect((address, port))
    return one
writers = [connect() for _ in range(60)]
readers = [connect() for _ in range(60)]
for one in readers:
    one.sendall(request)
print('begun', flush=True)
sent = 0
while not haste.wait(0.01) and sent < len(request) - 1:
    for one in writers:
        one.sendall(request[sent:sent + 1])
    sent += 1
haste.wait()
for one in writers:
    one.sendall(request[sent:])
def whole(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    answer = b''.join(iter(lambda: one.recv(65536), b''))
    return hashlib.sha256(answer.partition(b'\\r\\n\\r\\n')[2]).hexdigest() == wanted
right = sum(whole(one) for one in writers + readers)
print(sent, right)
";

fn slow(world: &World) {
    let address = world.tested_address();
    let sum = world.content(1_000_000);
    let words = [&address, PORT, &world.path(""), BACKLOG];
    let mut server = world.start_tested(&[&["python3", "-c", python::FILES][..], &words].concat());
    world.wait_ready(&mut server, "b", &format!("{address}:{PORT}"));
    let mut slow = world.start_peer(&["python3", "-c", SLOW, &address, PORT, &sum]);
    slow.wait_until("begun", PATIENCE, |slow| slow.stdout().contains("begun"))
        .unwrap_or_else(|error| panic!("{error}"));
    let out = world.path("fetched");
    let url = format!("http://{address}:{PORT}/content");
    for _ in 0..FETCHES {
        let done = world.run_peer(&["curl", "-sS", "-m", "50", "-o", &out, &url]);
        assert!(done.status.success(), "{:?}: {done:?}", world.way);
        assert_eq!(world::sha256(out.as_ref()), sum, "{:?}", world.way);
    }
    slow.signal(Signal::USR1)
        .unwrap_or_else(|error| panic!("{error}"));
    let said = finish(slow);
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    let ["begun", sent, "120"] = words[..] else {
        panic!("{:?}: {said:?}", world.way);
    };
    assert!(sent.parse::<u32>().is_ok_and(|sent| sent > 0), "{sent}");
    server.stop();
}

#[test]
fn who_is_slow_keeps_nobody_waiting_and_loses_nothing() {
    if !world::can_run("bad-day-slow", &["python3", "curl"]) {
        return;
    }
    for way in [Mode::Engine, Mode::Cores] {
        let world = World::new("bad-day-slow", way);
        let mut witness = Witness::start(&world);
        let before = EngineState::of_world(&world).with_tables();
        slow(&world);
        witness.goes_on(10);
        before.assert_back_in(&world);
        witness.finish(20);
    }
    for way in [Mode::Kernel, Mode::Inline] {
        slow(&World::new("bad-day-slow", way));
    }
}
