//! The ways in which bytes get from a file to a connection.

use serde::Serialize;

/// How bytes get from a file to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// read(2) into memory and write(2) out of it: two copies.
    ReadWrite,
    /// sendfile(2).
    Sendfile,
    /// splice(2) through a pipe.
    Splice,
}

impl Method {
    /// Those that are tried where the user names none, in this order.
    pub const TRIED: [Self; 3] = [Self::Sendfile, Self::Splice, Self::ReadWrite];

    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
        }
    }
}
