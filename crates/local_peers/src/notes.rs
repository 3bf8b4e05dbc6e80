//! Notes between engines of one host: frames of a type of their own on the wire between them, so that they come after
//! the segments that were sent before. See IEEE Std 802, clause 9.2.4, for the type. One that came from the device
//! would be no note: only a neighbour is listened to.

use std::io;
use std::net::IpAddr;

use nic::{CONTROL_MESSAGE_BYTES, ControlMessage, Driver, LocalPeers, TxFrame};
use rustix::fd::OwnedFd;
use wire::ethernet::Header;

use super::{LocalPeerDriver, Neighbour};

/// Local experimental EtherType 1.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const FRAME_BYTES: usize = Header::LEN + CONTROL_MESSAGE_BYTES;

/// What a frame from a neighbour says, if it is a note.
pub fn read(frame: &[u8]) -> Option<ControlMessage> {
    let (header, note) = frame.split_at_checked(Header::LEN)?;
    (header[12..] == ETHERTYPE).then(|| note.try_into().ok())?
}

fn frame(note: &ControlMessage) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[12..Header::LEN].copy_from_slice(&ETHERTYPE);
    frame[Header::LEN..].copy_from_slice(note);
    frame
}

impl<D> LocalPeerDriver<D> {
    fn neighbour(&self, tag: u64) -> Option<&Neighbour> {
        self.neighbours.iter().find(|one| one.tag == tag)
    }
}

impl<D: Driver> LocalPeers for LocalPeerDriver<D> {
    fn find(&self, address: IpAddr) -> Option<u64> {
        self.place(address).map(|at| self.neighbours[at].tag)
    }

    fn knows(&self, neighbour: u64) -> bool {
        self.neighbour(neighbour).is_some()
    }

    fn has(&self, neighbour: u64, address: IpAddr) -> bool {
        self.neighbour(neighbour)
            .is_some_and(|one| !one.is_gone && one.addresses.contains(&address))
    }

    fn take_memory(&mut self, neighbour: u64) -> Option<(OwnedFd, bool)> {
        let mut all = self.neighbours.iter_mut();
        all.find(|one| one.tag == neighbour)?.memory.take()
    }

    fn tell(&mut self, neighbour: u64, note: &ControlMessage) -> io::Result<bool> {
        let mut all = self.neighbours.iter_mut();
        let Some(one) = all.find(|one| one.tag == neighbour && !one.is_gone) else {
            return Ok(true);
        };
        match one.wire.tx_burst(&[TxFrame::plain(&frame(note))]) {
            Ok(taken) => Ok(taken > 0),
            // What it wrote makes no sense.
            Err(_) => {
                one.is_gone = true;
                Ok(true)
            }
        }
    }

    fn hear(&mut self) -> Option<(u64, ControlMessage)> {
        self.heard.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_note_is_one() {
        let note = [7; CONTROL_MESSAGE_BYTES];
        let good = frame(&note);
        assert_eq!(read(&good), Some(note));
        for len in 0..good.len() {
            assert_eq!(read(&good[..len]), None, "{len} bytes");
        }
        let mut other = good;
        other[13] = 0xb6;
        assert_eq!(read(&other), None);
        assert_eq!(read(&[&good[..], &[0]].concat()), None);
    }
}
