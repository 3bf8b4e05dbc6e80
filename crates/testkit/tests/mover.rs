//! `shunt send` and `shunt recv` on Shunt's own sockets: what arrives is what was sent, between two engines and
//! between an engine and the kernel, over both families.
//!
//! Without the privilege to make hosts the test is skipped, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Host, PATIENCE, Program, host};

/// So much that a sender who was told no method comes to choose one.
const LEN: usize = (80 << 20) + 12_345;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let test = std::env::current_exe().unwrap();
        let name = format!("mover-{}", std::process::id());
        let path = test.parent().unwrap().join(name);
        fs::create_dir_all(path.join("target")).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write_content(path: &Path) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let bytes: Vec<u8> = words.flatten().take(LEN).collect();
    fs::write(path, bytes).unwrap();
}

/// Starts a command of this project, on Shunt's sockets alone or on the kernel's.
fn start(host: &Host, on_shunt: bool, arguments: &[&str]) -> Program {
    let shunt = testkit::shunt().to_str().unwrap();
    let run = ["run", "--policy", "engine-only", "--", shunt];
    let line = if on_shunt { &run[..] } else { &[] };
    testkit::start(host, shunt, &[line, arguments].concat())
}

#[test]
fn files_travel_over_shunts_sockets() {
    let Some((lab, _engine_a)) = testkit::served_hosts("mover", &[]) else {
        return;
    };
    let (a, b) = (host(&lab, "a"), host(&lab, "b"));
    let _engine_b = testkit::once_serving(testkit::start(
        b,
        testkit::shunt().to_str().unwrap(),
        &["engine"],
    ));
    let folder = Folder::new();
    let (source, target) = (folder.0.join("source"), folder.0.join("target"));
    write_content(&source);
    let (source, dir) = (source.to_str().unwrap(), target.to_str().unwrap());
    let engine_v4 = a.spec().engine_address.address.to_string();
    let engine_v6 = format!("[{}]", a.spec().engine_address_v6());
    let kernel_v4 = a.spec().address.address.to_string();
    for (receiver_on_shunt, sender_on_shunt, address, more, store) in [
        (true, true, &engine_v4, &[][..], "direct"),
        (
            true,
            true,
            &engine_v6,
            &["--method", "sendfile", "--streams", "3"],
            "splice",
        ),
        (true, false, &engine_v4, &["--method", "splice"], "splice"),
        (true, true, &engine_v4, &[], "mapped"),
        (
            false,
            true,
            &kernel_v4,
            &["--method", "read-write"],
            "splice",
        ),
    ] {
        let what = format!("receiver {receiver_on_shunt}, sender {sender_on_shunt}, {address}");
        let listen = format!("{address}:7333");
        let token = mover::Token::random().unwrap().to_string();
        let arguments = [
            "recv", "--listen", &listen, "--token", &token, "--dir", dir, "--store", store,
        ];
        let mut receiver = start(a, receiver_on_shunt, &arguments);
        let listens = |receiver: &Program| receiver.stderr().contains("listening on");
        receiver.wait_until(&what, PATIENCE, listens).unwrap();
        let arguments = ["send", source, "--to", &listen, "--token", &token, "--json"];
        let sender = start(b, sender_on_shunt, &[&arguments[..], more].concat());
        let sent = sender.finish(PATIENCE, || false).unwrap().success();
        let sent = sent.unwrap_or_else(|error| panic!("{what}: {error}: {}", receiver.stderr()));
        assert!(
            sent.stdout.contains(&format!("\"bytes\":{LEN}")),
            "{what}: {}",
            sent.stdout
        );
        receiver
            .finish(PATIENCE, || false)
            .unwrap()
            .success()
            .unwrap();
        let arrived = target.join("source");
        assert!(
            fs::read(&arrived).unwrap() == fs::read(source).unwrap(),
            "{what}"
        );
        fs::remove_file(arrived).unwrap();
    }
}
