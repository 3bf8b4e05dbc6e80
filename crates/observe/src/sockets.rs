//! The TCP sockets of a network namespace with their counters, asked of the kernel over netlink, see
//! sock_diag(7): no tracing, no load on the program, bytes and segments exact per connection.

use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    thread,
};

use anyhow::{Context, bail};
use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
        socket_with,
    },
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// One TCP socket and what it has carried since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The number by which the kernel never confuses it with another.
    pub cookie: u64,
    /// Its inode, by which /proc/PID/fd names it.
    pub inode: u32,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// What it has carried.
    pub counters: Counters,
}

/// Counters of `struct tcp_info`, linux/tcp.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Payload received.
    pub received_bytes: u64,
    /// Payload sent and acknowledged.
    pub acknowledged_bytes: u64,
    /// Segments with payload received.
    pub segments_in: u32,
    /// Segments with payload sent.
    pub segments_out: u32,
    /// Segments sent again.
    pub repeated: u32,
    /// Largest segment that it sends.
    pub mss_bytes: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
}

/// A netlink socket in one network namespace. It stays there, whoever asks.
#[derive(Debug)]
pub struct Asker(OwnedFd);

/// Answers come in pieces of at most this.
const ANSWER_BYTES: usize = 64 << 10;
/// Dumps are cut here: more sockets than any program here is recorded with.
const MOST_SOCKETS: usize = 1 << 20;

// linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
const NLMSG_HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const DIAG_MESSAGE: usize = 72;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Every state but LISTEN, whose counters are those of its queue.
const STATES: u32 = 0xfff & !(1 << 10);

impl Asker {
    /// Opens one in the network namespace of a process.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let namespace = format!("/proc/{pid}/ns/net");
        let theirs = File::open(&namespace).with_context(|| {
            format!("opening {namespace} (a process of another user takes root)")
        })?;
        let link = |path: &str| std::fs::read_link(path).ok();
        let elsewhere = link(&namespace) != link("/proc/self/ns/net");
        // A thread may change its namespace without the others; the socket stays where it was made.
        let made = thread::spawn(move || -> io::Result<OwnedFd> {
            if elsewhere {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&theirs),
                    Some(LinkNameSpaceType::Network),
                )?;
            }
            let family = AddressFamily::NETLINK;
            let protocol = Some(netlink::SOCK_DIAG);
            Ok(socket_with(
                family,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                protocol,
            )?)
        });
        let made = made.join().ok().context("invariant: the thread ends")?;
        Ok(Self(made.with_context(|| {
            format!("asking for sockets of the network of process {pid}")
        })?))
    }

    /// All TCP connections of the namespace.
    pub fn sockets(&self) -> anyhow::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        for family in [AF_INET, AF_INET6] {
            send(&self.0, &request(family), SendFlags::empty()).context("asking for sockets")?;
            self.collect(&mut sockets)?;
        }
        Ok(sockets)
    }

    fn collect(&self, sockets: &mut Vec<Socket>) -> anyhow::Result<()> {
        let mut buffer = vec![0; ANSWER_BYTES];
        while sockets.len() < MOST_SOCKETS {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())
                .context("reading the list of sockets")?;
            for (kind, body) in messages(&buffer[..length]) {
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => bail!("the kernel does not list sockets (is tcp_diag there?)"),
                    SOCK_DIAG_BY_FAMILY => sockets.extend(parse(body)),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`: TCP of one family, with `tcp_info`.
fn request(family: u8) -> [u8; 72] {
    let mut bytes = [0; 72];
    bytes[0..4].copy_from_slice(&72_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes[16] = family;
    bytes[17] = IPPROTO_TCP;
    bytes[18] = 1 << (INET_DIAG_INFO - 1);
    bytes[20..24].copy_from_slice(&STATES.to_ne_bytes());
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Kind and body of each message; what is cut short ends the list.
fn messages(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while let (Some(length), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
        let length = length as usize;
        let Some(body) = rest.get(NLMSG_HEADER..length) else {
            break;
        };
        found.push((kind, body));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

impl Socket {
    /// Both ends on this machine.
    pub fn stays_here(&self) -> bool {
        let remote = self.remote.ip();
        self.local.ip() == remote || remote.is_loopback()
    }
}

/// `struct inet_diag_msg` and its attributes.
fn parse(body: &[u8]) -> Option<Socket> {
    let family = *body.first()?;
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
        let first = [bytes[0], bytes[1], bytes[2], bytes[3]];
        Some(match family {
            AF_INET => Ipv4Addr::from(first).into(),
            _ => Ipv6Addr::from(bytes).to_canonical(),
        })
    };
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let cookie = u64::from(u32_at(body, 44)?) | u64::from(u32_at(body, 48)?) << 32;
    let mut socket = Socket {
        cookie,
        inode: u32_at(body, 68)?,
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        counters: Counters::default(),
    };
    let mut rest = body.get(DIAG_MESSAGE..)?;
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        let Some(value) = rest.get(4..length) else {
            break;
        };
        if kind == INET_DIAG_INFO {
            socket.counters = counters(value)?;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(socket)
}

/// Offsets of `struct tcp_info`; `data_segs_in` and `data_segs_out` are there since Linux 4.6.
fn counters(info: &[u8]) -> Option<Counters> {
    Some(Counters {
        mss_bytes: u32_at(info, 16)?,
        rtt_us: u32_at(info, 68)?,
        repeated: u32_at(info, 100)?,
        acknowledged_bytes: u64_at(info, 120)?,
        received_bytes: u64_at(info, 128)?,
        segments_in: u32_at(info, 152)?,
        segments_out: u32_at(info, 156)?,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::unix::fs::MetadataExt,
    };

    use super::*;

    #[test]
    fn a_connection_is_found_by_its_inode_with_the_bytes_that_it_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[7; 300]).unwrap();
        near.read_exact(&mut [0; 300]).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&far);
        let inode = std::fs::metadata(format!("/proc/self/fd/{descriptor}"));
        let inode = u32::try_from(inode.unwrap().ino()).unwrap();
        let asker = Asker::of(std::process::id()).unwrap();
        let sockets = asker.sockets().unwrap();
        let found = sockets.iter().find(|socket| socket.inode == inode).unwrap();
        assert!(found.stays_here() && found.cookie != 0);
        assert_eq!(found.local, listener.local_addr().unwrap());
        assert_eq!(found.remote, near.local_addr().unwrap());
        assert_eq!(found.counters.received_bytes, 1000);
        assert_eq!(found.counters.segments_in, 1);
        assert_eq!(found.counters.segments_out, 1);
        assert!(sockets.iter().all(|socket| socket.inode != 1));
    }

    #[test]
    fn an_answer_that_is_cut_short_is_no_panic() {
        let mut message = vec![0; 100];
        message[0..4].copy_from_slice(&100_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        for cut in 0..=100 {
            for (_, body) in messages(&message[..cut]) {
                let _ = parse(body);
            }
        }
        message[0..4].copy_from_slice(&3_u32.to_ne_bytes());
        assert!(messages(&message).is_empty());
    }
}
