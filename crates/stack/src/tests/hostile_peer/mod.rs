//! A peer, a stranger or a neighbour that means harm, attack by attack: what must be seen, and how little leaves for it.

mod addresses;
mod blind;
mod flood;
mod headers;
mod path_mtu;
mod segments;
