//! The stack as a whole: two of them on a lossy cable, or one against hand-made frames.

mod datagrams;
mod garbage;
mod hostile_peer;
mod ip;
mod node;
mod pair;
mod peer;
mod peer6;
mod protocols;
mod rebuild;
mod scale;
mod tcp;
mod traffic;
mod udp;
mod udp_prediction;
mod udp_v6;
