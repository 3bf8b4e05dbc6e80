//! Small C programs that print what socket calls return, run over the kernel's loopback and over Shunt:
//! the output must be the same to the letter. Both halves of each program use one engine's own address.
//!
//! The programs are in `crates/shim/tests/programs`; without a privilege, a C compiler or Python the test
//! is skipped, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use testkit::{Host, Lab, LabSpec, PATIENCE, Program, host, parity};

/// The hosts' end of the cable.
const LINK: &str = "eth0";
static SHARED: LazyLock<parity::Shared> = LazyLock::new(|| {
    parity::Shared::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "parity").unwrap()
});

fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: parity: {reason}");
}

#[test]
fn programs_print_over_shunt_what_they_print_over_the_kernel() {
    compare("t-parity", &[], &[]);
}

#[test]
fn programs_print_over_af_xdp_what_they_print_over_the_kernel() {
    // Where the privilege is missing, packet sockets serve, which is fine here and tested by others.
    compare("t-parity-xdp", &["--driver", "af_xdp"], &[]);
}

#[test]
fn programs_print_over_two_cores_what_they_print_over_the_kernel() {
    // Each core admits the whole backlog (docs/decisions/0013-engine-cores.md) and asks for cookies of its own;
    // connections that wait are not accepted in the order in which they came, nor are events of two cores reported so.
    let differing = &["backlog", "epoll_order", "fast_open", "linger"];
    compare("t-parity2", &["--cores", "2"], differing);
}

#[test]
fn datagrams_over_the_second_of_two_engines_print_what_they_print_over_the_kernel() {
    let Some(lab) = laboratory("t-parity-second") else {
        return;
    };
    let (a, shunt) = (host(&lab, "a"), testkit::shunt().to_str().unwrap());
    let (second, address) = ("@shunt/second", "10.78.0.11");
    let own = format!("{address}/24");
    let engine = ["engine", "--name", second, "--nic", LINK, "--address", &own];
    let _engines = [&["engine"][..], &engine]
        .map(|line| testkit::once_serving(testkit::start(a, shunt, line)));
    let command = format!("{shunt} run --engine @shunt/engine --engine {second} --");
    let arguments = ["--command", &command, "--address", address];
    run_all(a, &arguments, &|name| !name.starts_with("udp_"), 8);
}

#[test]
fn programs_print_over_an_engine_inside_them_what_they_print_over_the_kernel() {
    let Some(lab) = laboratory("t-parity-inline") else {
        return;
    };
    let a = host(&lab, "a");
    // An address for each program: what one leaves in TIME-WAIT is nothing to the next.
    let command = format!(
        "{} run --engine-mode inline --address ADDRESS/24 --",
        testkit::shunt().display()
    );
    let arguments = ["--command", &command, "--address", "10.77.0.100"];
    // Fast Open is off, as by default, and no flag switches it on here.
    run_programs(a, &arguments, &["fast_open"]);
}

#[test]
fn static_programs_print_under_a_supervisor_what_they_print_over_the_kernel() {
    let Some(lab) = laboratory("t-parity-static") else {
        return;
    };
    let a = host(&lab, "a");
    let Some(_engine) = serve(a, &[]) else {
        return;
    };
    let shunt = testkit::shunt().display();
    let command = format!("{shunt} run --policy engine-only --");
    let address = a.spec().engine_address.address.to_string();
    let folder = parity::differing_supervised();
    let mut arguments = vec!["--static", "--command", &command, "--address", &address];
    arguments.extend(["--differences", folder.to_str().unwrap()]);
    if std::env::var("SHUNT_GOLDEN").is_ok_and(|value| value == "write") {
        arguments.push("--write");
    }
    // Fast Open is refused, and how soon the connect then stands is no measure.
    // While a pair is emptied that a connect had filled, each piece can be an edge of room; one edge more than there was
    // comes in about two of a hundred runs of `epoll_edge`. That a datagram of `udp_basic` was too long is told by one of the
    // next calls, whichever comes after the supervisor has tried to send it.
    // How much of what waits `table_tcp` sees at once depends on how fast the supervisor has moved it, and so does how often a send of
    // `handler_jumps` has to sleep, and is left.
    let without = [
        "epoll_edge",
        "epoll_room",
        "fast_open",
        "handler_jumps",
        "table_tcp",
        "udp_basic",
    ];
    run_all(a, &arguments, &|name| without.contains(&name), 60);
}

