//! The stack as a whole: two of them on a lossy cable, or one against hand-made frames.

mod arp;
mod defence;
mod ecn;
mod fast_open;
mod fragments;
mod garbage;
mod handshake;
mod icmp;
mod ipv6;
mod listener;
mod multicast;
mod multicast_v6;
mod ndp;
mod node;
mod options;
mod pair;
mod peer;
mod peer6;
mod rebuild;
mod routers;
mod scale;
mod time_wait;
mod traffic;
mod udp;
mod udp_v6;
