//! Which system calls a program is stopped at: a classic BPF program over `struct seccomp_data` (seccomp(2)).
//!
//! Calls that name a socket's ends, change or tell its options, make an epoll set or an io_uring. Making a
//! socket and moving bytes are never stopped. A call whose sixth argument, which none of these has, is
//! [`hostif::supervision::UNSUPERVISED`] comes from a preload library that knows what it does, and passes: a program that
//! passes the mark itself only leaves itself out.

use crate::sys::Instruction;

/// The calls that are stopped.
pub const CALLS: [libc::c_long; 17] = [
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_io_uring_setup,
    libc::SYS_epoll_create1,
    EPOLL_CREATE,
];

/// The calls that are stopped if they name an address, their fifth argument.
pub const NAMING: [libc::c_long; 2] = [libc::SYS_sendto, libc::SYS_recvfrom];

/// epoll_create(2), which newer architectures have under its other number only.
#[cfg(target_arch = "x86_64")]
pub const EPOLL_CREATE: libc::c_long = libc::SYS_epoll_create;
#[cfg(not(target_arch = "x86_64"))]
pub const EPOLL_CREATE: libc::c_long = libc::SYS_epoll_create1;

/// linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const FIFTH_LOW: u32 = 48;
const FIFTH_HIGH: u32 = 52;
const SIXTH_LOW: u32 = 56;
const SIXTH_HIGH: u32 = 60;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction {
        code: u16::try_from(code).expect("invariant: an operation has 16 bits"),
        jt,
        jf,
        k,
    }
}

/// The filter. Other architectures than ours (32-bit programs) pass: their sockets stay on the kernel.
pub fn filter() -> Vec<Instruction> {
    let count = u8::try_from(CALLS.len()).expect("invariant: the list is short");
    let mark = hostif::supervision::UNSUPERVISED;
    let low = u32::try_from(mark & u64::from(u32::MAX)).expect("invariant: 32 bits");
    let high = u32::try_from(mark >> 32).expect("invariant: 32 bits");
    let naming = u8::try_from(NAMING.len()).expect("invariant: the list is short");
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE_AT),
        // Past both lists, to where all others pass.
        instruction(IF_EQUAL, 0, count + naming + 1, ARCHITECTURE),
        instruction(LOAD, 0, 0, NUMBER),
    ];
    for (call, left) in NAMING.into_iter().zip((0..naming).rev()) {
        let call = u32::try_from(call).expect("invariant: calls have small numbers");
        // To the last part.
        program.push(instruction(IF_EQUAL, left + count + 7, 0, call));
    }
    for (call, left) in CALLS.into_iter().zip((0..count).rev()) {
        let call = u32::try_from(call).expect("invariant: calls have small numbers");
        program.push(instruction(IF_EQUAL, left + 1, 0, call));
    }
    program.extend([
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(LOAD, 0, 0, SIXTH_LOW),
        instruction(IF_EQUAL, 0, 2, low),
        instruction(LOAD, 0, 0, SIXTH_HIGH),
        instruction(IF_EQUAL, 1, 0, high),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(LOAD, 0, 0, FIFTH_LOW),
        instruction(IF_EQUAL, 0, 2, 0),
        instruction(LOAD, 0, 0, FIFTH_HIGH),
        instruction(IF_EQUAL, 1, 0, 0),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call; runs the instructions as bpf(4) describes them.
    fn verdict(architecture: u32, number: i64, sixth: u64) -> u32 {
        verdict_naming(architecture, number, 0, sixth)
    }

    fn verdict_naming(architecture: u32, number: i64, fifth: u64, sixth: u64) -> u32 {
        let mut data = [0_u8; 64];
        data[..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
        data[4..8].copy_from_slice(&architecture.to_ne_bytes());
        data[48..56].copy_from_slice(&fifth.to_ne_bytes());
        data[56..64].copy_from_slice(&sixth.to_ne_bytes());
        let program = filter();
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                LOAD => {
                    let field = data[usize::try_from(k).unwrap()..].first_chunk().unwrap();
                    accumulator = u32::from_ne_bytes(*field);
                }
                IF_EQUAL => at += usize::from(if accumulator == k { jt } else { jf }),
                RETURN => return k,
                other => panic!("operation {other}"),
            }
        }
    }

    #[test]
    fn exactly_the_listed_calls_are_stopped() {
        for number in 0..600 {
            let expected = if CALLS.contains(&number) {
                libc::SECCOMP_RET_USER_NOTIF
            } else {
                libc::SECCOMP_RET_ALLOW
            };
            assert_eq!(verdict(ARCHITECTURE, number, 0), expected, "{number}");
            assert_eq!(
                verdict(ARCHITECTURE ^ 1, number, 0),
                libc::SECCOMP_RET_ALLOW
            );
        }
    }

    #[test]
    fn sendto_and_recvfrom_are_stopped_when_they_name_an_address() {
        for number in NAMING {
            for (name, expected) in [
                (0, libc::SECCOMP_RET_ALLOW),
                (16, libc::SECCOMP_RET_USER_NOTIF),
                (1 << 40, libc::SECCOMP_RET_USER_NOTIF),
            ] {
                assert_eq!(verdict_naming(ARCHITECTURE, number, name, 16), expected);
                let other = verdict_naming(ARCHITECTURE ^ 1, number, name, 16);
                assert_eq!(other, libc::SECCOMP_RET_ALLOW);
            }
        }
    }

    #[test]
    fn the_mark_passes_and_half_of_it_does_not() {
        let mark = hostif::supervision::UNSUPERVISED;
        let of = |sixth| verdict(ARCHITECTURE, libc::SYS_listen, sixth);
        assert_eq!(of(mark), libc::SECCOMP_RET_ALLOW);
        assert_eq!(of(mark ^ 1), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(of(mark ^ (1 << 40)), libc::SECCOMP_RET_USER_NOTIF);
    }
}