fn laboratory(name: &str) -> Option<Lab> {
    for tool in ["cc", "python3"] {
        if !is_installed(tool) {
            skip(&format!("{tool} is not installed"));
            return None;
        }
    }
    Lab::temporary(name, &LabSpec::default())
        .inspect_err(|error| skip(&error.to_string()))
        .ok()
}

/// Every program but those of `differing`.
fn compare(lab: &str, flags: &[&str], differing: &[&str]) {
    let Some(lab) = laboratory(lab) else {
        return;
    };
    let shunt = testkit::shunt().to_str().unwrap();
    let a = host(&lab, "a");
    let Some(_engine) = serve(a, flags) else {
        return;
    };
    let library = [
        "run",
        "--policy",
        "kernel-only",
        "--",
        "printenv",
        "LD_PRELOAD",
    ];
    let library = testkit::start(a, shunt, &library)
        .finish(PATIENCE, || false)
        .unwrap();
    let address = a.spec().engine_address.address.to_string();
    let address_v6 = a.spec().engine_address_v6().to_string();
    let own_v6 = a.spec().address_v6().to_string();
    let own = a.spec().address.address.to_string();
    let library = library.stdout.trim();
    let mut arguments = vec!["--library", library, "--address", &address];
    arguments.extend(["--link", LINK, "--link-address", &own]);
    if a.has_ipv6() {
        arguments.extend(["--address-v6", &address_v6]);
        arguments.extend(["--link-address-v6", &own_v6]);
    }
    // Here the library is preloaded without `shunt run`, and an environment that has lost it stays so (docs/decisions/0110).
    let differing = [differing, &["exec_emptied"]].concat();
    run_programs(a, &arguments, &differing);
}

/// An engine. Kernel and engine serve Fast Open, which neither does by default.
fn serve(on: &Host, flags: &[&str]) -> Option<Program> {
    let sysctl = ["-c", "echo 3 > /proc/sys/net/ipv4/tcp_fastopen"];
    let is_set = testkit::start(on, "sh", &sysctl).finish(PATIENCE, || false);
    if !is_set.is_ok_and(|done| done.status.success()) {
        skip("net.ipv4.tcp_fastopen cannot be set");
        return None;
    }
    let flags = [&["engine", "--fastopen", "3"], flags].concat();
    let engine = testkit::once_serving(testkit::start(
        on,
        testkit::shunt().to_str().unwrap(),
        &flags,
    ));
    Some(engine)
}

fn run_programs(on: &Host, arguments: &[&str], differing: &[&str]) {
    run_all(on, arguments, &|name| differing.contains(&name), 25);
}

/// Every program that is not left out; they are at least so many, and all the same.
fn run_all(on: &Host, arguments: &[&str], leave_out: &dyn Fn(&str) -> bool, at_least: usize) {
    let runner = parity::runner();
    let names = parity::names(leave_out);
    let mut words = vec![runner.to_str().unwrap()];
    words.extend(SHARED.flags());
    words.extend(arguments);
    words.extend(names.iter().map(String::as_str));
    let done = parity::finish(testkit::start(on, "python3", &words));
    let same = parity::judged(&done).unwrap_or_else(|differences| panic!("{differences}"));
    assert!(same >= at_least, "the same: {same}");
}

fn is_installed(tool: &str) -> bool {
    let tried = Command::new(tool).arg("--version").output();
    tried.is_ok_and(|tried| tried.status.success())
}
