//! `shunt send` and `shunt recv` where the system refuses: calls that fail and are made again, calls that fail for
//! good, no room, no permission, somebody who presses Ctrl-C. A clear error, and nothing under the file's name.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod transfer_support;

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use transfer_support::{
    Folder, Guarded, SHUNT, listening, port_of, run, same, shunt, text, wait, write_content,
};

/// Past libtest's capture.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Whether a program does what is needed here.
fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// `shunt` with calls that fail now and then, see strace(1) on `inject`.
fn injected(faults: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]);
    for fault in faults {
        command.args(["-e", &format!("inject={fault}")]);
    }
    command.arg(SHUNT).args(arguments).env_remove("SHUNT_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

fn listening_with_faults(store: &str, faults: &[&str], dir: &str) -> (Guarded, u16) {
    let arguments = ["recv", "--listen", "127.0.0.1:0", "--store", store];
    let arguments = [&arguments[..], &["--dir", dir]].concat();
    let mut child = Guarded::start(&mut injected(faults, &arguments));
    let port = port_of(&mut child);
    (child, port)
}

#[test]
fn calls_that_fail_for_a_moment_are_made_again() {
    if !works("strace", &["-e", "inject=nanosleep:error=EINTR", "true"]) {
        return skipped("soft errors", "strace cannot inject here");
    }
    let folder = Folder::new("send-soft");
    write_content(&folder.join("f"), 20 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    for (method, call, store) in [
        ("sendfile", "sendfile", "buffered"),
        ("splice", "splice", "splice"),
        ("read-write", "sendto", "mapped"),
        ("sendfile", "sendfile", "direct"),
    ] {
        // The loader reads libraries by pread64 as well: not its first calls.
        let (mut receiver, port) = listening_with_faults(
            store,
            &[
                "splice:error=ENOMEM:when=2+5",
                "io_uring_enter:error=EINTR:when=2+3",
                "pwrite64:error=ENOMEM:when=2+5",
                "recvfrom:error=EINTR:when=3+7",
                "sendto:error=ENOBUFS:when=2+6",
            ],
            dir,
        );
        let to = format!("127.0.0.1:{port}");
        let arguments = ["send", source, "--to", &to, "--method", method];
        let sent = injected(
            &[
                &format!("{call}:error=EAGAIN:when=3+4"),
                "pread64:error=EINTR:when=30+5",
                "recvfrom:error=ENOMEM:when=2+3",
            ],
            &arguments,
        );
        let sent = { sent }.output().unwrap();
        assert!(sent.status.success(), "{method}: {}", text(&sent.stderr));
        assert!(wait(&mut receiver).success(), "{method}");
        assert!(same(Path::new(source), &target.join("f")), "{method}");
        fs::remove_file(target.join("f")).unwrap();
    }
}

#[test]
fn calls_that_fail_for_good_end_the_file_with_their_reason() {
    if !works("strace", &["-e", "inject=nanosleep:error=EINTR", "true"]) {
        return skipped("hard errors", "strace cannot inject here");
    }
    let folder = Folder::new("send-hard");
    write_content(&folder.join("f"), 8 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    for (store, faults, reason) in [
        (
            "buffered",
            &["pwrite64:error=EIO:when=3"][..],
            "Input/output error",
        ),
        (
            "buffered",
            &["pwrite64:error=ENOSPC:when=3+"],
            "No space left",
        ),
        (
            "buffered",
            &["fdatasync:error=EIO:when=1+"],
            "Input/output error",
        ),
        ("buffered", &["fchmod:error=EPERM:when=1+"], "not permitted"),
        // Into the file, and then the ordinary way too.
        (
            "splice",
            &[
                "splice:error=ENOSPC:when=6+2",
                "pwrite64:error=ENOSPC:when=2+",
            ],
            "No space left",
        ),
        ("mapped", &["pwrite64:error=EDQUOT:when=4+"], "quota"),
        // Nothing of a block is stored.
        ("mapped", &["pwrite64:error=EDQUOT:when=2+"], "quota"),
        ("mapped", &["pwrite64:error=EDQUOT:when=3+"], "quota"),
    ] {
        let fault = format!("{store}: {faults:?}");
        let (mut receiver, port) = listening_with_faults(store, faults, dir);
        let sent = run(&["send", source, "--to", &format!("127.0.0.1:{port}")]);
        let said = text(&sent.stderr);
        assert_eq!(sent.status.code(), Some(1), "{fault}: {said}");
        assert!(said.contains(reason), "{fault}: no {reason:?} in {said}");
        assert_eq!(wait(&mut receiver).code(), Some(1), "{fault}");
        assert!(!target.join("f").exists(), "{fault}");
    }
    // What is there of the tries is of use to the next.
    let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
    let sent = run(&["send", source, "--to", &format!("127.0.0.1:{port}")]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert!(wait(&mut receiver).success());
    assert!(same(Path::new(source), &target.join("f")));
    assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
}

#[test]
fn a_full_disk_is_told_before_the_bytes_move_where_the_size_is_known() {
    let folder = Folder::new("send-full");
    write_content(&folder.join("f"), 20 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let small = format!("mount -t tmpfs -o size=8m none {dir}");
    if !works("unshare", &["-rm", "sh", "-c", &small]) {
        return skipped("full disk", "no mount in a user namespace here");
    }
    let listen = || {
        let script = format!("{small} && exec {SHUNT} recv --listen 127.0.0.1:0 --dir {dir}");
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Guarded::start(command.stderr(Stdio::piped()));
        let port = port_of(&mut child);
        (child, format!("127.0.0.1:{port}"))
    };
    let (mut receiver, to) = listen();
    let sent = run(&["send", source, "--to", &to, "--json"]);
    let said = text(&sent.stderr);
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no room") && said.contains("bytes are needed"),
        "{said}"
    );
    assert!(
        text(&sent.stdout).contains("\"bytes\":0"),
        "{}",
        text(&sent.stdout)
    );
    assert_eq!(wait(&mut receiver).code(), Some(1));
    // Of standard input nobody knows the size.
    let (mut receiver, to) = listen();
    let mut sender = shunt(&["send", "--stdin-name", "in", "--to", &to]);
    let input = fs::File::open(source).unwrap();
    let sent = sender.stdin(Stdio::from(input)).output().unwrap();
    let said = text(&sent.stderr);
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(wait(&mut receiver).code(), Some(1));
}

#[test]
fn a_disk_that_refuses_a_direct_write_ends_the_file() {
    let folder = Folder::new("send-refused");
    write_content(&folder.join("f"), 64 << 20);
    fs::create_dir(folder.join("memory")).unwrap();
    let paths = ["f", "target", "memory", "left"].map(|name| folder.join(name));
    let [source, dir, memory, left] = paths.each_ref().map(|path| path.to_str().unwrap());
    // A disk that has promised more than there is: room can be taken on it, and writes fail nevertheless.
    let disk = format!(
        "mount -t tmpfs -o size=24m none {memory} && truncate -s 128M {memory}/disk &&
        mkfs.ext4 -q -O ^has_journal {memory}/disk && mount -o loop {memory}/disk {dir}"
    );
    if !works("unshare", &["-m", "sh", "-c", &disk]) {
        return skipped("refused writes", "no loop mount, or no mkfs.ext4, here");
    }
    let script = format!(
        "{disk} || exit 1
        {SHUNT} recv --listen 127.0.0.1:0 --store direct --dir {dir}
        status=$?; ls -A {dir} > {left}; exit $status"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut receiver = Guarded::start(command.stderr(Stdio::piped()));
    let to = format!("127.0.0.1:{}", port_of(&mut receiver));
    let sent = run(&["send", source, "--to", &to]);
    let said = text(&sent.stderr);
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(
        said.contains("writing") && said.contains("No space left"),
        "{said}"
    );
    assert_eq!(wait(&mut receiver).code(), Some(1));
    let left = fs::read_to_string(left).unwrap();
    assert!(!left.lines().any(|name| name == "f"), "{left}");
    assert!(left.contains(".f.shunt-part"), "{left}");
}

/// A `shunt recv --daemon` into a small file system of its own, that somebody else fills as soon as some of a file is
/// there, and makes room in again when `free` is.
fn daemon_on_a_disk_that_somebody_fills(store: &str, dir: &str, free: &str) -> (Guarded, u16) {
    let script = format!(
        "mount -t tmpfs -o size=24m none {dir} || exit 1
        await() {{ n=0; until \"$@\" || [ $n -gt 6000 ]; do sleep 0.01; n=$((n+1)); done; }}
        some() {{ [ \"$(stat -c %s {dir}/.f.shunt-journal 2>&-)\" -gt 200 ]; }} 2>&-
        {{ await some; cat /dev/zero > {dir}/filler; await [ -e {free} ]; rm {dir}/filler; : > {free}d; }} 2>&- &
        exec {SHUNT} recv --listen 127.0.0.1:0 --daemon --store {store} --dir {dir}"
    );
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", &script])
        .stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Guarded::start(&mut command);
    let port = port_of(&mut child);
    (child, port)
}

#[test]
fn a_disk_that_somebody_fills_ends_the_file_and_the_next_try_goes_on() {
    let folder = Folder::new("send-filled");
    // With a hole at its end, so that no room is taken before the bytes come.
    write_content(&folder.join("f"), 20 << 20);
    let source = fs::File::options().write(true).open(folder.join("f"));
    source.unwrap().set_len(64 << 20).unwrap();
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let small = format!("mount -t tmpfs -o size=8m none {dir}");
    if !works("unshare", &["-rm", "sh", "-c", &small]) {
        return skipped("filled disk", "no mount in a user namespace here");
    }
    for store in ["buffered", "splice", "mapped"] {
        let free = folder.join(&format!("free-{store}"));
        let (daemon, port) =
            daemon_on_a_disk_that_somebody_fills(store, dir, free.to_str().unwrap());
        let there = Path::new("/proc").join(daemon.id().to_string());
        let there = there.join("root").join(target.strip_prefix("/").unwrap());
        let to = format!("127.0.0.1:{port}");
        let sent = run(&["send", source, "--to", &to, "--rate", "6M"]);
        let said = text(&sent.stderr);
        assert_eq!(sent.status.code(), Some(1), "{store}: {said}");
        assert!(said.contains("No space left"), "{store}: {said}");
        let mut names: Vec<_> = fs::read_dir(&there)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [".f.shunt-journal", ".f.shunt-part", "filler"],
            "{store}"
        );
        fs::write(&free, b"").unwrap();
        let freed = folder.join(&format!("free-{store}d"));
        transfer_support::await_condition("there is room again", || freed.exists());
        let sent = run(&["send", source, "--to", &to, "--json"]);
        assert!(sent.status.success(), "{store}: {}", text(&sent.stderr));
        let said = text(&sent.stdout);
        assert!(
            !said.contains("\"kept_bytes\":0,"),
            "{store}: nothing was kept: {said}"
        );
        assert!(same(Path::new(source), &there.join("f")), "{store}");
        assert_eq!(fs::read_dir(&there).unwrap().count(), 1, "{store}");
    }
}

#[test]
fn ctrl_c_ends_either_side_with_what_arrived_kept() {
    let folder = Folder::new("send-interrupt");
    write_content(&folder.join("f"), 64 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    for who in ["sender", "receiver"] {
        let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
        let to = format!("127.0.0.1:{port}");
        let send = [
            "send",
            source,
            "--to",
            &to,
            "--rate",
            "8M",
            "--interval",
            "1",
        ];
        let mut sender = Guarded::start(&mut shunt(&send));
        // The first line of the table: bytes are on their way.
        let mut line = String::new();
        let mut lines = BufReader::new(sender.stdout.as_mut().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("Gbit/s"), "{line}");
        let asked = if who == "sender" { &sender } else { &receiver };
        let pid = rustix::process::Pid::from_child(asked);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(wait(&mut sender).code(), Some(2), "{who}");
        assert_eq!(wait(&mut receiver).code(), Some(2), "{who}");
        let said = std::io::read_to_string(sender.stderr.take().unwrap()).unwrap();
        assert!(said.contains("run the same commands again"), "{said}");
        assert!(!target.join("f").exists());
        assert!(target.join(".f.shunt-journal").exists());
    }
    let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
    let sent = run(&[
        "send",
        source,
        "--to",
        &format!("127.0.0.1:{port}"),
        "--json",
    ]);
    assert!(!text(&sent.stdout).contains("\"kept_bytes\":0,"));
    assert!(wait(&mut receiver).success());
    assert!(same(Path::new(source), &target.join("f")));
}

#[test]
fn a_sender_that_waits_for_input_can_be_interrupted() {
    let folder = Folder::new("send-idle");
    let target = folder.join("target");
    let dir = target.to_str().unwrap();
    let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
    let to = format!("127.0.0.1:{port}");
    let mut sender = shunt(&["send", "--stdin-name", "in", "--to", &to]);
    let mut sender = Guarded::start(sender.stdin(Stdio::piped()));
    // The hidden file is there: both ends wait for bytes.
    transfer_support::await_condition("the file is begun", || {
        target.join(".in.shunt-part").exists()
    });
    let pid = rustix::process::Pid::from_child(&sender);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(wait(&mut sender).code(), Some(2));
    assert_eq!(wait(&mut receiver).code(), Some(2));
    assert!(!target.join("in").exists());
}
