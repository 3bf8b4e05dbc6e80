//! The lab itself: two hosts that reach each other and nothing else, and leave nothing behind.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use testkit::{PATIENCE, host, run, start, two_hosts, wait_for};

const SERVE: &str = "import http.server as h
class Q(h.SimpleHTTPRequestHandler):
    def log_message(*a): pass
h.HTTPServer(('10.77.0.1', 8000), Q).serve_forever()";

const FETCH: &str = "import urllib.request as u
print(u.urlopen('http://10.77.0.1:8000/', timeout=50).status)";

#[test]
fn a_server_on_one_host_is_reached_from_the_other_only() {
    let lab = two_hosts("reach");
    let mut server = start(host(&lab, "a"), "python3", &["-c", SERVE]);
    server.wait_listening(8000, PATIENCE).unwrap();
    assert_eq!(
        run(host(&lab, "b"), "python3", &["-c", FETCH])
            .stdout
            .trim(),
        "200"
    );
    let outside = Command::new("python3")
        .args(["-c", FETCH])
        .output()
        .unwrap();
    assert!(
        !outside.status.success(),
        "the machine itself must not reach the lab"
    );
}

#[test]
fn low_ports_are_open_to_ordinary_users() {
    let lab = two_hosts("ports");
    let script = "import socket, os
s = socket.socket(); s.bind(('10.77.0.1', 80)); s.listen(); print(os.getuid())";
    let mut command = host(&lab, "a").command_as_user("python3").unwrap();
    command.args(["-c", script]);
    let done = testkit::Program::start("python3", command)
        .unwrap()
        .finish(PATIENCE, || false);
    assert_eq!(done.unwrap().success().unwrap().stdout.trim(), "1000");
}

#[test]
fn both_kernels_use_the_congestion_control_that_the_lab_names() {
    let lab = two_hosts("congestion");
    for name in ["a", "b"] {
        let shown = run(
            host(&lab, name),
            "cat",
            &["/proc/sys/net/ipv4/tcp_congestion_control"],
        );
        assert_eq!(shown.stdout.trim(), lab.congestion());
    }
}

#[test]
fn waiting_for_a_connection_ends_when_nobody_listens() {
    let lab = two_hosts("refused");
    let address = SocketAddr::from(([10, 77, 0, 2], 9));
    let error = host(&lab, "a")
        .wait_connect(address, Duration::from_millis(300))
        .unwrap_err();
    assert!(error.to_string().contains("10.77.0.2:9"), "{error}");
}

#[test]
fn two_labs_with_equal_addresses_do_not_meet() {
    let (first, second) = (two_hosts("twin1"), two_hosts("twin2"));
    let mut server = start(host(&first, "a"), "python3", &["-c", SERVE]);
    server.wait_listening(8000, PATIENCE).unwrap();
    let address = SocketAddr::from(([10, 77, 0, 1], 8000));
    host(&first, "b").wait_connect(address, PATIENCE).unwrap();
    assert!(
        host(&second, "b")
            .wait_connect(address, Duration::from_millis(300))
            .is_err()
    );
}

#[test]
fn dropping_a_lab_ends_its_holders_and_programs() {
    let lab = two_hosts("drop");
    let program = start(host(&lab, "a"), "sleep", &["60"]);
    let pids = [
        program.pid(),
        host(&lab, "a").holder_pid(),
        host(&lab, "b").holder_pid(),
    ];
    // Forgotten on purpose: the lab must end it without its value.
    std::mem::forget(program);
    drop(lab);
    for pid in pids {
        // What is left of the forgotten program is a zombie, which has no namespaces.
        wait_for("end of the process", PATIENCE, || {
            !Path::new(&format!("/proc/{pid}/ns/net")).exists()
        });
    }
}
