//! How a TAP interface is opened. Nothing is opened here.

use ::wire::ethernet;

/// How to create, or attach to, a TAP interface.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Name of the interface; `None`: the kernel chooses.
    pub name: Option<String>,
    /// Address of our end of the cable; `None`: a random, locally administered one. (The kernel's
    /// end has an address of its own.)
    pub hardware_address: Option<ethernet::Address>,
    /// MTU to set on the kernel's end; `None`: leave it.
    pub mtu: Option<u32>,
    /// Start the kernel's end.
    pub up: bool,
}

/// What is said about a descriptor that somebody else opened, perhaps in another namespace.
#[derive(Debug, Clone)]
pub struct Adopt {
    /// Address of our end; `None`: a random, locally administered one.
    pub hardware_address: Option<ethernet::Address>,
    /// MTU of the interface, which cannot be read from another namespace.
    pub mtu: u32,
}
