//! The program's side of the host interface: TCP and UDP sockets on an engine, as Rust objects.
//!
//! Start at `session` (attaching, one per process), then `socket` (what a socket is), `send` and `receive`
//! (the fast path: shared memory and one descriptor, no lock but the socket's own), `wait` (sleeping),
//! `attachments` (an engine of several cores) and `fork`. Readiness follows Linux's `tcp_poll`. Errors are errno values, because the callers are
//! the socket API.
//!
//! This code runs inside preloaded libraries: all its system calls go to the kernel directly, its
//! descriptors are high, close-on-exec and known (`is_private`), and it has no thread-local destructor.
//! It knows nothing of fd numbers of the program, of libc or of the engine's insides. What every switch
//! between stacks has to know alike is here too: `route`, `options`, `tcp_info`.

mod accept;
pub mod address;
pub mod addresses;
mod adopt;
mod attach;
mod attachment;
mod attachments;
mod byte_channels;
mod comeback;
mod command;
pub mod congestion_info;
mod control;
mod datagram;
mod death;
pub mod engines;
mod fast_open;
mod files;
mod fork;
mod holders;
pub mod inline_engine;
mod listener;
mod lock;
mod notifier;
pub mod options;
mod placement;
mod pool;
mod private;
mod readiness;
mod reap;
mod receive;
mod registry;
pub mod route;
mod say;
mod send;
mod session;
mod shared;
mod signal_deferral;
mod signals;
mod sleeping;
mod socket;
mod stamps;
mod sys;
pub mod tcp_info;
mod urgent;
mod wait;
mod wait_set;
mod waker;

pub use accept::Accepted;
pub use attach::{AttachError, engine_name, engine_names};
pub use comeback::changes;
pub use datagram::message as datagram_messages;
pub use datagram::options as datagram_options;
pub use datagram::{Control, Delivered, Heard, HeardBy, Inbox, Outbox, SentStamp, heard_beside};
pub use files::SharedFile;
pub use hostif::control::{Addresses, EngineAddress, QueryKind, Sharing, SocketKinds};
pub use hostif::datagram::{Failure, Outgoing, Received};
pub use hostif::stamp::{self, Told};
pub use hostif::{
    DatagramOptions, Figures, OptionChanges, Query, ShutdownHow, SocketId, SocketOption, WriteMode,
};
pub use notifier::{Notifier, NotifySender};
pub use private::{
    PrivateFd, close_settled, first_private, is_private, lowest_private, settle, settled, unmark,
};
pub use readiness::{Readiness, State};
pub use receive::{ReceivedBytes, UserBuffer};
pub use registry::Observer;
pub use rustix::io::Errno;
pub use say::{say, say_to};
pub use send::{Bell, SendSpace};
pub use session::Session;
pub use shared::{Loaded, Shared};
pub use signal_deferral::{SignalDeferral, forget_thread_number, handled, on_handler};
pub use signals::{AwaitsData, Undisturbed};
pub use socket::TcpSocket;
pub use sys::{at_fork, cancelled, find_thread_states};
pub use urgent::UrgentByte;
pub use wait::{SignalMask, Until, Woken, wait_for_descriptor, wait_on, wait_to_receive};
