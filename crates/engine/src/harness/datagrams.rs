//! Datagram sockets of a program in a test, step by step.

use super::{ADDRESSES, Program, Socket, Wired};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use hostif::control::{Reply, Request};
use hostif::datagram::{Outgoing, RECORD_BYTES, RawRecord, Received, record_bytes};
use hostif::{Op, Written};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// A UDP socket of the kernel that holds a free port.
fn kernel_datagram_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let made = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
    let fd = made.expect("a kernel socket");
    rustix::net::bind(&fd, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).expect("a free port");
    fd
}

impl Program {
    /// A socket bound to ANY, and where others reach it.
    pub fn datagram_socket(&mut self, wired: &mut Wired) -> Result<(Socket, SocketAddr), Errno> {
        let backing = kernel_datagram_socket();
        let open = Request::OpenDatagram;
        let (reply, _) = self.request(wired, &open, &[backing.as_fd()])?;
        let Reply::Opened(opened) = reply else {
            panic!("{reply:?} opens nothing");
        };
        let socket = self.socket(opened[0].socket, opened[0].header);
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let port = self.try_call(wired, socket.id, Op::Bind { local: any })?;
        let port = u16::try_from(port).expect("a port");
        let address = SocketAddr::new(IpAddr::V4(ADDRESSES[self.side]), port);
        Ok((socket, address))
    }

    /// Places bytes in the send ring and says that they are records.
    pub fn write_records(&self, socket: &Socket, records: &[u8]) {
        let note = self.place_records(socket, records);
        self.written.push(&note).expect("room for a note");
    }

    /// Places bytes in the send ring; the note is in no ring.
    pub fn place_records(&self, socket: &Socket, records: &[u8]) -> Written {
        let header = socket.header();
        let (span, _) = header.windows();
        let window = socket.region().window(span).expect("a good window");
        let start = header.written();
        window.copy_in(start, records);
        let end = start + records.len() as u64;
        header.program_set_written(end);
        Written::plain(socket.id, start, end)
    }

    /// Sends one datagram.
    pub fn send_datagram(&self, socket: &Socket, destination: Option<SocketAddr>, payload: &[u8]) {
        self.write_records(socket, &record_of(destination, payload));
    }
}

/// A record with its payload, as it lies in a send ring.
pub fn record_of(destination: Option<SocketAddr>, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a short payload");
    let record = Outgoing {
        len,
        destination,
        ..Outgoing::default()
    };
    let mut bytes = record.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(usize::try_from(record_bytes(len)).expect("small"), 0);
    bytes
}

impl Program {
    /// Takes one datagram, if there is one.
    pub fn receive_datagram(&self, socket: &Socket) -> Option<(Received, Vec<u8>)> {
        let header = socket.header();
        let (_, span) = header.windows();
        let window = socket.region().window(span)?;
        let start = header.consumed();
        if header.received_end() == start {
            return None;
        }
        let mut raw: RawRecord = [0; RECORD_BYTES];
        window.copy_out(start, &mut raw);
        let record = Received::decode(&raw).expect("the engine writes well");
        let mut payload = vec![0; usize::try_from(record.len).expect("small")];
        window.copy_out(start + RECORD_BYTES as u64, &mut payload);
        let end = start + u64::from(record.room);
        header.program_set_consumed(end);
        Some((record, payload))
    }
}
