//! UDP sockets on an engine, and what every switch between stacks has to know alike of datagrams: options, control messages, who
//! was heard on which stack.

mod describe;
mod duplicate_filter;
mod heard;
pub mod message;
pub mod options;
mod receive;
mod send;
pub(crate) mod socket;

pub use describe::{Control, SentStamp};
pub use duplicate_filter::duplicate_filter;
pub use heard::{Heard, HeardBy};
pub use receive::{DatagramReceiver, Delivered, wait_for_datagrams};
pub use send::DatagramSender;
pub use socket::UdpSocket;
