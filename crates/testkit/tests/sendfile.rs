//! sendfile(2) on Shunt over a packet socket: files of all sizes arrive unharmed, sent with an offset
//! and from the file's position, by a process and by its child, and the large ones by reference.
//!
//! Without the privilege to make hosts the test is skipped, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use testkit::{Lab, LabSpec, PATIENCE, host};

/// Sends every file once with an offset, once from its position and once in a child.
const SERVER: &str = "
import os, signal, socket, sys
address, paths = sys.argv[1], sys.argv[2:]
listener = socket.create_server((address, 9000))
print('listening', flush=True)
def send(connection, path, offset):
    with open(path, 'rb') as file:
        size, done = os.stat(path).st_size, 0
        connection.sendall(b'header')
        while True:
            count = os.sendfile(connection.fileno(), file.fileno(), offset and done, size + 10)
            if count == 0:
                break
            done += count
            assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == (0 if offset else done)
        assert done == size, (done, size)
        connection.sendall(b'trailer')
for path in paths:
    for way in ('offset', 'position', 'child'):
        connection, _ = listener.accept()
        child = os.fork() if way == 'child' else 0
        if child == 0:
            send(connection, path, True if way == 'offset' else None)
        connection.close()
        if way == 'child':
            if child == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
print('done', flush=True)
signal.pause()
";

/// Receives until each connection ends and prints the digests.
const CLIENT: &str = "
import hashlib, socket, sys
for _ in range(int(sys.argv[2])):
    digest = hashlib.sha256()
    with socket.create_connection((sys.argv[1], 9000), timeout=20) as connection:
        while block := connection.recv(1 << 20):
            digest.update(block)
    print(digest.hexdigest(), flush=True)
";

/// What each connection carries.
const DIGEST: &str = "
import hashlib, sys
for path in sys.argv[1:]:
    print(hashlib.sha256(b'header' + open(path, 'rb').read() + b'trailer').hexdigest())
";

struct Folder(PathBuf);

impl Folder {
    /// In the build folder, which is on a local file system.
    fn new() -> Self {
        let test = std::env::current_exe().unwrap();
        let name = format!("sendfile-{}", std::process::id());
        let path = test.parent().unwrap().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, len: usize) -> String {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        let bytes: Vec<u8> = words.flatten().take(len).collect();
        let path = self.0.join(format!("content-{len}"));
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_of_all_sizes_arrive_unharmed_and_large_ones_go_by_reference() {
    let lab = match Lab::temporary("t-sendfile", &LabSpec::default()) {
        Ok(lab) => lab,
        Err(error) => {
            // Not by a macro: libtest would keep it to itself.
            let _ = writeln!(std::io::stderr(), "skipped: sendfile: {error}");
            return;
        }
    };
    let folder = Folder::new();
    let sizes = [0, 1, 4095, 4096, (1 << 20) + 1, 64 << 20];
    let paths = sizes.map(|len| folder.file(len));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let shunt = testkit::shunt().to_str().unwrap();
    let engine = testkit::once_serving(testkit::start(host(&lab, "a"), shunt, &["engine"]));
    let address = host(&lab, "a").spec().engine_address.address.to_string();
    let run = [
        "run",
        "--policy",
        "engine-only",
        "--",
        "python3",
        "-c",
        SERVER,
    ];
    let arguments = [&run[..], &[&address], &paths].concat();
    let mut server = testkit::start(host(&lab, "a"), shunt, &arguments);
    let listens = |server: &testkit::Program| server.stdout().contains("listening");
    server.wait_until("server", PATIENCE, listens).unwrap();

    let count = (3 * paths.len()).to_string();
    let received = testkit::run(
        host(&lab, "b"),
        "python3",
        &["-c", CLIENT, &address, &count],
    );
    let expected = testkit::run(
        host(&lab, "b"),
        "python3",
        &[&["-c", DIGEST], &paths[..]].concat(),
    );
    let three_times = |digest| [digest; 3];
    let expected: Vec<&str> = expected.stdout.lines().flat_map(three_times).collect();
    assert_eq!(received.stdout.lines().collect::<Vec<_>>(), expected);

    let done = |server: &testkit::Program| server.stdout().contains("done");
    server
        .wait_until("end of the server", PATIENCE, done)
        .unwrap();
    // The engine keeps pieces of a file mapped as long as the file is shared.
    let maps = fs::read_to_string(format!("/proc/{}/maps", engine.serving_pid())).unwrap();
    for (path, is_large) in paths.iter().zip(sizes.map(|len| len > 1 << 20)) {
        let is_mapped = maps.lines().any(|line| line.ends_with(path));
        assert_eq!(is_mapped, is_large, "{path}");
    }
}
