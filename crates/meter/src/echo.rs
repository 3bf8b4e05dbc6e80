//! `shunt echo`: sends back what it gets, for `shunt ping` and every other program that asks an echo: UDP and TCP
//! (RFC 862), and Ethernet frames. ICMP echoes are answered by the stack itself.
//!
//! Datagrams from ports below 1024, or from its own, are not answered: two echoes would answer each other for ever
//! (CVE-1999-0103).

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use hostif::stages::{Mark, mark};
use nic::{Driver, TxFrame};

use crate::{
    ping::DEFAULT_PORT,
    probe::{
        BLOCK, Wait,
        datagram::{DATAGRAM_MAX_BYTES, is_nothing},
        frames::{ETHER_TYPE_REPLY, ETHER_TYPE_REQUEST, HEADER_BYTES},
        link::{self, FrameDriver},
    },
    stages::KernelStamps,
    sys, target,
};

/// Send back what comes, over UDP, TCP or in Ethernet frames, for `shunt ping`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt echo                                    UDP and TCP on port 7007 of all addresses
  shunt echo --listen 10.0.0.5:7 --spin         on one address, asking again and again in place of waiting
  shunt run --nic eth0 --address 10.0.0.6/24 -- shunt echo      on Shunt's stack
  shunt echo --raw eth0                         Ethernet frames of EtherType 0x88b5 (needs CAP_NET_RAW)

ICMP echoes need no server: the stack answers them. Ctrl-C ends it. Exit status: 0 ended as asked, 2 wrong usage or
system error.")]
pub struct Arguments {
    /// Where to listen, over UDP and TCP; may be given several times [default: port 7007 of all addresses].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Send back Ethernet frames that come by this interface, and listen nowhere unless --listen says so.
    #[arg(long, value_name = "IFACE")]
    raw: Option<String>,
    /// With --raw: by this driver of Shunt in this program, in place of a packet socket of the kernel.
    #[arg(long, value_enum, requires = "raw")]
    driver: Option<FrameDriver>,
    /// Ask for what comes again and again in place of waiting for it: a processor is busy with it.
    #[arg(long)]
    spin: bool,
}

/// Connections at once; more are closed when they come.
const CONNECTIONS_MAX: usize = 256;
/// Connections that nobody has accepted yet; the kernel allows no more than net.core.somaxconn, which is 4096 unless set.
const BACKLOG: libc::c_int = 4096;
/// A connection on which nothing comes, or nothing can be sent, for so long is closed.
const SILENCE: Duration = Duration::from_secs(600);
/// How often the main thread looks whether somebody wants an end.
const LOOK: Duration = Duration::from_millis(50);
/// Ports of well-known services, RFC 6335 §6.
const SYSTEM_PORTS: std::ops::Range<u16> = 0..1024;

