//! Which system calls a program is stopped at: a classic BPF program over `struct seccomp_data` (seccomp(2)).
//!
//! Calls that name a socket's ends, change or tell its options, make an epoll set. Of sendto and
//! recvfrom those that give an address, or flags that a pair takes otherwise than TCP does; of ioctl questions
//! about bytes and addresses. Making a socket and moving bytes are never stopped; one for MPTCP is refused, as by a kernel without, and
//! programs take TCP then; where the engine alone is wanted, so is every other socket of IP that it does not serve. A call whose sixth argument, which none of
//! the others has, is
//! [`hostif::supervision::UNSUPERVISED`] comes from a preload library that knows what it does, and passes: a program that
//! passes the mark itself only leaves itself out.
//!
//! io_uring is not to be had at all: its calls would start others that nobody stops.

use bpf::classic::{self, AND, Instruction, LOAD_WORD, RETURN};

/// The calls that are stopped.
pub const CALLS: [libc::c_long; 16] = [
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
    libc::SYS_epoll_create1,
    EPOLL_CREATE,
];

/// The calls that the filter itself answers: ENOSYS, as a kernel without io_uring says. Programs use epoll then.
pub const ABSENT: [libc::c_long; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Flags with which sendto is stopped: a pair does not hold bytes back, what is urgent must not be overtaken, and who only asks
/// for the way sends nothing.
pub const SENDING: i32 = libc::MSG_OOB | libc::MSG_MORE | MSG_PROBE;

/// linux/socket.h.
pub const MSG_PROBE: i32 = 0x10;

/// Flags that stop recvfrom together: a pair does not wait for bytes that are only looked at.
pub const LOOKING: i32 = libc::MSG_PEEK | libc::MSG_WAITALL;

/// Flags that stop recvfrom alone: a pair of streams has no error queue, and would give bytes instead; nor does it throw
/// bytes away. Datagrams, and listeners, have nothing that is urgent.
pub const ASKING: i32 = libc::MSG_ERRQUEUE | libc::MSG_TRUNC | libc::MSG_OOB;

/// The requests of ioctl that are stopped: bytes that wait, are not acknowledged, are not sent, the urgent mark (tcp(7)); the
/// addresses of the host and of one interface (netdevice(7)).
pub const REQUESTS: [u32; 8] = [
    FIONREAD,
    SIOCATMARK,
    SIOCOUTQ,
    SIOCOUTQNSD,
    SIOCGIFCONF,
    SIOCGIFADDR,
    SIOCGIFNETMASK,
    SIOCGIFBRDADDR,
];

/// asm-generic/ioctls.h, which has SIOCINQ and SIOCOUTQ as FIONREAD and TIOCOUTQ.
pub const FIONREAD: u32 = 0x541b;
/// See `FIONREAD`.
pub const SIOCOUTQ: u32 = 0x5411;
/// asm-generic/sockios.h.
pub const SIOCATMARK: u32 = 0x8905;
/// linux/sockios.h.
pub const SIOCOUTQNSD: u32 = 0x894b;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891b;

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
const FIRST_LOW: u32 = 16;
const SECOND_LOW: u32 = 24;
const THIRD_LOW: u32 = 32;
const FOURTH_LOW: u32 = 40;
const FIFTH_LOW: u32 = 48;
const FIFTH_HIGH: u32 = 52;
const SIXTH_LOW: u32 = 56;
const SIXTH_HIGH: u32 = 60;

/// The kind of a socket without its flags (SOCK_TYPE_MASK of linux/net.h).
const KIND: u32 = 0xf;
/// Those flags.
const WITH_KIND: u32 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).cast_unsigned();

/// Parts of the filter; the order is theirs, as a jump goes forward only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterSection {
    /// sendto.
    Sends,
    /// recvfrom.
    Receives,
    /// Either, without such flags: whether it gives an address.
    Names,
    /// ioctl.
    Asks,
    /// socket, and one of IP, TCP, UDP.
    Makes,
    MakesForIp,
    MakesStream,
    MakesDatagram,
    /// A call of the list: whether it has the mark.
    Marks,
    Stop,
    /// A protocol that there is not.
    Unknown,
    /// A call that there is not.
    Absent,
    Pass,
}

type Assembler = classic::Assembler<FilterSection>;

