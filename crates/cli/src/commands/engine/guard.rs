//! The guard of a program with an engine inside: sleeps until the program is killed, and then resets the connections that its
//! engine has left, so that no peer waits for ever for somebody who is gone (docs/decisions/0065-peers-of-a-killed-program.md).
//!
//! The engine starts it (`preload_inline/src/guard.rs`) with five descriptors: the memory file with its tables, the
//! program's pidfd, a pipe, and the packet sockets, so that the program is not the last to close them, which takes 20 ms. A byte in the
//! pipe says that a child goes on with the engine (`x`), or not after all (`o`), or that the first packet socket is not needed any more
//! (`r`); its end without the program's, that the program has executed another.
//!
//! Meanwhile it does what takes 10 ms and longer, for which no connection of the program waits here: makes the ring of the second packet
//! socket, and has what arrives for the program's addresses kept from the kernel.

use std::{net::IpAddr, process::ExitCode};

use anyhow::Context;
use nic::af_packet::{self, AfPacket};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd as _, OwnedFd},
    io::Errno,
};

use super::{arguments::Arguments, config, confined};
use crate::sys;

/// The memory file, the program, the pipe, the packet sockets.
const INHERITED: [i32; 5] = [3, 4, 5, 6, 7];
/// Between the end of a program's descriptors and its own.
const DEATH: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// A child goes on with the engine.
const HEIR: u8 = b'x';
/// The engine has gone on with the second packet socket.
const NOT_NEEDED: u8 = b'r';

/// Runs until the program has ended.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let [state, program, pipe, first, second] = INHERITED.map(sys::inherited);
    let (state, program, pipe) = (state?, program?, pipe?);
    let (first, second) = (first?, second?);
    sys::unblock_signals();
    // Over AF_XDP these are other descriptors of the pipe. Without a ring each frame takes the program a system call.
    let _ = af_packet::make_ring(&arguments.nic, second.as_fd());
    // Where it may not the kernel looks at those packets too, and throws them away.
    let kept_from_kernel = keep_from_kernel(arguments);
    confined::begin(arguments);
    if !was_killed(&program, &pipe, first)? {
        return Ok(ExitCode::SUCCESS);
    }
    let driver = AfPacket::open(&af_packet::Config {
        // What neighbours say of themselves.
        frame_bytes: Some(2048),
        frame_count: Some(128),
        addresses: Some(own_addresses(arguments)),
        ..af_packet::Config::new(&arguments.nic)
    });
    let driver = driver.with_context(|| format!("--nic {}", arguments.nic))?;
    engine::reset_left(
        config(arguments)?,
        state,
        engine::Section::ONLY,
        Box::new(driver),
    )
    .context("--guard")?;
    drop(kept_from_kernel);
    Ok(ExitCode::SUCCESS)
}

fn keep_from_kernel(arguments: &Arguments) -> Option<bpf::Link> {
    let interface = sys::interface_index(&arguments.nic);
    let own = own_addresses(arguments);
    af_packet::keep_from_kernel(interface, &own, std::convert::identity)
}

fn own_addresses(arguments: &Arguments) -> Vec<IpAddr> {
    arguments.address.iter().map(|own| own.address).collect()
}

/// Waits for the end of the program. False: it has ended in order, somebody goes on with its engine, or it is another program
/// now.
fn was_killed(program: &OwnedFd, pipe: &OwnedFd, first: OwnedFd) -> anyhow::Result<bool> {
    let (mut has_heir, mut first) = (false, Some(first));
    loop {
        let mut both = [program, pipe].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting for the program"),
        }
        let (has_ended, has_word) = (!both[0].revents().is_empty(), !both[1].revents().is_empty());
        if has_word {
            let mut words = [0; 16];
            match rustix::io::read(pipe, &mut words) {
                // What it said last comes before its end.
                Ok(0) => return Ok(!has_heir && ends_soon(program)?),
                Ok(count) => {
                    for word in &words[..count] {
                        match *word {
                            NOT_NEEDED => drop(first.take()),
                            word => has_heir = word == HEIR,
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("hearing of the program"),
            }
        } else if has_ended {
            return Ok(!has_heir);
        }
    }
}

/// Whether a program that has closed everything is ending; else it executes another.
fn ends_soon(program: &OwnedFd) -> anyhow::Result<bool> {
    let mut end = [PollFd::new(program, PollFlags::IN)];
    match poll(&mut end, Some(&DEATH)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno).context("waiting for the program"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::pipe::pipe;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    const PATIENCE: Timespec = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };

    fn program() -> (Child, OwnedFd) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        (child, pidfd)
    }

    #[test]
    fn a_program_that_is_killed_is_told_from_one_that_leaves_its_engine_to_a_child() {
        for (words, killed) in [
            (&b""[..], true),
            (b"x", false),
            (b"xo", true),
            (b"xr", false),
            (b"rxo", true),
        ] {
            let (mut child, pidfd) = program();
            let (rx, tx) = pipe().unwrap();
            rustix::io::write(&tx, words).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let (one, other) = pipe().unwrap();
            let was = was_killed(&pidfd, &rx, one);
            assert_eq!(was.unwrap(), killed, "{words:?}");
            drop(tx);
            let killed = was_killed(&pidfd, &rx, other);
            assert!(killed.unwrap(), "its pipe ends too");
        }
    }

    #[test]
    fn the_first_socket_is_closed_when_it_is_not_needed_and_the_program_lives() {
        let (mut child, pidfd) = program();
        let (rx, tx) = pipe().unwrap();
        let (first, held) = pipe().unwrap();
        std::thread::scope(|scope| {
            let guard = scope.spawn(|| was_killed(&pidfd, &rx, held));
            let mut end = [PollFd::new(&first, PollFlags::IN)];
            assert_eq!(poll(&mut end, Some(&Timespec::default())), Ok(0));
            rustix::io::write(&tx, b"r").unwrap();
            assert_eq!(poll(&mut end, Some(&PATIENCE)), Ok(1), "it is open");
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(guard.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_program_that_executes_another_was_not_killed() {
        let (mut child, pidfd) = program();
        let (rx, tx) = pipe().unwrap();
        drop(tx);
        let (first, _) = pipe().unwrap();
        assert!(!was_killed(&pidfd, &rx, first).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
