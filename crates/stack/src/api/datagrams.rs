//! What a program asks of its UDP sockets.

use crate::egress::Egress;
use crate::error::Error;
use crate::stack::Stack;
use crate::udp::{Outgoing, SendError, UdpBind, UdpId, UdpOptions};
use core::net::{IpAddr, SocketAddr};
use tcp::Instant;

impl Stack<'_> {
    /// Sends one datagram, or the next of those that the payload is cut into: returns how many bytes of
    /// it have been sent or are held for a neighbour. What is left is to be offered again.
    ///
    /// # Errors
    /// [`SendError::Busy`]: nothing was sent. [`SendError::Refused`]: nothing ever will be.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        outgoing: &Outgoing,
        payload: &[u8],
        egress: &mut dyn Egress,
    ) -> Result<usize, SendError> {
        self.udp
            .send(&mut self.ip, now, id, outgoing, payload, egress)
    }

    /// The MTU towards the peer of a connected socket (`IP_MTU`).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::DestinationRequired`]: not connected.
    pub fn udp_mtu(&self, now: Instant, id: UdpId) -> Result<u16, Error> {
        self.udp.mtu(&self.ip, now, id)
    }

    /// The largest packet that a socket may send to a destination in one piece.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NetworkUnreachable`].
    pub fn udp_mtu_towards(
        &self,
        now: Instant,
        id: UdpId,
        destination: SocketAddr,
    ) -> Result<u16, Error> {
        self.udp.mtu_towards(&self.ip, now, id, destination)
    }

    /// Makes a socket at a local end.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`], [`Error::AddressInUse`], [`Error::NoMemory`].
    pub fn udp_bind(&mut self, bind: &UdpBind) -> Result<UdpId, Error> {
        self.udp.bind(&mut self.ip, bind)
    }

    /// Gives the socket a peer: it sends there by default and receives from nobody else; of port 0 there is no peer, and the
    /// socket only gets the local address that leads there, which programs ask for so. Returns the
    /// local end, whose address is the route's if the socket was bound to ANY (RFC 1122 §4.1.3.5).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NetworkUnreachable`], [`Error::InvalidArgument`],
    /// [`Error::AccessDenied`] for broadcast without permission.
    pub fn udp_connect(&mut self, id: UdpId, remote: SocketAddr) -> Result<SocketAddr, Error> {
        self.udp.connect(&mut self.ip, id, remote)
    }

    /// Takes the peer away again: the socket is as it was bound.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_disconnect(&mut self, id: UdpId) -> Result<SocketAddr, Error> {
        self.udp.disconnect(id)
    }

    /// Changes the options.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_set_options(&mut self, id: UdpId, options: &UdpOptions) -> Result<(), Error> {
        self.udp.set_options(id, options)
    }

    /// The options.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_options(&self, id: UdpId) -> Result<UdpOptions, Error> {
        self.udp.options(id)
    }

    /// The socket is gone.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_close(&mut self, id: UdpId) -> Result<(), Error> {
        self.udp.close(&mut self.ip, id)
    }

    /// The local end and the peer.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn udp_addresses(&self, id: UdpId) -> Result<(SocketAddr, Option<SocketAddr>), Error> {
        self.udp.addresses(id)
    }

    /// The ports that sockets have.
    pub fn udp_ports(&self) -> impl Iterator<Item = u16> {
        self.udp.used_ports()
    }

    /// The local addresses at which sockets have that port, some more than once; one for both families is named as the
    /// unspecified one of each.
    pub fn udp_holders(&self, port: u16) -> impl Iterator<Item = IpAddr> {
        self.udp.holders(port)
    }

    /// UDP sockets in use.
    pub fn udp_sockets(&self) -> usize {
        self.udp.sockets()
    }
}