/// socket(2).
fn makes(filter: &mut Assembler, engine_only: bool) {
    filter.begin(FilterSection::Makes);
    if !engine_only {
        filter.does(LOAD_WORD, THIRD_LOW);
        let multipath = libc::IPPROTO_MPTCP.cast_unsigned();
        return filter.if_equal(
            multipath,
            Some(FilterSection::Unknown),
            Some(FilterSection::Pass),
        );
    }
    filter.does(LOAD_WORD, FIRST_LOW);
    filter.if_equal(
        libc::AF_INET.cast_unsigned(),
        Some(FilterSection::MakesForIp),
        None,
    );
    let v6 = libc::AF_INET6.cast_unsigned();
    filter.if_equal(
        v6,
        Some(FilterSection::MakesForIp),
        Some(FilterSection::Pass),
    );

    filter.begin(FilterSection::MakesForIp);
    filter.does(LOAD_WORD, SECOND_LOW);
    filter.does(AND, !(KIND | WITH_KIND));
    // What is no kind at all the kernel says.
    filter.if_equal(0, None, Some(FilterSection::Pass));
    filter.does(LOAD_WORD, SECOND_LOW);
    filter.does(AND, KIND);
    let stream = libc::SOCK_STREAM.cast_unsigned();
    filter.if_equal(stream, Some(FilterSection::MakesStream), None);
    let datagram = libc::SOCK_DGRAM.cast_unsigned();
    filter.if_equal(datagram, Some(FilterSection::MakesDatagram), None);
    for kind in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET] {
        filter.if_equal(kind.cast_unsigned(), Some(FilterSection::Unknown), None);
    }
    let congested = libc::SOCK_DCCP.cast_unsigned();
    filter.if_equal(
        congested,
        Some(FilterSection::Unknown),
        Some(FilterSection::Pass),
    );
    for (part, protocol) in [
        (FilterSection::MakesStream, libc::IPPROTO_TCP),
        (FilterSection::MakesDatagram, libc::IPPROTO_UDP),
    ] {
        filter.begin(part);
        filter.does(LOAD_WORD, THIRD_LOW);
        filter.if_equal(0, Some(FilterSection::Pass), None);
        let protocol = protocol.cast_unsigned();
        filter.if_equal(
            protocol,
            Some(FilterSection::Pass),
            Some(FilterSection::Unknown),
        );
    }
}

/// sendto(2) and recvfrom(2).
fn moves(filter: &mut Assembler) {
    filter.begin(FilterSection::Sends);
    filter.does(LOAD_WORD, FOURTH_LOW);
    filter.does(AND, SENDING.cast_unsigned());
    filter.if_equal(0, Some(FilterSection::Names), Some(FilterSection::Stop));
    filter.begin(FilterSection::Receives);
    filter.does(LOAD_WORD, FOURTH_LOW);
    filter.does(AND, ASKING.cast_unsigned());
    filter.if_equal(0, None, Some(FilterSection::Stop));
    filter.does(LOAD_WORD, FOURTH_LOW);
    filter.does(AND, LOOKING.cast_unsigned());
    filter.if_equal(LOOKING.cast_unsigned(), Some(FilterSection::Stop), None);
    filter.begin(FilterSection::Names);
    filter.does(LOAD_WORD, FIFTH_LOW);
    filter.if_equal(0, None, Some(FilterSection::Stop));
    filter.does(LOAD_WORD, FIFTH_HIGH);
    filter.if_equal(0, Some(FilterSection::Pass), Some(FilterSection::Stop));
}

