//! Everything that is asked of the kernel about interfaces, addresses, routes and connections: rtnetlink(7), sock_diag(7),
//! nfnetlink, and the ioctls of netdevice(7) and of ethtool.
//!
//! [`message`] has the bytes that all netlink families share, [`socket`] asks a question and takes the answer. Nothing here
//! keeps protocol state or starts a thread.

pub mod configure;
pub mod ethtool;
pub mod interface;
mod kernel;
mod message;
mod monitor;
mod namespace;
mod nftables;
pub mod receive_hash;
mod rtnetlink;
pub mod segments;
mod sock_diag;
mod socket;
pub mod stamping;
mod sys;
pub mod xdp;

pub use interface::Interface;
pub use kernel::{Kernel, Link};
pub use monitor::{Change, Monitor, Neighbour, ROUTES_MAX, Route, Snapshot};
pub use namespace::is_of_own_network;
pub use nftables::rules_that_drop;
pub use sock_diag::{Connections, connections_on};
