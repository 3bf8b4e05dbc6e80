//! Groups that sockets are in.

use std::net::IpAddr;

use client::engines::EngineIndex;

/// A group that a socket is in, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// The only source, if one was named.
    pub source: Option<IpAddr>,
    /// The engine that hears it.
    pub place: EngineIndex,
    /// That source is not heard, of a group that is heard otherwise.
    pub is_blocked: bool,
}