/// The filter; whether sockets that only the kernel serves are refused. Other architectures than ours (32-bit programs) pass: their sockets stay on the kernel.
pub fn filter(engine_only: bool) -> Vec<Instruction> {
    let number = |call: libc::c_long| u32::try_from(call).expect("invariant: small numbers");
    let mut filter = Assembler::new();
    filter.does(LOAD_WORD, ARCHITECTURE_AT);
    filter.if_equal(ARCHITECTURE, None, Some(FilterSection::Pass));
    filter.does(LOAD_WORD, NUMBER);
    filter.if_equal(number(libc::SYS_sendto), Some(FilterSection::Sends), None);
    filter.if_equal(
        number(libc::SYS_recvfrom),
        Some(FilterSection::Receives),
        None,
    );
    filter.if_equal(number(libc::SYS_ioctl), Some(FilterSection::Asks), None);
    filter.if_equal(number(libc::SYS_socket), Some(FilterSection::Makes), None);
    for call in ABSENT {
        filter.if_equal(number(call), Some(FilterSection::Absent), None);
    }
    let (last, others) = CALLS.split_last().expect("invariant: there are some");
    for call in others {
        filter.if_equal(number(*call), Some(FilterSection::Marks), None);
    }
    filter.if_equal(
        number(*last),
        Some(FilterSection::Marks),
        Some(FilterSection::Pass),
    );

    moves(&mut filter);

    filter.begin(FilterSection::Asks);
    filter.does(LOAD_WORD, SECOND_LOW);
    for request in REQUESTS {
        filter.if_equal(request, Some(FilterSection::Stop), None);
    }
    filter.does(RETURN, libc::SECCOMP_RET_ALLOW);

    makes(&mut filter, engine_only);

    let mark = hostif::supervision::UNSUPERVISED;
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("invariant: 32 bits");
    filter.begin(FilterSection::Marks);
    filter.does(LOAD_WORD, SIXTH_LOW);
    filter.if_equal(half(mark), None, Some(FilterSection::Stop));
    filter.does(LOAD_WORD, SIXTH_HIGH);
    filter.if_equal(
        half(mark >> 32),
        Some(FilterSection::Pass),
        Some(FilterSection::Stop),
    );
    filter.begin(FilterSection::Stop);
    filter.does(RETURN, libc::SECCOMP_RET_USER_NOTIF);
    filter.begin(FilterSection::Unknown);
    filter.does(RETURN, refusal(libc::EPROTONOSUPPORT));
    filter.begin(FilterSection::Absent);
    filter.does(RETURN, refusal(libc::ENOSYS));
    filter.begin(FilterSection::Pass);
    filter.does(RETURN, libc::SECCOMP_RET_ALLOW);
    filter.finish()
}

