//! The internet layer and the links below it.

pub mod arp;
mod fragments;
mod icmp;
mod ipv6;
mod multicast;
mod multicast_v6;
mod ndp;
mod redirect;
mod routers;
