//! `shunt lab` as its users meet it: by command lines, as root and as an ordinary user.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// An ordinary user id that owns nothing on the machine.
const ORDINARY_UID: u32 = 54_321;

/// A user with a state directory of its own; its labs go when it goes.
struct User {
    directory: PathBuf,
    binary: PathBuf,
    uid: Option<u32>,
}

impl User {
    /// The user who runs the tests.
    fn current(test: &str) -> Self {
        Self::create(test, None)
    }

    /// An ordinary user: another one where the tests run as root.
    fn ordinary(test: &str) -> Self {
        let root = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0;
        Self::create(test, root.then_some(ORDINARY_UID))
    }

    fn create(test: &str, uid: Option<u32>) -> Self {
        let directory =
            std::env::temp_dir().join(format!("shunt-cli-{test}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        let mut binary = PathBuf::from(env!("CARGO_BIN_EXE_shunt"));
        if uid.is_some() {
            // The target directory may lie where the other user cannot go.
            let copy = directory.join("shunt-under-test");
            // By another process: a descriptor for writing that a test beside this one inherits
            // across its fork would make the copy "text file busy".
            assert!(
                Command::new("cp")
                    .args([&binary, &copy])
                    .status()
                    .unwrap()
                    .success()
            );
            binary = copy;
            std::os::unix::fs::chown(&directory, uid, uid).unwrap();
        }
        Self {
            directory,
            binary,
            uid,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .current_dir("/")
            .env("XDG_RUNTIME_DIR", &self.directory)
            .env("HOME", &self.directory);
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    fn shunt(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The standard output of a command that must succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.shunt(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The standard error of a command that must fail with status 2.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.shunt(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Process numbers of the holders of the only lab.
    fn holders(&self) -> Vec<u64> {
        let labs: serde_json::Value =
            serde_json::from_str(&self.ok(&["lab", "list", "--json"])).unwrap();
        labs[0]["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|host| host["holder_pid"].as_u64().unwrap())
            .collect()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.shunt(&["lab", "down"]);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn lives(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}/ns/net")).exists()
}

fn a_whole_life(user: &User) {
    let shown = user.ok(&["lab", "up"]);
    assert!(
        shown.contains("10.77.0.1/24") && shown.contains("congestion control"),
        "{shown}"
    );
    let addresses = user.ok(&["lab", "exec", "b", "--", "cat", "/proc/net/fib_trie"]);
    assert!(
        addresses.contains("10.77.0.2") && !addresses.contains("10.77.0.1\n"),
        "{addresses}"
    );
    let status = user
        .shunt(&["lab", "exec", "a", "--", "sh", "-c", "exit 7"])
        .status;
    assert_eq!(status.code(), Some(7), "the status is the program's own");
    assert_eq!(
        user.ok(&["lab", "exec", "a", "--as-user", "--", "id", "-u"])
            .trim(),
        "1000"
    );
    let binary = user.binary.to_str().unwrap();
    let nested = [
        "lab",
        "exec",
        "a",
        "--",
        "env",
        "-u",
        "XDG_RUNTIME_DIR",
        binary,
    ];
    let other = user.ok(&[
        &nested[..],
        &["lab", "exec", "b", "--", "cat", "/proc/net/fib_trie"],
    ]
    .concat());
    assert!(
        other.contains("10.77.0.2"),
        "a program on one host finds the other: {other}"
    );
    let holders = user.holders();
    assert_eq!(holders.len(), 2);
    user.ok(&["lab", "down"]);
    assert!(!holders.into_iter().any(lives));
    assert_eq!(user.ok(&["lab", "list", "--json"]).trim(), "[]");
}

#[test]
fn a_lab_lives_from_up_to_down() {
    a_whole_life(&User::current("life"));
}

#[test]
fn an_ordinary_user_has_labs_too() {
    let user = User::ordinary("ordinary");
    let doctor: serde_json::Value =
        serde_json::from_slice(&user.shunt(&["doctor", "--json"]).stdout).unwrap();
    let findings = doctor["findings"].as_array().unwrap();
    let namespaces = findings
        .iter()
        .find(|finding| finding["name"] == "user-namespaces")
        .unwrap();
    if namespaces["state"] != "ok" {
        eprintln!("not tested: user namespaces {}", namespaces["found"]);
        return;
    }
    a_whole_life(&user);
}

#[test]
fn a_second_lab_of_the_same_name_is_refused_with_the_way_out() {
    let user = User::current("twice");
    user.ok(&["lab", "up"]);
    assert!(user.refused(&["lab", "up"]).contains("shunt lab down"));
}

#[test]
fn a_lab_whose_holders_died_can_be_removed_and_built_again() {
    let user = User::current("dead");
    user.ok(&["lab", "up"]);
    let mut program = user
        .command(&["lab", "exec", "a", "--", "sleep", "60"])
        .spawn()
        .unwrap();
    testkit::wait_for("the program", testkit::PATIENCE, || {
        fs::read_to_string(format!("/proc/{}/comm", program.id()))
            .is_ok_and(|name| name.trim() == "sleep")
    });
    for pid in user.holders() {
        assert!(
            Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status()
                .unwrap()
                .success()
        );
        testkit::wait_for("end of the holder", testkit::PATIENCE, || !lives(pid));
    }
    assert!(
        user.refused(&["lab", "exec", "a", "--", "true"])
            .contains("shunt lab down")
    );
    // Building it again cleans up: the program of the old lab is ended.
    user.ok(&["lab", "up"]);
    assert!(!program.wait().unwrap().success());
    user.ok(&["lab", "exec", "a", "--", "true"]);
}

#[test]
fn a_damaged_state_file_is_named_and_can_be_removed() {
    let user = User::current("damaged");
    user.ok(&["lab", "up"]);
    user.ok(&["lab", "down"]);
    fs::write(user.directory.join("shunt/labs/lab.json"), "{").unwrap();
    assert!(
        user.refused(&["lab", "exec", "a", "--", "true"])
            .contains("lab.json")
    );
    user.ok(&["lab", "down"]);
    user.ok(&["lab", "up"]);
}

#[test]
fn what_cannot_be_built_is_refused_naming_the_flag() {
    let user = User::current("usage");
    for (arguments, flag) in [
        (&["lab", "up", "--hosts", "a"][..], "--hosts"),
        (&["lab", "up", "--hosts", "a,a"], "--hosts"),
        (&["lab", "up", "--address", "a=10.0.0.1"], "--address"),
        (&["lab", "up", "--address", "c=10.0.0.1/8"], "--address"),
        (&["lab", "up", "--mtu", "20"], "--mtu"),
        (&["lab", "up", "--name", "../x"], "lab name"),
    ] {
        let error = user.refused(arguments);
        assert!(error.contains(flag), "{arguments:?}: {error}");
    }
    assert_eq!(user.ok(&["lab", "list", "--json"]).trim(), "[]");
}

/// Whether host a reaches host b: a closed port refuses at once where the cable carries.
fn reaches(user: &User) -> bool {
    let script = "import socket
s = socket.socket()
s.settimeout(1)
print(s.connect_ex(('10.77.0.2', 9)))";
    let said = user.ok(&["lab", "exec", "a", "--", "python3", "-c", script]);
    said.trim() == rustix::io::Errno::CONNREFUSED.raw_os_error().to_string()
}

fn a_cable_that_can_be_cut(user: &User) {
    user.ok(&["lab", "up", "--cable", "tap", "--impair", "delay=2ms"]);
    testkit::wait_for("the other host", testkit::PATIENCE, || reaches(user));
    user.ok(&["lab", "cable", "--impair", "loss=100%"]);
    assert!(!reaches(user));
    let status: serde_json::Value = serde_json::from_str(&user.ok(&[
        "lab", "cable", "--impair", "loss=0", "--seed", "5", "--json",
    ]))
    .unwrap();
    assert_eq!(status["settings"]["seed"], 5);
    testkit::wait_for("the other host", testkit::PATIENCE, || reaches(user));
    assert!(user.ok(&["lab", "list"]).contains("cable tap"));
    user.ok(&["lab", "down"]);
    assert!(user.refused(&["lab", "cable"]).contains("shunt lab up"));
    assert!(!user.directory.join("shunt/cable-lab.socket").exists());
}

#[test]
fn a_cable_of_taps_does_what_it_is_told_while_it_runs() {
    a_cable_that_can_be_cut(&User::current("cable"));
}

#[test]
fn an_ordinary_user_has_a_cable_of_taps_too() {
    let mode = fs::metadata("/dev/net/tun").map(|device| device.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o006 != 0o006) {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: cable without root: /dev/net/tun is closed to ordinary users"
        );
        return;
    }
    a_cable_that_can_be_cut(&User::ordinary("own-cable"));
}

#[test]
fn a_bad_cable_is_refused_before_anything_is_built() {
    let user = User::current("bad-cable");
    let said = user.refused(&["lab", "up", "--impair", "loss=1%"]);
    assert!(said.contains("--cable tap"), "{said}");
    let said = user.refused(&["lab", "up", "--cable", "tap", "--impair", "los=1%"]);
    assert!(said.contains("none of loss"), "{said}");
    assert!(user.ok(&["lab", "list"]).contains("no lab"));
}
