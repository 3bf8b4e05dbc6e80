//! What `shunt run` and `shunt doctor FILE` say of a program's way onto Shunt, before anything is started.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    process::Command,
};

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shunt-way-{test}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn program(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The header of a program for this machine that nothing is loaded for.
fn static_program() -> Vec<u8> {
    let mut header = vec![0_u8; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let machine: u16 = if cfg!(target_arch = "x86_64") {
        62
    } else {
        183
    };
    header[18..20].copy_from_slice(&machine.to_le_bytes());
    header[32] = 64;
    header[54] = 56;
    header
}

fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(arguments).env_remove("LD_PRELOAD");
    let output = command.env_remove("SHUNT_ENGINE").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn programs_that_cannot_be_served_are_refused_with_the_reason() {
    let scratch = Scratch::new("refused");
    let fixed = scratch.program("static", &static_program());
    let script = scratch.program("script", format!("#!{fixed}\n").as_bytes());
    let mut narrow = static_program();
    narrow[4] = 1;
    let narrow = scratch.program("narrow", &narrow);
    for (line, reason) in [
        (
            &["--supervise", "never", "--", &fixed][..],
            "statically linked",
        ),
        (
            &["--supervise", "never", "--", &script],
            "statically linked",
        ),
        (
            &["--engine-mode=inline", "--nic", "lo", "--", &fixed],
            "engine inside it",
        ),
        (&["--policy", "kernel-only", "--", &narrow], "32-bit"),
        (&["--", "no-such-program"], "no such program"),
    ] {
        let (code, text) = said(&[&["run"][..], line].concat());
        assert_eq!(code, Some(2), "{line:?}: {text}");
        assert!(text.contains(reason), "{line:?}: {text}");
    }
}

#[test]
fn a_program_that_changes_its_user_is_refused_with_the_bit() {
    let scratch = Scratch::new("set-uid");
    let program = scratch.program("su", &static_program());
    // Only root can give files away.
    let other = rustix::process::geteuid().as_raw().wrapping_add(1);
    if chown(&program, Some(other), None).is_err() {
        return;
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let (code, text) = said(&["run", "--", &program]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("set-user-id"), "{text}");
    let (code, text) = said(&["doctor", "--json", &program]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("set-user-id"), "{text}");
}

#[test]
fn doctor_names_the_way_of_a_program() {
    let scratch = Scratch::new("doctor");
    let fixed = scratch.program("static", &static_program());
    let script = scratch.program("script", format!("#! {fixed} -x\n").as_bytes());
    let way = |file: &str| {
        let (code, text) = said(&["doctor", "--json", file]);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
        (code, text("way"), text("loads"))
    };
    let shell = way("/bin/sh");
    assert_eq!((shell.0, shell.1.as_str()), (Some(0), "preload"));
    let expected = (Some(0), "supervise".to_owned(), fixed.clone());
    assert_eq!(way(&fixed), expected);
    assert_eq!(way(&script), expected, "a script is what it is run by");
    assert_eq!(way("/etc/passwd").0, Some(1));
}
