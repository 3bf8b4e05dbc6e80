//! Sockets of a Shunt engine for programs that are written for it: no descriptor, no system call per operation,
//! and no copy where the program does not want one. `docs/native.md` says when that is worth while.
//!
//! Start at [`Engine`], then [`TcpStream`] and its two halves, [`TcpListener`], [`UdpSocket`]; [`Poller`] tells
//! which of many sockets are ready, [`send_many`] and [`receive_many`] serve many in one go.
//!
//! A running engine is needed; it is named as `shunt run --engine` names it. Errors are [`std::io::Error`]s with
//! the errno that the socket API has for the same case. Nothing here decides whether the kernel would be the better
//! stack for a destination: what the engine does not reach is refused. Engines inside a program are not served.
#![forbid(unsafe_code)]

mod backing;
mod batch;
mod bound;
mod control;
mod engine;
mod error;
mod half;
mod listener;
mod pieces;
mod poll;
mod poller;
mod stream;
mod udp;
mod wait;

pub use batch::{ReceiveItem, SendItem, receive_many, send_many};
pub use bound::BoundSocket;
pub use control::StreamControl;
pub use engine::{DEFAULT_ENGINE, Engine};
pub use error::{from_errno, to_errno};
pub use half::{ReceiveHalf, SendHalf};
pub use listener::TcpListener;
pub use pieces::{Borrowed, Reserved};
pub use poll::{Pollable, Polled, poll};
pub use poller::{Event, Poller};
pub use stream::TcpStream;
pub use udp::UdpSocket;

pub use client::Readiness;
