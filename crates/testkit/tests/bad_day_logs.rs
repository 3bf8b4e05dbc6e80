//! Nobody reads what Shunt has to say, or there is no room for it: neither an engine nor a program may end or wait
//! because of that, though an ordinary user can make an engine say a line as often as they like.
//!
//! Without hosts of its own or python3 a test is skipped, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::{
    EngineState, PATIENCE, Program, Witness, python, shunt, wait_for,
    world::{self, Mode, World},
};

/// Attaches so many times as a program does, and spoils the rings: each time the engine says that it drops a program.
const PEST: &str = "
import os, socket, struct, sys, time
# Whatever version the engine speaks.
HELLO = b'SHNT' + struct.pack('<HHHHI', 0, 1, 0, 65535, os.getpid())
lines, until_s = int(sys.argv[1]), time.monotonic() + 240
while lines and time.monotonic() < until_s:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.settimeout(60)
        one.connect('\\0shunt/engine')
        one.send(HELLO)
        _, given, _, _ = socket.recv_fds(one, 4096, 3)
        # Refused while what was dropped before is still being cleared away.
        if len(given) != 3: continue
        memory, _, bell = given
        os.pwrite(memory, b'\\xff' * min(os.fstat(memory).st_size, 1 << 20), 0)
        os.write(bell, struct.pack('=Q', 1))
        while one.recv(4096): pass
        for fd in given: os.close(fd)
        lines -= 1
assert not lines, f'{lines} lines were not said'
print('done', flush=True)
";

/// More lines than the pipes and the file system below have room for: each has a hundred bytes and more.
const LINES: usize = 60;

/// Makes standard error a pipe that takes 4096 bytes, whose reader is this process, which never reads, or nobody.
const PIPE: &str = "
import fcntl, os, sys
reader, writer = os.pipe()
fcntl.fcntl(writer, 1031, 4096)
os.dup2(writer, 2)
if sys.argv[1] == 'unread': os.set_inheritable(reader, True)
else: os.close(reader)
os.execvp(sys.argv[2], sys.argv[2:])
";

/// An engine whose standard error is made by `words`, which end before the engine's own; it is asked until it serves.
fn engine_with(test: &str, way: Mode, words: &[&str]) -> Option<World> {
    let mut world = World::without_engine(test, way);
    let shunt = shunt().display().to_string();
    let cores = if way == Mode::Cores { "2" } else { "1" };
    let own = [shunt.as_str(), "engine", "--cores", cores];
    let mut engine = world.start("a", &[words, &own].concat());
    let mut is_denied = false;
    engine
        .wait_until("answer of the engine", PATIENCE, |engine| {
            is_denied = engine.stdout().contains("denied");
            is_denied || world.status().contains("\"pid\"")
        })
        .unwrap_or_else(|error| panic!("{error}"));
    if is_denied {
        world::skip(test, "no file system can be mounted here");
        return None;
    }
    world.engine = Some(engine);
    Some(world)
}

/// Makes the engine say [`LINES`] lines. Ends when it has said them, though nobody may have read them.
fn make_lines(world: &World) {
    let words = ["python3", "-c", PEST, &LINES.to_string()];
    let pest = world.start("a", &words).finish(5 * PATIENCE, || false);
    let pest = pest.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        world::seen(&pest),
        (Some(0), "done\n", ""),
        "{:?}",
        world.way
    );
}

fn lost_lines(world: &World) -> u64 {
    world.report("status")["lost_log_lines"].as_u64().unwrap()
}

/// A witness notices nothing while a user makes the engine say more than can be written.
/// `loses`: what is said cannot be written, and that is known.
fn nobody_notices(test: &str, stderr: &[&str], loses: bool) {
    if !world::can_run(test, &["python3"]) {
        return;
    }
    for way in [Mode::Engine, Mode::Cores] {
        let Some(world) = engine_with(test, way, stderr) else {
            return;
        };
        let before = EngineState::settled(&world);
        let mut witness = Witness::start(&world);
        make_lines(&world);
        witness.goes_on(20);
        if loses {
            wait_for("lost lines", PATIENCE, || lost_lines(&world) > 0);
            let shunt = shunt().display().to_string();
            let told = world::finish(world.start("a", &[&shunt, "status"])).stdout;
            assert!(
                told.contains("lines of the engine's log were lost"),
                "{told}"
            );
        }
        witness.finish(40);
        before.with_tables().assert_back_in(&world);
        ends_when_asked(world);
    }
}

