//! Help for tests: hosts of their own, real programs with bounded lives, and the workspace's files.
//!
//! Only tests may depend on this crate (`tests/arrows.rs` holds that). What fails here panics with
//! the reason, because that is how a test ends.

mod binary;
mod engine_state;
pub mod kernel_tcp;
pub mod network;
pub mod parity;
pub mod python;
pub mod rows;
pub mod steady;
mod witness;
pub mod workspace;
pub mod world;

use std::{
    process::Command,
    time::{Duration, Instant},
};

pub use binary::{is_native_built, native_example, native_library, shunt};
pub use engine_state::EngineState;
pub use lab::{Cable, Cidr, Finished, Host, HostSpec, Lab, LabSpec, Program, serving};
pub use witness::{Testimony, Witness, port_of};

/// How long a test waits for what should take milliseconds, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Two hosts `a` and `b` for one test, removed when the value is dropped or the test ends.
///
/// # Panics
/// Where neither root nor a user namespace is to be had: `shunt doctor` says why.
pub fn two_hosts(test: &str) -> Lab {
    Lab::temporary(&format!("t-{test}"), &LabSpec::default())
        .unwrap_or_else(|error| panic!("test {test} needs two hosts: {error}"))
}

/// Two hosts of both families with an engine on host `a`, for a test that needs these programs. `None`: it cannot
/// be had here, and that was said past libtest's capture.
///
/// # Panics
/// Where the engine does not start.
pub fn served_hosts(test: &str, programs: &[&str]) -> Option<(Lab, Program)> {
    let skip = |reason: &str| {
        world::skip(test, reason);
        None
    };
    let missing = world::missing(programs);
    if !missing.is_empty() {
        return skip(&format!("not installed: {}", missing.join(", ")));
    }
    let lab = match Lab::temporary(&format!("t-{test}"), &LabSpec::default()) {
        Ok(lab) => lab,
        Err(error) => return skip(&error.to_string()),
    };
    if !host(&lab, "a").has_ipv6() {
        return skip("this kernel has no IPv6");
    }
    let shunt = shunt().display().to_string();
    let engine = serving_engine(&lab, &shunt, &[]);
    Some((lab, engine))
}

/// An engine with these flags on host `a`, once it serves.
///
/// # Panics
/// Where it does not start.
pub fn serving_engine(lab: &Lab, shunt: &str, flags: &[&str]) -> Program {
    once_serving(start(host(lab, "a"), shunt, &[&["engine"], flags].concat()))
}

/// An engine or an echo, once it says that it serves.
///
/// # Panics
/// Where it ends, or says nothing of it.
pub fn once_serving(mut program: Program) -> Program {
    let serves = |program: &Program| {
        [program.stderr(), program.stdout()]
            .iter()
            .any(|said| said.contains("serving"))
    };
    program
        .wait_until("serving", PATIENCE, serves)
        .unwrap_or_else(|error| panic!("{error}"));
    program
}

/// A host of a lab.
///
/// # Panics
/// Where there is none of that name.
pub fn host<'l>(lab: &'l Lab, name: &str) -> &'l Host {
    lab.host(name).unwrap_or_else(|error| panic!("{error}"))
}

/// A command with its arguments, to be started on a host.
///
/// # Panics
/// Where the host is gone.
pub fn command(host: &Host, program: &str, arguments: &[&str]) -> Command {
    let mut command = host
        .command(program)
        .unwrap_or_else(|error| panic!("{error}"));
    command.args(arguments);
    command
}

/// Starts a program on a host; it ends with the returned value.
///
/// # Panics
/// Where it cannot be started.
pub fn start(host: &Host, program: &str, arguments: &[&str]) -> Program {
    Program::start(program, command(host, program, arguments))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a program on a host to its successful end.
///
/// # Panics
/// Where it fails or takes longer than [`PATIENCE`]; its output is in the message.
pub fn run(host: &Host, program: &str, arguments: &[&str]) -> Finished {
    start(host, program, arguments)
        .finish(PATIENCE, || false)
        .and_then(Finished::success)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until the condition holds.
///
/// # Panics
/// Where it does not hold within the time.
pub fn wait_for(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    let deadline = since + patience;
    loop {
        let began = Instant::now();
        if condition() {
            return;
        }
        let look = began.elapsed();
        assert!(
            Instant::now() < deadline,
            "no {what} within {} s",
            patience.as_secs_f32()
        );
        lab::pause_while(since.elapsed(), look);
    }
}