/// Serves until `stop` is set.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    hostif::stages::begin("program").context("noting stages")?;
    let mut addresses = arguments.listen.clone();
    let is_default = addresses.is_empty() && arguments.raw.is_none();
    if is_default {
        addresses.push((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into());
    }
    let spin = arguments.spin;
    for address in &addresses {
        serve(*address, spin).with_context(|| format!("--listen: {address}"))?;
        say!("serving UDP and TCP on {address}");
    }
    // A host without IPv6 has nothing to serve there.
    if is_default {
        let address = (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into();
        match serve(address, spin) {
            Ok(()) => say!("serving UDP and TCP on {address}"),
            Err(error) => note!("not serving IPv6: {error:#}"),
        }
    }
    if let Some(interface) = &arguments.raw {
        let port = target::port(interface)?;
        match arguments.driver {
            Some(driver) => {
                let driver = driver.open(interface, ETHER_TYPE_REQUEST)?;
                thread::spawn(move || frames_by_driver(driver, port.address, spin));
            }
            None => {
                let socket = sys::packet_socket(port.index, ETHER_TYPE_REQUEST);
                let socket = socket.with_context(|| {
                    format!("--raw on {interface}: frames need CAP_NET_RAW; run this as root")
                })?;
                sys::set_receive_timeout(socket.as_fd(), BLOCK)?;
                thread::spawn(move || frames(socket.as_fd(), port.address, spin));
            }
        }
        say!(
            "serving frames on {interface}, address {}",
            target::hardware_name(port.address)
        );
    }
    while !stop.load(Ordering::Relaxed) {
        thread::park_timeout(LOOK);
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the threads that serve an address; one of IPv6 serves IPv6 alone.
fn serve(address: SocketAddr, spin: bool) -> anyhow::Result<()> {
    let bind = |kind: libc::c_int| -> io::Result<OwnedFd> {
        let socket = sys::socket(sys::family(address.ip()), kind, 0)?;
        if address.is_ipv6() {
            sys::set(socket.as_fd(), libc::SOL_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        if kind == libc::SOCK_STREAM {
            sys::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        }
        sys::bind(socket.as_fd(), address)?;
        Ok(socket)
    };
    let datagrams = UdpSocket::from(bind(libc::SOCK_DGRAM).context("UDP")?);
    let stream = bind(libc::SOCK_STREAM).context("TCP")?;
    sys::listen(stream.as_fd(), BACKLOG).context("TCP")?;
    start(datagrams, TcpListener::from(stream), spin)
}

fn start(datagrams: UdpSocket, listener: TcpListener, spin: bool) -> anyhow::Result<()> {
    datagrams.set_nonblocking(spin)?;
    let own_port = datagrams.local_addr()?.port();
    thread::spawn(move || answer_datagrams(&datagrams, own_port));
    thread::spawn(move || accept(&listener, spin));
    Ok(())
}

fn answer_datagrams(socket: &UdpSocket, own_port: u16) {
    let mut buffer = vec![0; DATAGRAM_MAX_BYTES];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((_, from)) if SYSTEM_PORTS.contains(&from.port()) || from.port() == own_port => {}
            // What cannot be sent back is lost, as any datagram may be.
            Ok((count, from)) => drop(socket.send_to(&buffer[..count], from)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            // ICMP errors of earlier answers; of what does not end the processor is not to be busy.
            Err(_) => thread::park_timeout(Duration::from_micros(100)),
        }
    }
}

fn accept(listener: &TcpListener, spin: bool) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // No descriptor is left, for example: one will be.
            thread::park_timeout(LOOK);
            continue;
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let counted = Arc::clone(&open);
        let serve = move || {
            // A connection that fails tells its client by failing.
            let _ = answer_stream(&stream, spin);
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().spawn(serve).is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer_stream(stream: &TcpStream, spin: bool) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let flags = if spin { libc::MSG_DONTWAIT } else { 0 };
    let mut buffer = vec![0; DATAGRAM_MAX_BYTES];
    let stamps = KernelStamps::begin(stream.as_fd())?;
    loop {
        let received = match stamps {
            None => sys::recv(stream.as_fd(), &mut buffer, flags),
            Some(stamps) => stamps.receive(stream.as_fd(), &mut buffer, flags),
        };
        let count = match received {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if is_nothing(&error) && spin => continue,
            Err(error) => bail!(error),
        };
        mark(Mark::Returned);
        let mut rest = &buffer[..count];
        mark(Mark::Call);
        while !rest.is_empty() {
            let sent = sys::send(stream.as_fd(), rest, 0)?;
            rest = &rest[sent..];
        }
        if let Some(stamps) = stamps {
            stamps.take_sent(stream.as_fd());
        }
    }
}

/// Sends each frame back where it came from.
fn frames(socket: std::os::fd::BorrowedFd<'_>, own: [u8; 6], spin: bool) {
    let flags = if spin { libc::MSG_DONTWAIT } else { 0 };
    let mut buffer = vec![0; DATAGRAM_MAX_BYTES + HEADER_BYTES];
    loop {
        let count = match sys::recv(socket, &mut buffer, flags) {
            Ok(count) => count,
            Err(error) if is_nothing(&error) => continue,
            // The interface was switched off, for example: it may come back.
            Err(_) => {
                thread::park_timeout(LOOK);
                continue;
            }
        };
        let frame = &mut buffer[..count];
        if turn_back(frame, own) {
            // What cannot be sent is lost, as any frame may be.
            let _ = sys::send(socket, frame, libc::MSG_DONTWAIT);
        }
    }
}

/// Makes a frame the answer to itself, if it may be answered.
fn turn_back(frame: &mut [u8], own: [u8; 6]) -> bool {
    // A group address is no sender.
    if frame.len() < HEADER_BYTES || frame[6] & 1 != 0 {
        return false;
    }
    frame.copy_within(6..12, 0);
    frame[6..12].copy_from_slice(&own);
    frame[12..14].copy_from_slice(&ETHER_TYPE_REPLY.to_be_bytes());
    true
}

/// Frames that are taken from a driver and sent back at a time.
const BURST: usize = 64;

/// The same by a driver: what has come at once is sent back at once.
fn frames_by_driver(mut driver: Box<dyn Driver>, own: [u8; 6], spin: bool) {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    loop {
        match pass_back(driver.as_mut(), &mut frames, own) {
            Ok(0) if spin => std::hint::spin_loop(),
            Ok(0) => drop(link::wait(driver.as_mut(), Wait::Blocked)),
            Ok(_) => {}
            // The interface was switched off, for example: it may come back.
            Err(_) => thread::park_timeout(LOOK),
        }
    }
}

/// Sends back what has come; how many frames came.
fn pass_back(
    driver: &mut dyn Driver,
    frames: &mut Vec<Vec<u8>>,
    own: [u8; 6],
) -> io::Result<usize> {
    let mut count = 0;
    let came = driver.rx_burst(BURST, &mut |frame| {
        if frames.len() == count {
            frames.push(Vec::new());
        }
        let answer = &mut frames[count];
        answer.clear();
        answer.extend_from_slice(frame.bytes);
        count += usize::from(turn_back(answer, own));
    })?;
    let answers: Vec<TxFrame<'_>> = frames[..count]
        .iter()
        .map(|answer| TxFrame::plain(answer))
        .collect();
    // What a busy device does not take is lost, as any frame may be.
    driver.tx_burst(&answers)?;
    driver.flush_tx()?;
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_turned_back_unless_a_group_sent_it() {
        let own = [2, 0, 0, 0, 0, 1];
        let mut frame = [[2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 7]].concat();
        frame.extend(ETHER_TYPE_REQUEST.to_be_bytes());
        frame.extend([5; 20]);
        let mut answer = frame.clone();
        assert!(turn_back(&mut answer, own));
        assert_eq!(answer[..12], [[2, 0, 0, 0, 0, 7], own].concat());
        assert_eq!(
            (&answer[12..14], &answer[14..]),
            (&[0x88, 0xb6][..], &[5; 20][..])
        );
        frame[6] |= 1;
        assert!(!turn_back(&mut frame, own) && !turn_back(&mut frame[..13], own));
    }
}