/// A log that cannot be written does not keep an engine from its end either.
fn ends_when_asked(mut world: World) {
    let engine = world.engine.take().unwrap();
    engine.signal(rustix::process::Signal::TERM).unwrap();
    let ended = engine.finish(PATIENCE, || false).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn an_engine_whose_log_is_on_a_full_device_serves_on() {
    let full = ["sh", "-c", "exec 2>/dev/full; exec \"$@\"", "sh"];
    nobody_notices("bad-day-full", &full, true);
}

#[test]
fn an_engine_whose_log_nobody_reads_any_more_serves_on() {
    nobody_notices("bad-day-closed", &["python3", "-c", PIPE, "closed"], true);
}

#[test]
fn an_engine_whose_log_fills_a_pipe_serves_on() {
    nobody_notices("bad-day-unread", &["python3", "-c", PIPE, "unread"], false);
}

#[test]
fn an_engine_whose_log_fills_its_file_system_serves_on() {
    let script = "mkdir -p $HOME/log && mount -t tmpfs -o size=4k none $HOME/log 2>&1 || { echo denied; exec sleep 600; }
        exec 2>$HOME/log/file; exec \"$@\"";
    let tmpfs = ["unshare", "--mount", "sh", "-c", script, "sh"];
    nobody_notices("bad-day-disk", &tmpfs, true);
}

#[test]
fn what_waited_is_written_once_somebody_reads() {
    let test = "bad-day-room";
    if !world::can_run(test, &["python3"]) {
        return;
    }
    // The reader begins to read when there is a file of that name.
    let late = "
import fcntl, os, sys, time
reader, writer = os.pipe()
fcntl.fcntl(writer, 1031, 4096)
if os.fork() == 0:
    os.close(writer)
    while not os.path.exists(os.environ['HOME'] + '/read'): time.sleep(0.01)
    while part := os.read(reader, 65536): os.write(1, part)
    os._exit(0)
os.close(reader)
os.dup2(writer, 2)
os.close(writer)
os.execvp(sys.argv[1], sys.argv[1:])
";
    let mut world = engine_with(test, Mode::Engine, &["python3", "-c", late]).unwrap();
    make_lines(&world);
    std::fs::write(world.folder.join("read"), "").unwrap();
    let mut engine = world.engine.take().unwrap();
    let dropped = |engine: &Program| engine.stdout().matches("dropping a program").count();
    engine
        .wait_until("all lines", PATIENCE, |engine| dropped(engine) == LINES)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(
        engine.stdout().contains("serving"),
        "the first lines are there"
    );
}

/// A program whose standard error takes nothing: it is served by the engine until that dies, then by the kernel. Each
/// is worth a line on standard error to the library.
const PROGRAM: &str = "
import os, resource, signal, socket, sys
kind, peer = sys.argv[1], (sys.argv[2], 8000)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
reader, writer = os.pipe()
if kind == 'full':
    os.set_blocking(writer, False)
    try:
        while True: os.write(writer, b'x' * 4096)
    except BlockingIOError: os.set_blocking(writer, True)
elif kind == 'closed': os.close(reader)
else: writer = os.open(os.environ['HOME'] + '/stderr', os.O_WRONLY | os.O_CREAT)
os.dup2(writer, 2)
def connect():
    one = socket.create_connection(peer, 60)
    one.sendall(b'word')
    assert one.recv(4) == b'word'
    return one
one = connect()
if kind == 'limit': resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print('served', flush=True)
try: assert one.recv(4) == b''
except ConnectionError: pass
print('reset', flush=True)
connect()
print('alive', flush=True)
";

#[test]
fn a_program_whose_standard_error_takes_nothing_goes_on() {
    let test = "bad-day-program";
    if !world::can_run(test, &["python3"]) {
        return;
    }
    for (way, flags) in [
        (Mode::Engine, &[][..]),
        (Mode::Supervised, &["--supervise", "only"]),
    ] {
        let mut world = World::new(test, way);
        let mut echo = world.start_peer(&["python3", "-c", python::ECHO_AT_8000]);
        echo.wait_listening(8000, PATIENCE).unwrap();
        let (shunt, peer) = (shunt().display().to_string(), world.peer_address());
        let mut programs = ["full", "closed", "limit"].map(|kind| {
            let program = ["--", "python3", "-c", PROGRAM, kind, &peer];
            let words = [&[shunt.as_str(), "run"], flags, &program].concat();
            let mut program = world.start("a", &words);
            says(&mut program, "served");
            program
        });
        drop(world.engine.take());
        for program in &mut programs {
            says(program, "alive");
        }
        for program in programs {
            let ended = world::finish(program);
            assert_eq!(ended.status.code(), Some(0), "{way:?}: {ended:?}");
        }
    }
}

fn says(program: &mut Program, word: &str) {
    program
        .wait_until(word, PATIENCE, |program| program.stdout().contains(word))
        .unwrap_or_else(|error| panic!("{error}"));
}
