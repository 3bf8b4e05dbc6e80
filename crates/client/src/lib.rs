//! The program's side of the host interface: TCP and UDP sockets on an engine, as Rust objects.
//!
//! From the bottom up: `threads` is what a thread has inside the library, `engines` are the sessions with engines, `wait` is
//! sleeping until one of them has news, `tcp` and `udp` are the sockets. Start at `engines::session` (attaching, one per
//! engine), then `tcp::socket`. Readiness follows Linux's `tcp_poll`. Errors are errno values, because the callers are the
//! socket API.
//!
//! This code runs inside preloaded libraries: all its system calls go to the kernel directly, its
//! descriptors are high, close-on-exec and known (`is_private`), and it has no thread-local destructor.
//! It knows nothing of fd numbers of the program, of libc or of the engine's insides. What every switch
//! between stacks has to know alike is here too: `engines::route`, `options`, `tcp_info`.

pub mod address;
pub mod addresses;
mod coarse_clock;
pub mod congestion_info;
pub mod engines;
mod lock;
pub mod options;
mod private;
mod readiness;
mod say;
mod shared;
mod socket;
mod sys;
mod tcp;
pub mod tcp_info;
mod threads;
mod udp;
mod wait;

pub use engines::attachment::attach::{AttachError, engine_name, engine_names};
pub use engines::changes::changes;
pub use engines::session::Session;
pub use engines::session::registry::Observer;
pub use engines::{inline_engine, route};
pub use hostif::control::{Addresses, EngineAddress, QueryKind, Sharing, SocketKinds};
pub use hostif::datagram::{Failure, Outgoing, Received};
pub use hostif::stamp::{self, Told};
pub use hostif::{
    DatagramOptions, Figures, OptionChanges, Query, ShutdownHow, SocketId, SocketOption, WriteMode,
};
pub use private::{
    PrivateFd, close_relocated, enlarge_table, first_private, is_private, lowest_private, relocate,
    relocated, unmark,
};
pub use readiness::{Readiness, State};
pub use rustix::io::Errno;
pub use say::{say, say_to};
pub use shared::{Loaded, Shared};
pub use socket::{Socket, SocketCore};
pub use sys::at_fork;
pub use tcp::accept::Accepted;
pub use tcp::files::SharedFile;
pub use tcp::receive::ReceivedBytes;
pub use tcp::receive::user_buffer::{UserBuffer, wait_to_receive};
pub use tcp::send::{Doorbell, SendSpace};
pub use tcp::signals::AwaitsData;
pub use tcp::socket::TcpSocket;
pub use tcp::urgent::UrgentByte;
pub use threads::signal_deferral::{
    SignalDeferral, SignalMask, cancelled, find_thread_states, forget_thread_number, on_handler,
};
pub use threads::undisturbed::Undisturbed;
pub use udp::UdpSocket;
pub use udp::message as datagram_messages;
pub use udp::options as datagram_options;
pub use udp::{
    Control, DatagramReceiver, DatagramSender, Delivered, Heard, HeardBy, SentStamp,
    duplicate_filter, wait_for_datagrams,
};
pub use wait::notifier::{Notifier, NotifySender};
pub use wait::sleep::{Woken, wait_for_descriptor};
pub use wait::{Awaited, Until, wait_on};
