//! What `shunt send` and `shunt recv` say: all of a transfer in intervals, and after an error what helps.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod transfer_support;

use serde_json::Value;
use transfer_support::{Folder, listening, run, text, token, wait, write_content};

#[test]
fn intervals_add_up_to_all_that_was_sent() {
    let folder = Folder::new("send-intervals");
    // Over before the first second is: all of it is in the last part.
    write_content(&folder.join("f"), 3 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let dir = target.to_str().unwrap();
    let (mut receiver, port) = listening(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
    let to = format!("127.0.0.1:{port}");
    let source = source.to_str().unwrap();
    let sent = run(&["send", source, "--to", &to, "--interval", "1", "--json"]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert!(wait(&mut receiver).success());
    let lines: Vec<Value> = text(&sent.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (whole, intervals) = lines.split_last().unwrap();
    let parts: u64 = intervals
        .iter()
        .filter_map(|line| line["bytes"].as_u64())
        .sum();
    assert_eq!(whole["bytes"].as_u64(), Some(parts), "{lines:?}");
    assert_eq!(parts, 3 << 20);
    let last = &intervals.last().unwrap()["interval"];
    assert!(last["to_s"].as_f64() > last["from_s"].as_f64(), "{last}");
}

#[test]
fn a_wrong_token_is_said_as_such_and_nothing_is_said_to_be_kept() {
    let folder = Folder::new("send-token");
    write_content(&folder.join("f"), 1 << 20);
    let (source, target) = (folder.join("f"), folder.join("target"));
    let dir = target.to_str().unwrap();
    let (one, another) = (token(), token());
    let listen = [
        "recv",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        dir,
        "--token",
        &one,
    ];
    let (_receiver, port) = listening(&listen);
    let to = format!("127.0.0.1:{port}");
    for token in [&["--token", &another][..], &[]] {
        let words = [&["send", source.to_str().unwrap(), "--to", &to], token].concat();
        let sent = run(&words);
        assert_eq!(sent.status.code(), Some(2));
        let error = text(&sent.stderr);
        assert!(error.contains("the same token to both ends"), "{error}");
        assert!(
            !error.contains("is kept") && !error.contains("printed"),
            "{error}"
        );
    }
}
