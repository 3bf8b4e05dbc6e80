//! What each step costs: by default Table 1 of the `nic-net` paper.

use serde::{Deserialize, Serialize};

/// What each step costs: by default Table 1 of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// The clock at which the costs were measured.
    pub reference_mhz: f64,
    /// The driver's cost becomes shorter with the clock as the others do.
    pub scale_physical: bool,
    /// Sending: socket.
    pub tx_sock_us: f64,
    /// Sending: transport.
    pub tx_tr_us: f64,
    /// Sending: network.
    pub tx_net_us: f64,
    /// Sending: link.
    pub tx_link_us: f64,
    /// Receiving: socket.
    pub rx_sock_us: f64,
    /// Receiving: transport.
    pub rx_tr_us: f64,
    /// Receiving: network.
    pub rx_net_us: f64,
    /// Receiving: link.
    pub rx_link_us: f64,
    /// Executing: the socket interface.
    pub ex_sock_us: f64,
    /// Executing: a system call.
    pub ex_sys_us: f64,
    /// Executing: the physical layer, that is the driver.
    pub ex_phy_us: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            reference_mhz: 450.0,
            scale_physical: true,
            tx_sock_us: 128.5,
            tx_tr_us: 302.1,
            tx_net_us: 222.8,
            tx_link_us: 148.0,
            rx_sock_us: 102.2,
            rx_tr_us: 346.9,
            rx_net_us: 155.8,
            rx_link_us: 126.6,
            ex_sock_us: 81.7,
            ex_sys_us: 91.6,
            ex_phy_us: 424.5,
        }
    }
}