/// The answer with an errno, see seccomp(2).
fn refusal(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | (errno.cast_unsigned() & libc::SECCOMP_RET_DATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call;
    fn verdict_on(architecture: u32, number: i64, arguments: [u64; 6]) -> u32 {
        verdict_of(&filter(false), architecture, number, arguments)
    }

    fn verdict_of(
        program: &[Instruction],
        architecture: u32,
        number: i64,
        arguments: [u64; 6],
    ) -> u32 {
        let mut data = [0_u8; 64];
        data[..4].copy_from_slice(&u32::try_from(number).unwrap().to_ne_bytes());
        data[4..8].copy_from_slice(&architecture.to_ne_bytes());
        for (index, argument) in arguments.iter().enumerate() {
            data[16 + 8 * index..][..8].copy_from_slice(&argument.to_ne_bytes());
        }
        classic::run(program, &|_, at| {
            let field = data[usize::try_from(at).unwrap()..].first_chunk().unwrap();
            Some(u32::from_ne_bytes(*field))
        })
    }

    fn is_stopped(number: i64, arguments: [u64; 6]) -> bool {
        // Another architecture's calls have other numbers.
        let others = verdict_on(ARCHITECTURE ^ 1, number, arguments);
        assert_eq!(others, libc::SECCOMP_RET_ALLOW);
        verdict_on(ARCHITECTURE, number, arguments) == libc::SECCOMP_RET_USER_NOTIF
    }

    #[test]
    fn exactly_the_listed_calls_are_stopped() {
        for number in 0..600 {
            let stopped = is_stopped(number, [0; 6]);
            assert_eq!(stopped, CALLS.contains(&number), "{number}");
        }
    }

    #[test]
    fn io_uring_is_answered_by_the_filter() {
        for number in 0..600 {
            let refused = verdict_on(ARCHITECTURE, number, [0; 6]) == refusal(libc::ENOSYS);
            assert_eq!(refused, ABSENT.contains(&number), "{number}");
        }
    }

    #[test]
    fn a_socket_for_multipath_tcp_is_refused_and_no_other() {
        for (protocol, refused) in [(0, false), (6, false), (262, true), (1 << 32 | 262, true)] {
            let verdict = verdict_on(ARCHITECTURE, libc::SYS_socket, [2, 1, protocol, 0, 0, 0]);
            assert_eq!(verdict == refusal(libc::EPROTONOSUPPORT), refused);
            assert_eq!(verdict == libc::SECCOMP_RET_ALLOW, !refused);
        }
    }

    #[test]
    fn where_the_engine_alone_is_wanted_other_sockets_of_ip_are_refused() {
        let refused = [
            (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
            (libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_RAW),
            (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
            (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
            (libc::AF_INET, libc::SOCK_DCCP, 0),
        ];
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let served = [
            (libc::AF_INET, libc::SOCK_STREAM | flags, 0),
            (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP),
            (libc::AF_INET, libc::SOCK_DGRAM | flags, libc::IPPROTO_UDP),
            (libc::AF_UNIX, libc::SOCK_SEQPACKET, 0),
            (libc::AF_NETLINK, libc::SOCK_RAW, 0),
            (libc::AF_INET, 12, 0),
            (libc::AF_INET, libc::SOCK_RAW | 64, 0),
        ];
        let verdict = |(domain, kind, protocol): (i32, i32, i32)| {
            let words = [domain, kind, protocol, 0, 0, 0];
            let words = words.map(|word| u64::from(word.cast_unsigned()));
            verdict_of(&filter(true), ARCHITECTURE, libc::SYS_socket, words)
        };
        for made in refused {
            assert_eq!(verdict(made), refusal(libc::EPROTONOSUPPORT), "{made:?}");
        }
        for made in served {
            assert_eq!(verdict(made), libc::SECCOMP_RET_ALLOW, "{made:?}");
        }
    }

    #[test]
    fn sendto_and_recvfrom_are_stopped_when_they_give_an_address() {
        for number in [libc::SYS_sendto, libc::SYS_recvfrom] {
            for (name, expected) in [(0, false), (16, true), (1 << 40, true)] {
                assert_eq!(is_stopped(number, [3, 0, 0, 0, name, 16]), expected);
            }
        }
    }

    #[test]
    fn sendto_and_recvfrom_are_stopped_with_flags_that_a_pair_takes_otherwise() {
        let stops = |number, flags: i32| {
            // Linux reads an int of it.
            let flags = u64::from(flags.cast_unsigned());
            let with_rest = is_stopped(number, [3, 0, 0, flags | 1 << 40, 0, 0]);
            assert_eq!(is_stopped(number, [3, 0, 0, flags, 0, 0]), with_rest);
            with_rest
        };
        let plain = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        for (flags, expected) in [
            (plain, false),
            (plain | libc::MSG_OOB, true),
            (plain | libc::MSG_MORE, true),
            (plain | MSG_PROBE, true),
            (libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_EOR, false),
        ] {
            assert_eq!(stops(libc::SYS_sendto, flags), expected, "{flags:x}");
        }
        for (flags, expected) in [
            (plain, false),
            (libc::MSG_PEEK, false),
            (libc::MSG_WAITALL | plain, false),
            (libc::MSG_OOB | libc::MSG_WAITALL, true),
            (libc::MSG_TRUNC | plain, true),
            (libc::MSG_PEEK | libc::MSG_WAITALL, true),
            (libc::MSG_PEEK | libc::MSG_WAITALL | plain, true),
            (libc::MSG_ERRQUEUE | plain, true),
        ] {
            assert_eq!(stops(libc::SYS_recvfrom, flags), expected, "{flags:x}");
        }
    }

    #[test]
    fn of_ioctl_only_questions_about_bytes_and_addresses_are_stopped() {
        const TCGETS: u32 = 0x5401;
        let stops = |request: u32| is_stopped(libc::SYS_ioctl, [0, request.into(), 0, 0, 0, 0]);
        assert!(REQUESTS.into_iter().all(stops));
        assert!(!stops(TCGETS) && !stops(0));
        assert_eq!(u64::from(FIONREAD), libc::FIONREAD);
        assert_eq!(u64::from(SIOCOUTQ), libc::TIOCOUTQ);
        let is_for_addresses =
            |request: &u32| client::addresses::netdevice::is_asked((*request).into());
        assert_eq!(REQUESTS.iter().copied().filter(is_for_addresses).count(), 4);
    }

    #[test]
    fn the_mark_passes_and_half_of_it_does_not() {
        let mark = hostif::supervision::UNSUPERVISED;
        let stops = |sixth| is_stopped(libc::SYS_listen, [3, 0, 0, 0, 0, sixth]);
        assert!(!stops(mark));
        assert!(stops(mark ^ 1));
        assert!(stops(mark ^ (1 << 40)));
    }
}
