//! What programs see of who receives on this engine (`hostif::holders`), so that each connection and each datagram over loopback
//! goes where a socket hears it: to the engine or to the kernel. Made when the first program asks for it.
//!
//! A listener is named once it is bound, before the kernel's part of it listens: who finds it so, and not listening yet, asks
//! again, so that nobody is heard by the kernel meanwhile.

use crate::programs::Refusal;
use crate::programs::users::{Finished, FinishedSender, User};
use crate::sockets::Sockets;
use crate::sockets::rows::Kind;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use hostif::{Holders, Transport};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::Shutdown;
use stack::Stack;
use std::collections::BTreeMap;

/// Ports of sockets that were bound to listen and did something else, before they are looked for.
const EXPECTED_MAX: usize = 1_024;

/// See the file's head.
pub struct PortHolders {
    /// Where a port is told that the kernel has nothing of any more.
    answers: FinishedSender,
    shown: Option<Holders>,
    /// By port the sockets that are bound, and about to listen.
    expected: BTreeMap<u16, Vec<u32>>,
}

impl PortHolders {
    /// Nobody yet.
    pub fn new(answers: FinishedSender) -> Self {
        Self {
            answers,
            shown: None,
            expected: BTreeMap::new(),
        }
    }

    /// The memory, for a program.
    pub(crate) fn map(&mut self, stack: &Stack<'_>, sockets: &Sockets) -> Result<OwnedFd, Refusal> {
        if self.shown.is_none() {
            let shown = Holders::create().map_err(|error| (Errno::NOMEM, error.to_string()))?;
            self.shown = Some(shown);
            let udp: Vec<u16> = stack.udp_ports().collect();
            udp.into_iter().for_each(|port| self.name_udp(stack, port));
            let tcp: Vec<u16> = stack.listening_ports().collect();
            let expected = self.expected.keys().copied();
            let tcp: Vec<u16> = tcp.into_iter().chain(expected).collect();
            tcp.into_iter()
                .for_each(|port| self.name_tcp(stack, sockets, port));
        }
        let file = self.shown.as_ref().and_then(Holders::file);
        let file = file.ok_or((Errno::NOENT, String::new()))?;
        rustix::io::fcntl_dupfd_cloexec(file, 0)
            .map_err(|errno| (errno, "cannot duplicate a file".to_owned()))
    }

    /// Something has changed on a port of UDP.
    pub(crate) fn name_udp(&self, stack: &Stack<'_>, port: u16) {
        if let Some(shown) = &self.shown {
            shown.name(Transport::Udp, port, stack.udp_holders(port));
        }
    }

    /// A socket has left a port of UDP. It is named until the kernel has nothing of it any more: what is sent there meanwhile
    /// is refused here, and would be lost there.
    pub(crate) fn leave_name(&self, port: u16, user: &User) {
        if self.shown.is_some() {
            let answers = self.answers.clone();
            user.run(move || answers.tell(Finished::Left { port }));
        }
    }

    /// Something has changed on a port of listeners.
    pub(crate) fn name_tcp(&mut self, stack: &Stack<'_>, sockets: &Sockets, port: u16) {
        let expected = self.expected_on(sockets, port);
        if let Some(shown) = &self.shown {
            let any_v4 = |ip: &IpAddr| {
                let is_any_v6 = ip.is_ipv6() && ip.is_unspecified();
                is_any_v6.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
            };
            let both = |ip: IpAddr| core::iter::once(ip).chain(any_v4(&ip));
            let expected = expected.into_iter().flat_map(both);
            let all = stack.listening_on(port).chain(expected);
            shown.name(Transport::Tcp, port, all);
        }
    }

    /// A stream socket was bound: it is expected to listen.
    pub(crate) fn expect_listener(&mut self, stack: &Stack<'_>, sockets: &Sockets, row: u32) {
        if self.expected.len() >= EXPECTED_MAX {
            let ports: Vec<u16> = self.expected.keys().copied().collect();
            for port in ports {
                self.expected_on(sockets, port);
            }
        }
        let port = sockets.row(row).local_port;
        let rows = self.expected.entry(port).or_default();
        if !rows.contains(&row) {
            rows.push(row);
        }
        self.name_tcp(stack, sockets, port);
    }

    /// The addresses of those that are about to listen on a port; the others are forgotten.
    fn expected_on(&mut self, sockets: &Sockets, port: u16) -> Vec<IpAddr> {
        let Some(rows) = self.expected.get_mut(&port) else {
            return Vec::new();
        };
        let waits = |row: &u32| {
            let record = sockets.row(*row);
            record.kind == Kind::Fresh && record.local_port == port
        };
        rows.retain(waits);
        let addresses = rows.iter().map(|row| sockets.row(*row).local().ip());
        let addresses: Vec<IpAddr> = addresses.collect();
        if addresses.is_empty() {
            self.expected.remove(&port);
        }
        addresses
    }

    /// Whether somebody is about to listen there.
    pub(crate) fn is_expected(&mut self, sockets: &Sockets, local: SocketAddr) -> bool {
        let address = local.ip().to_canonical();
        let expected = self.expected_on(sockets, local.port());
        expected
            .iter()
            .any(|ip| *ip == address || ip.is_unspecified())
    }

    /// The last holder of a listener is gone: the kernel's part of it stops first, or it would hear whoever no longer finds it
    /// here.
    pub(crate) fn end_kernels_part(&self, sockets: &mut Sockets, row: u32) {
        if self.shown.is_none() {
            return;
        }
        if let Some(backing) = &sockets.companion(row).backing
            && backing.user().is_asked_here()
        {
            // One that never listened there says so, and needs nothing.
            let _ = rustix::net::shutdown(&**backing, Shutdown::Both);
        }
    }
}
