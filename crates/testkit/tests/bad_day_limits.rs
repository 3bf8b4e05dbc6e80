//! Users and programs that take all they can get of an engine: they are told so, others are served meanwhile, and what the
//! engine holds for them stays within what they may have.

use rustix::process::Signal;
use serde_json::Value;
use testkit::{
    PATIENCE, Program, Witness, port_of, python, shunt, wait_for,
    world::{self, Mode, World},
};

/// Numbers without names: both are ordinary users.
const GREEDY: &str = "61001";
const OTHER: &str = "61002";
/// Answers of the witness, who is root, that come meanwhile.
const MEANWHILE: usize = 50;

/// Makes connections until it is refused, or as many as were asked for, says how many, and has each echo something.
const TAKE: &str = "
import errno, signal, socket, sys
address, port, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
taken, why = [], 'OK'
while len(taken) < most:
    try:
        taken.append(socket.create_connection((address, port), timeout=50))
    except OSError as error:
        why = errno.errorcode.get(error.errno, str(error))
        break
for one in taken:
    one.sendall(b'hello')
    assert one.recv(16) == b'hello'
print('took', len(taken), why, flush=True)
signal.pause()
";

/// Accepts and reads nothing until it is told to; then it reads all to its end and says how much that was.
const NEVER_READS: &str = "
import signal, socket, threading
go = threading.Event()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
listener = socket.create_server(('', 0), backlog=128)
print('port', listener.getsockname()[1], flush=True)
total, lock = 0, threading.Lock()
def serve(one):
    global total
    go.wait()
    while data := one.recv(1 << 20):
        with lock:
            total += len(data)
    one.close()
    with lock:
        print('total', total, flush=True)
def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
signal.sigwait([signal.SIGUSR1])
go.set()
signal.pause()
";

/// Fills connections until no further one is made within two seconds, then says how many and how much that was. Once
/// it is told to it sends no more, and waits for the peer to have read all.
const FILL: &str = "
import select, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
address, port = sys.argv[1], int(sys.argv[2])
filled, total = [], 0
while True:
    one = socket.socket()
    one.settimeout(2)
    try:
        one.connect((address, port))
    except TimeoutError:
        break
    one.setblocking(False)
    # Full is what takes nothing for a while.
    while select.select([], [one], [], 0.5)[1]:
        try:
            total += one.send(bytes(65536))
        except BlockingIOError:
            pass
    filled.append(one)
print('filled', len(filled), total, flush=True)
signal.sigwait([signal.SIGUSR1])
for one in filled:
    one.setblocking(True)
    one.shutdown(socket.SHUT_WR)
    assert one.recv(1) == b''
late = socket.create_connection((address, port), timeout=50)
print('served', flush=True)
";

fn world(test: &str, flags: &[&str]) -> Option<World> {
    if !world::can_run(test, &["python3"]) {
        return None;
    }
    let world = World::with_engine(test, Mode::Engine, flags);
    if world.lab.rootless() {
        world::skip(
            test,
            "a user namespace has one user, root is needed for two",
        );
        return None;
    }
    Some(world)
}

/// A Python program of that user on the engine.
fn start_as(world: &World, user: &str, arguments: &[&str]) -> Program {
    let shunt = shunt().display().to_string();
    let on_engine = [
        &shunt,
        "run",
        "--policy",
        "engine-only",
        "--",
        "python3",
        "-c",
    ];
    let words = [
        &["python3", "-c", python::AS_USER, user][..],
        &on_engine,
        arguments,
    ]
    .concat();
    world.start("a", &words)
}

/// The numbers and words of the line that begins with `word`.
fn said(program: &mut Program, word: &str) -> Vec<String> {
    let line = |program: &Program| {
        let stdout = program.stdout();
        let (whole, _) = stdout.rsplit_once('\n')?;
        let line = whole.lines().rfind(|line| line.starts_with(word))?;
        Some(line.split(' ').skip(1).map(str::to_owned).collect())
    };
    program
        .wait_until(word, PATIENCE, |program| line(program).is_some())
        .unwrap_or_else(|error| panic!("{error}"));
    line(program).unwrap_or_default()
}

fn status(world: &World) -> Value {
    world.report("status")
}

fn log_has(world: &World, text: &str) -> usize {
    let log = world.engine.as_ref().map(Program::stderr);
    log.unwrap_or_default().matches(text).count()
}

#[test]
fn a_user_that_connects_without_end_is_told_so_and_another_is_served() {
    let flags = ["--max-connections", "40"];
    let Some(world) = world("limits-connections", &flags) else {
        return;
    };
    let mut witness = Witness::start(&world);
    let mut echo = world.start_peer(&["python3", "-c", python::ECHO]);
    let (port, address) = (port_of(&mut echo), world.peer_address());
    let take = |user, most| start_as(&world, user, &[TAKE, &address, &port, most]);
    let mut greedy = take(GREEDY, "1000");
    assert_eq!(said(&mut greedy, "took"), ["20", "ENOBUFS"], "half of 40");
    let mut second = take(GREEDY, "1");
    assert_eq!(said(&mut second, "took"), ["0", "ENOBUFS"]);
    let mut other = take(OTHER, "10");
    assert_eq!(said(&mut other, "took"), ["10", "OK"]);
    witness.goes_on(MEANWHILE);
    assert_eq!(status(&world)["limits"]["refused_rows"], 2);
    assert_eq!(log_has(&world, "user 61001 has 20 Connections"), 1);
    assert_eq!(log_has(&world, "user 61002 has"), 0);
    for program in [greedy, second] {
        let killed = program.signal(Signal::KILL);
        killed.unwrap_or_else(|error| panic!("{error}"));
        world::finish(program);
    }
    let mut again = take(GREEDY, "20");
    assert_eq!(said(&mut again, "took"), ["20", "OK"]);
    witness.finish(MEANWHILE);
}

