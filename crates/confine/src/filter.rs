//! A seccomp filter that allows a list of system calls (seccomp(2)): classic BPF over `struct seccomp_data`.
//!
//! One comparison for each call, in the order of the list; the kernel remembers which calls are allowed whatever
//! their arguments are, and asks the filter for the others only. A call that is not on the list, or not with these arguments,
//! is a SIGSYS, which [`crate::refused`] turns into EPERM.

use bpf::classic::{AND, Instruction, LOAD_WORD, RETURN, if_equal, if_set, plain};

use crate::sys;

/// What must hold of an argument, of which the lower 32 bits count.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// Nothing.
    Any,
    /// The argument has none of these bits.
    Without(u32, u32),
    /// The argument has all of these bits.
    With(u32, u32),
    /// The argument is one of these.
    OneOf(u32, &'static [u32]),
    /// The argument is this number.
    Is(u32, u32),
    /// There is no such call: ENOSYS, so that the caller uses an older one.
    Absent,
}

/// A call that is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its name, as libc has it.
    pub constant: &'static str,
    /// Its number on this architecture.
    pub number: libc::c_long,
    /// With which arguments.
    pub check: Check,
    /// What it is for.
    pub why: &'static str,
}

impl Call {
    /// Its name, as strace(1) has it.
    pub fn name(&self) -> &'static str {
        self.constant.trim_start_matches("SYS_")
    }
}

/// linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;

const ALLOW: Instruction = plain(RETURN, libc::SECCOMP_RET_ALLOW);
const TRAP: Instruction = plain(RETURN, libc::SECCOMP_RET_TRAP);

/// Restricts this thread, and what it starts from now on, to these calls. How many they are.
pub fn install(calls: &[Call]) -> Result<usize, String> {
    sys::on_refused().map_err(|error| format!("SIGSYS: {error}"))?;
    sys::install_filter(&program(calls)).map_err(|error| error.to_string())?;
    Ok(calls.len())
}

/// The lower half of an argument (little-endian, as both architectures are).
const fn load_argument(index: u32) -> Instruction {
    plain(LOAD_WORD, ARGUMENTS + 8 * index)
}

/// What is done once the number is that of the call; it always returns.
fn judged(check: Check) -> Vec<Instruction> {
    match check {
        Check::Any => vec![ALLOW],
        Check::Absent => {
            let errno = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
            vec![plain(RETURN, errno)]
        }
        Check::Without(index, bits) => {
            vec![load_argument(index), if_set(bits, 1, 0), ALLOW, TRAP]
        }
        Check::With(index, bits) => vec![
            load_argument(index),
            plain(AND, bits),
            if_equal(bits, 0, 1),
            ALLOW,
            TRAP,
        ],
        Check::Is(index, value) => one_of(index, &[value]),
        Check::OneOf(index, values) => one_of(index, values),
    }
}

fn one_of(index: u32, values: &[u32]) -> Vec<Instruction> {
    let mut all = vec![load_argument(index)];
    for value in values {
        all.extend([if_equal(*value, 0, 1), ALLOW]);
    }
    all.push(TRAP);
    all
}

/// The filter.
pub fn program(calls: &[Call]) -> Vec<Instruction> {
    let mut program = vec![
        plain(LOAD_WORD, ARCHITECTURE_AT),
        // Another architecture's calls have other numbers: nobody of ours makes them.
        if_equal(ARCHITECTURE, 1, 0),
        plain(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        plain(LOAD_WORD, NUMBER),
    ];
    for call in calls {
        let judged = judged(call.check);
        let skipped = u8::try_from(judged.len()).expect("invariant: few values of an argument");
        let number = u32::try_from(call.number).expect("invariant: numbers are small");
        program.push(if_equal(number, 0, skipped));
        program.extend(judged);
    }
    program.push(TRAP);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;
    use bpf::classic;

    fn verdict(calls: &[Call], number: i64, arguments: [u64; 6]) -> u32 {
        let mut data = [0_u8; 64];
        data[..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
        data[4..8].copy_from_slice(&ARCHITECTURE.to_ne_bytes());
        for (index, argument) in arguments.iter().enumerate() {
            data[16 + 8 * index..][..8].copy_from_slice(&argument.to_ne_bytes());
        }
        classic::run(&program(calls), &|_, at| {
            let field = data[usize::try_from(at).unwrap()..].first_chunk().unwrap();
            Some(u32::from_ne_bytes(*field))
        })
    }

    #[test]
    fn exactly_the_listed_calls_are_allowed() {
        for list in [calls::engine(), calls::writer()] {
            let unconditional = |number| {
                list.iter()
                    .any(|call| call.number == number && matches!(call.check, Check::Any))
            };
            let listed = |number| list.iter().any(|call| call.number == number);
            for number in 0..1_000 {
                let verdict = verdict(&list, number, [0; 6]);
                if unconditional(number) {
                    assert_eq!(verdict, libc::SECCOMP_RET_ALLOW, "{number}");
                } else if !listed(number) {
                    assert_eq!(verdict, libc::SECCOMP_RET_TRAP, "{number}");
                }
            }
            let mut numbers: Vec<_> = list.iter().map(|call| call.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), list.len(), "a call is listed twice");
            assert!(list.iter().all(|call| !call.why.is_empty()));
        }
    }

    #[test]
    fn what_would_make_code_or_programs_or_reach_others_is_refused() {
        let refused = |number, arguments| {
            verdict(&calls::engine(), number, arguments) == libc::SECCOMP_RET_TRAP
        };
        let bits = |flags: libc::c_int| u64::from(flags.cast_unsigned());
        let executable = bits(libc::PROT_READ | libc::PROT_EXEC);
        assert!(refused(libc::SYS_mmap, [0, 4096, executable, 0, 0, 0]));
        assert!(refused(libc::SYS_mprotect, [0, 4096, executable, 0, 0, 0]));
        assert!(!refused(
            libc::SYS_mmap,
            [0, 4096, bits(libc::PROT_READ), 0, 0, 0]
        ));
        // A process of its own, a namespace.
        assert!(refused(
            libc::SYS_clone,
            [bits(libc::SIGCHLD), 0, 0, 0, 0, 0]
        ));
        let thread = bits(libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD);
        assert!(!refused(libc::SYS_clone, [thread, 0, 0, 0, 0, 0]));
        assert!(refused(
            libc::SYS_socket,
            [bits(libc::AF_VSOCK), 0, 0, 0, 0, 0]
        ));
        assert!(refused(
            libc::SYS_prctl,
            [bits(libc::PR_SET_DUMPABLE), 1, 0, 0, 0, 0]
        ));
        assert!(refused(libc::SYS_tgkill, [1, 1, 9, 0, 0, 0]));
        for number in [
            libc::SYS_execve,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_kill,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_mount,
            libc::SYS_capset,
            libc::SYS_io_uring_setup,
        ] {
            assert!(refused(number, [0; 6]), "{number}");
        }
    }
}
