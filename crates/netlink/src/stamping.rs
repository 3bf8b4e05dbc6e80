//! Which frames a card stamps by its own clock: a setting of the whole card, which is its owner's. Read first:
//! `Documentation/networking/timestamping.rst` of the kernel, 3.1.

use std::io;

use crate::interface::control_socket;
use crate::sys;

/// linux/net_tstamp.h: `HWTSTAMP_TX_ON`.
const SENT: libc::c_int = 1;

/// The words of `struct hwtstamp_config`: flags, `tx_type`, `rx_filter`.
type Setting = [libc::c_int; 3];

/// Whether the card stamps frames that leave, where a socket asks for that; `None` where it cannot.
#[must_use]
pub fn is_sent_stamped(interface: &str) -> Option<bool> {
    let [_, sent, _] = sys::stamping(&control_socket().ok()?, interface, None).ok()?;
    Some(sent == SENT)
}

/// A card that stamps what leaves, until this is dropped: then it is as it was before, unless somebody else has set it
/// meanwhile.
#[derive(Debug)]
pub struct SentStamps {
    interface: String,
    /// What the card had, and what it was given; `None`: it stamped already.
    changed: Option<[Setting; 2]>,
}

impl SentStamps {
    /// Has the card stamp what leaves. Which frames it stamps that arrive stays as it is.
    ///
    /// # Errors
    /// The card cannot, or this process may not set it (`CAP_NET_ADMIN`).
    pub fn begin(interface: &str) -> io::Result<Self> {
        let socket = control_socket()?;
        let before = sys::stamping(&socket, interface, None)?;
        let [flags, sent, received] = before;
        let changed = if sent == SENT {
            None
        } else {
            let now = sys::stamping(&socket, interface, Some([flags, SENT, received]))?;
            Some([before, now])
        };
        Ok(Self {
            interface: interface.to_owned(),
            changed,
        })
    }

    /// Whether the card was set for this.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.changed.is_some()
    }
}

impl Drop for SentStamps {
    fn drop(&mut self) {
        let (Some([before, given]), Ok(socket)) = (self.changed, control_socket()) else {
            return;
        };
        if sys::stamping(&socket, &self.interface, None).is_ok_and(|now| now == given) {
            // A card that went has nothing to be given back.
            let _ = sys::stamping(&socket, &self.interface, Some(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_clock_is_not_set() {
        for interface in ["lo", "no such"] {
            assert_eq!(is_sent_stamped(interface), None);
            assert!(SentStamps::begin(interface).is_err());
        }
    }
}