/// What the program's windows take, by the engine's report.
fn memory_kib(world: &World, user: u64) -> u64 {
    let status = status(world);
    let programs = status["attached"].as_array().into_iter().flatten();
    let theirs = programs.filter(|one| one["uid"] == user);
    theirs.filter_map(|one| one["memory_kib"].as_u64()).sum()
}

fn never_reads(test: &str, flags: &[&str], most_kib: u64) {
    let Some(world) = world(test, flags) else {
        return;
    };
    let mut witness = Witness::start(&world);
    let mut greedy = start_as(&world, GREEDY, &[NEVER_READS]);
    let (port, address) = (port_of(&mut greedy), world.tested_address());
    let mut fill = world.start_peer(&["python3", "-c", FILL, &address, &port]);
    let filled: Vec<u64> = said(&mut fill, "filled")
        .iter()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(filled[0] > 1, "{filled:?}");
    // One connection was made when there was almost as much as there may be.
    let taken = memory_kib(&world, 61_001);
    assert!(
        (most_kib / 2..most_kib + 512).contains(&taken),
        "{taken} KiB by {filled:?}"
    );
    let refused = &status(&world)["limits"]["refused_windows"];
    assert!(refused.as_u64() > Some(0), "{refused}");
    witness.goes_on(MEANWHILE);
    let mut echo = start_as(&world, OTHER, &[python::ECHO]);
    let other = port_of(&mut echo);
    let mut served = world.start_peer(&["python3", "-c", TAKE, &address, &other, "5"]);
    assert_eq!(said(&mut served, "took"), ["5", "OK"]);
    // Who is slow loses nothing.
    tell(&greedy);
    tell(&fill);
    said(&mut fill, "served");
    let total = filled[1].to_string();
    wait_for("all bytes", PATIENCE, || {
        said(&mut greedy, "total") == [total.clone()]
    });
    witness.finish(MEANWHILE);
}

#[test]
fn a_program_that_never_reads_holds_no_more_memory_than_a_program_may() {
    never_reads("limits-program", &["--program-memory-mib", "4"], 4 << 10);
}

#[test]
fn a_user_whose_program_never_reads_holds_no_more_memory_than_its_share() {
    never_reads("limits-user", &["--window-memory-mib", "8"], 4 << 10);
}

/// Has a word answered at once, when it is told to sends urgent data, and when it is told to again has another word answered.
const ASK: &str = "
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
one = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=50)
def ask(word):
    one.sendall(word)
    print('answer', one.recv(64).decode(), flush=True)
ask(b'first')
signal.sigwait([signal.SIGUSR1])
one.send(b'!', socket.MSG_OOB)
signal.sigwait([signal.SIGUSR1])
ask(b'second')
signal.pause()
";

fn tell(program: &Program) {
    let told = program.signal(Signal::USR1);
    told.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn urgent_data_and_news_past_the_mark_of_memory_wait_for_no_policy() {
    let flags = ["--window-memory-mib", "8", "--user-share", "95"];
    let Some(world) = world("limits-urgent", &flags) else {
        return;
    };
    let shunt = shunt().display().to_string();
    let run = [&shunt, "run", "--policy", "engine-only"];
    let moderated = ["--notify", "every=1000,us=1000000", "--"];
    let echo = ["python3", "-c", python::ECHO];
    let mut quiet = world.start("a", &[&run[..], &moderated, &echo].concat());
    let (quiet_port, address) = (port_of(&mut quiet), world.tested_address());
    let mut asker = world.start_peer(&["python3", "-c", ASK, &address, &quiet_port]);
    let limit = |name: &str| status(&world)["limits"][name].as_u64().unwrap_or(0);
    assert_eq!(said(&mut asker, "answer"), ["first"]);
    assert_eq!((limit("urgent"), limit("cores_in_urgent_mode")), (0, 0));
    tell(&asker);
    wait_for("urgent data to be told", PATIENCE, || limit("urgent") > 0);
    let mut greedy = start_as(&world, GREEDY, &[NEVER_READS]);
    let port = port_of(&mut greedy);
    let mut fill = world.start_peer(&["python3", "-c", FILL, &address, &port]);
    said(&mut fill, "filled");
    wait_for("urgent mode", PATIENCE, || {
        limit("cores_in_urgent_mode") == 1
    });
    let before = limit("urgent");
    tell(&asker);
    wait_for("the second answer", PATIENCE, || {
        said(&mut asker, "answer") == ["second"]
    });
    assert!(limit("urgent") > before);
    tell(&greedy);
    tell(&fill);
    said(&mut fill, "served");
    wait_for("the end of urgent mode", PATIENCE, || {
        limit("cores_in_urgent_mode") == 0
    });
}
