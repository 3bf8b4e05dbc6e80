//! `shunt send` and `shunt recv` as a user runs them: both directions, standard input, errors, and a gigabyte that
//! survives ten kills.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod transfer_support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use transfer_support::{
    Folder, Guarded, PATIENCE, await_condition, listening, listening_line, run, same, shunt, text,
    token, wait, write_content,
};

#[test]
fn either_end_may_listen() {
    let folder = Folder::new("send-either");
    write_content(&folder.join("f"), 3 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
    let sent = run(&[
        "send",
        source,
        "--to",
        &format!("127.0.0.1:{port}"),
        "--json",
    ]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let said: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(
        (&said["files"], &said["bytes"]),
        (&1.into(), &(3 << 20).into())
    );
    assert!(wait(&mut receiver).success());
    assert!(same(&folder.join("f"), &target.join("f")));

    fs::remove_file(target.join("f")).unwrap();
    let token = token();
    let (mut sender, port) =
        listening(&["send", source, "--listen", "127.0.0.1:0", "--token", &token]);
    let from = format!("127.0.0.1:{port}");
    let stranger = run(&["recv", "--from", &from, "--dir", dir]);
    assert_eq!(stranger.status.code(), Some(2));
    assert!(
        text(&stranger.stderr).contains("--token"),
        "{}",
        text(&stranger.stderr)
    );
    let received = run(&[
        "recv",
        "--from",
        &from,
        "--dir",
        dir,
        "--token",
        &token,
        "--streams",
        "3",
    ]);
    assert!(received.status.success(), "{}", text(&received.stderr));
    let hash = text(&received.stdout);
    assert!(
        hash.contains("received 1 file") && hash.contains("hash "),
        "{hash}"
    );
    assert!(wait(&mut sender).success());
    assert!(same(&folder.join("f"), &target.join("f")));
}

/// A listener that others can reach makes a token and prints it, and nobody comes in without.
#[test]
fn a_listener_that_others_reach_prints_the_token_that_it_made() {
    let folder = Folder::new("send-made");
    write_content(&folder.join("f"), 1 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let (mut receiver, said) = listening_line(&["recv", "--listen", "0.0.0.0:0", "--dir", dir]);
    let words: Vec<&str> = said.split_whitespace().collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).unwrap();
        words[at + 1]
    };
    let (token, port) = (after("--token"), after("--to").rsplit(':').next().unwrap());
    let to = format!("127.0.0.1:{port}");
    for stranger in [&["--token", &self::token()][..], &[]] {
        let refused = run(&[&["send", source, "--to", &to][..], stranger].concat());
        assert_eq!(refused.status.code(), Some(2));
    }
    let sent = run(&["send", source, "--to", &to, "--token", token]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert!(wait(&mut receiver).success());
    assert!(same(&folder.join("f"), &target.join("f")));
}

#[test]
fn with_tls_both_ends_must_say_so() {
    let folder = Folder::new("send-tls");
    write_content(&folder.join("f"), 5 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let token = token();
    let listen = [
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        dir,
        "--tls",
        "--token",
        &token,
    ];
    let (mut receiver, port) = listening(&listen);
    let to = format!("127.0.0.1:{port}");
    let plain = run(&["send", source, "--to", &to, "--token", &token]);
    assert_eq!(plain.status.code(), Some(2));
    assert!(
        text(&plain.stderr).contains("pass --tls"),
        "{}",
        text(&plain.stderr)
    );
    let sent = [
        "send", source, "--to", &to, "--token", &token, "--tls", "--method", "sendfile",
    ];
    let sent = run(&sent);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert!(text(&sent.stderr).contains("sending by read and write"));
    assert!(wait(&mut receiver).success());
    assert!(same(&folder.join("f"), &target.join("f")));
}

#[test]
fn standard_input_becomes_a_file() {
    let folder = Folder::new("send-stdin");
    let target = folder.join("target");
    let dir = target.to_str().unwrap();
    // Nothing at all, less than a block, and several blocks that do not end on a border.
    for len in [0, 5, (9 << 20) + 3] {
        let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
        let to = format!("127.0.0.1:{port}");
        let mut sender = shunt(&["send", "--stdin-name", "in", "--to", &to]);
        let mut sender = Guarded::start(sender.stdin(Stdio::piped()));
        let bytes: Vec<u8> = (0..len)
            .map(|at: usize| (at * at / 7).to_le_bytes()[0])
            .collect();
        sender.stdin.take().unwrap().write_all(&bytes).unwrap();
        let sent = sender.finish();
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        assert!(wait(&mut receiver).success());
        assert_eq!(fs::read(target.join("in")).unwrap(), bytes);
    }
}

#[test]
fn a_daemon_lets_those_wait_whose_turn_has_not_come() {
    let folder = Folder::new("send-daemon");
    write_content(&folder.join("slow"), 64 << 20);
    write_content(&folder.join("quick"), 1 << 20);
    let (slow, quick, target) = (
        folder.join("slow"),
        folder.join("quick"),
        folder.join("target"),
    );
    let dir = target.to_str().unwrap();
    let daemon = [
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        dir,
        "--daemon",
        "--at-once",
        "1",
    ];
    let (mut daemon, port) = listening(&daemon);
    let to = format!("127.0.0.1:{port}");
    let slow = ["send", slow.to_str().unwrap(), "--to", &to, "--rate", "4M"];
    let mut slow = Guarded::start(&mut shunt(&slow));
    await_condition("the first one is at work", || {
        target.join(".slow.shunt-part").exists()
    });
    let quick = ["send", quick.to_str().unwrap(), "--to", &to];
    let mut waiting = Guarded::start(&mut shunt(&quick));
    // Longer than it would take if it had not to wait.
    await_condition("some of the first has come", || {
        target
            .join(".slow.shunt-journal")
            .metadata()
            .is_ok_and(|journal| journal.len() > 200)
    });
    assert!(waiting.try_wait().unwrap().is_none() && !target.join("quick").exists());
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(wait(&mut waiting).success());
    assert!(same(&folder.join("quick"), &target.join("quick")));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn what_cannot_be_is_said_with_the_flag_and_the_next_step() {
    let folder = Folder::new("send-errors");
    let missing = folder.join("missing");
    let (missing, dir) = (missing.to_str().unwrap(), folder.0.to_str().unwrap());
    for (arguments, parts) in [
        (
            &["send", missing, "--to", "127.0.0.1:1"][..],
            &["missing", "no such file"][..],
        ),
        (&["send", dir], &["--to", "--listen"]),
        (
            &["send", dir, "--to", "127.0.0.1:1", "--udp"],
            &["TCP only", "congestion control"],
        ),
        (
            &["send", dir, "--to", "127.0.0.1:1"],
            &["connecting to 127.0.0.1:1", "refused"],
        ),
        (
            &["send", dir, "--to", "127.0.0.1:x"],
            &["--to", "HOST:PORT"],
        ),
        (
            &["send", dir, "--to", "::1", "--rate", "fast"],
            &["--rate", "100M"],
        ),
        (
            &["recv", "--listen", ":0", "--token", "w", "--dir", dir],
            &["--token", "no token that Shunt has made"],
        ),
        (
            &["recv", "--listen", ":0", "--dir", missing],
            &["--dir", "no such folder"],
        ),
    ] {
        let done = run(arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        let said = text(&done.stderr);
        for part in parts {
            assert!(said.contains(part), "{arguments:?}: no {part:?} in {said}");
        }
    }
}

/// How much the file has that is to survive: 1 in `make test`, more in `make long`.
fn gibibytes() -> usize {
    let asked = std::env::var("SHUNT_KILLS_GIB").ok();
    asked.map_or(1, |text| text.parse().unwrap())
}

/// A sender that has run for so long. One that is turned away is started again: the receiver may still be busy
/// with the connection of a sender that was killed.
fn running_for(moment: Duration, sender: impl Fn() -> Command) -> Guarded {
    let patience = Instant::now() + PATIENCE;
    'again: loop {
        let mut child = Guarded::start(&mut sender());
        let until = Instant::now() + moment;
        while Instant::now() < until {
            if let Some(status) = child.try_wait().unwrap() {
                let said = text(&child.finish().stderr);
                assert!(!status.success(), "it ended before it was killed");
                assert!(Instant::now() < patience, "turned away: {said}");
                continue 'again;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        return child;
    }
}

#[test]
fn a_gigabyte_survives_ten_kills_of_either_end() {
    let (folder, gib) = (Folder::new("send-kills"), gibibytes());
    write_content(&folder.join("big"), gib << 30);
    // Slow enough that no try comes to its end.
    let rate = format!("{}M", 60 * gib);
    let (source, target) = (folder.join("big"), folder.join("target"));
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let serve = || listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir, "--daemon"]);
    let (mut receiver, mut port) = serve();
    let send = |port: u16, more: &[&str]| {
        let to = format!("127.0.0.1:{port}");
        shunt(&[&["send", source, "--to", &to, "--json"], more].concat())
    };
    let mut state = 2_463_534_242_u64;
    for kill in 0..10 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let moment = Duration::from_millis(300 + (state >> 33) % 1_200);
        let mut sender = running_for(moment, || send(port, &["--rate", &rate]));
        assert!(!target.join("big").exists());
        if kill % 2 == 0 {
            sender.kill().unwrap();
        } else {
            receiver.kill().unwrap();
            receiver.wait().unwrap();
            (receiver, port) = serve();
        }
        wait(&mut sender);
    }
    // The receiver may still be busy with the connection of a sender that was killed.
    let until = Instant::now() + PATIENCE;
    let said = loop {
        let sent = send(port, &[]).output().unwrap();
        if sent.status.success() {
            break sent.stdout;
        }
        assert!(Instant::now() < until, "{}", text(&sent.stderr));
    };
    let said: Value = serde_json::from_slice(&said).unwrap();
    let (bytes, kept) = (
        said["bytes"].as_u64().unwrap(),
        said["kept_bytes"].as_u64().unwrap(),
    );
    assert_eq!(bytes + kept, (gib as u64) << 30);
    assert!(kept > 100 << 20, "only {kept} bytes were kept");
    assert!(same(&folder.join("big"), &target.join("big")));
    assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}
