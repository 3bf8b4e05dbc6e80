//! What each step costs: by default Table 1 of the `nic-net` paper.

use serde::{Deserialize, Serialize};

table! {
    /// What each step costs: by default Table 1 of the paper.
    Cost in "cost." {
        /// The clock at which the costs were measured.
        reference_mhz: f64 = 450.0, above_zero;
        /// The driver's cost becomes shorter with the clock as the others do.
        scale_physical: bool = true;
        /// Sending: socket.
        tx_sock_us: f64 = 128.5, not_negative;
        /// Sending: transport.
        tx_tr_us: f64 = 302.1, not_negative;
        /// Sending: network.
        tx_net_us: f64 = 222.8, not_negative;
        /// Sending: link.
        tx_link_us: f64 = 148.0, not_negative;
        /// Receiving: socket.
        rx_sock_us: f64 = 102.2, not_negative;
        /// Receiving: transport.
        rx_tr_us: f64 = 346.9, not_negative;
        /// Receiving: network.
        rx_net_us: f64 = 155.8, not_negative;
        /// Receiving: link.
        rx_link_us: f64 = 126.6, not_negative;
        /// Executing: the socket interface.
        ex_sock_us: f64 = 81.7, not_negative;
        /// Executing: a system call.
        ex_sys_us: f64 = 91.6, not_negative;
        /// Executing: the physical layer, that is the driver.
        ex_phy_us: f64 = 424.5, not_negative;
    }
}

impl Cost {
    /// No step costs anything.
    pub(crate) fn free() -> Self {
        Self {
            tx_sock_us: 0.0,
            tx_tr_us: 0.0,
            tx_net_us: 0.0,
            tx_link_us: 0.0,
            rx_sock_us: 0.0,
            rx_tr_us: 0.0,
            rx_net_us: 0.0,
            rx_link_us: 0.0,
            ex_sock_us: 0.0,
            ex_sys_us: 0.0,
            ex_phy_us: 0.0,
            ..Self::default()
        }
    }
}
