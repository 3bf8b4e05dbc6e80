//! Where a program runs, whose TCP it uses, and the command line that makes it so.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddrV4},
};

use anyhow::Context as _;
use lab::{INTERFACE, own_binary};

use crate::tools;

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Where servers run.
    A,
    /// Where clients run.
    B,
}

impl On {
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// Whose TCP a program uses. Flags are further ones of `shunt run`, with blanks between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    Kernel,
    /// That of an engine with a process of its own.
    Engine(&'static str),
    /// The kernel's, of a program that is on such an engine otherwise.
    Left,
    /// That of such an engine, over loopback (`shunt run --loopback`).
    Loopback,
    /// That of an engine that runs where this `--engine-mode` puts it, at the address that the lab names.
    Placed(&'static str),
    /// That of an engine inside the program, over this driver, with these flags.
    Inline(&'static str, &'static str),
}

impl Stack {
    /// By its name in the tables of setups: `kernel`, `engine`, `left`, `loopback`, `inline`, `xdp` (inline over AF_XDP), and flags
    /// behind it.
    pub fn named(words: &'static str) -> Option<Self> {
        let (name, flags) = words.split_once(' ').unwrap_or((words, ""));
        Some(match name {
            "kernel" => Self::Kernel,
            "engine" => Self::Engine(flags),
            "left" => Self::Left,
            "loopback" => Self::Loopback,
            "inline" => Self::Inline("af_packet", flags),
            "xdp" => Self::Inline("af_xdp", flags),
            _ => return None,
        })
    }

    /// Whether an engine with a process of its own must run.
    pub fn needs_engine(self) -> bool {
        matches!(self, Self::Engine(_) | Self::Left | Self::Loopback)
    }
}

/// Place and address of a program.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    pub on: On,
    pub stack: Stack,
    /// Where others reach it.
    pub address: Ipv4Addr,
    /// Added to ports: several programs may have one address.
    pub port: u16,
    /// Not as root, nor as one of a user namespace.
    pub as_user: bool,
}

impl Placement {
    pub fn at(self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, port + self.port)
    }

    /// The same place for another program: its ports are so many further.
    pub fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// The same place for a program of an ordinary user.
    pub fn as_user(self, as_user: bool) -> Self {
        Self { as_user, ..self }
    }

    /// The same place, reached at another address.
    pub fn reached_at(self, address: Ipv4Addr) -> Self {
        Self { address, ..self }
    }
}

/// What comes before a program, the program's file, and its arguments.
pub fn whole_line(placement: Placement, line: &[&str]) -> anyhow::Result<Vec<OsString>> {
    let (&name, arguments) = line
        .split_first()
        .context("invariant: a line names a program")?;
    let mut whole = prefix(placement)?;
    whole.push(match name {
        LOAD | SHUNT => own_binary().into(),
        name => tools::find(name)?.into_os_string(),
    });
    whole.extend((name == LOAD).then(|| LOAD.into()));
    whole.extend(arguments.iter().map(OsString::from));
    Ok(whole)
}

/// Stands for this binary's own small programs in a command line, see `load.rs`.
pub const LOAD: &str = "load";

/// Stands for this binary itself in a command line.
pub const SHUNT: &str = "shunt";

/// What comes before a program's own command line.
fn prefix(placement: Placement) -> anyhow::Result<Vec<OsString>> {
    let mut line = Vec::new();
    if placement.stack == Stack::Kernel {
        return Ok(line);
    }
    line.push(own_binary().into());
    line.push("run".into());
    if placement.stack != Stack::Left {
        // No TCP shall be measured that went to the kernel after all.
        line.extend(["--policy", "engine-only"].map(OsString::from));
    }
    let flags = match placement.stack {
        Stack::Kernel | Stack::Left => "",
        Stack::Loopback => "--loopback",
        Stack::Engine(flags) => flags,
        Stack::Placed(mode) => {
            line.extend(["--engine-mode", mode].map(OsString::from));
            ""
        }
        Stack::Inline(driver, flags) => {
            let address = format!("{}/24", placement.address);
            line.extend(["--engine-mode=inline", "--allow-deep-idle"].map(OsString::from));
            line.extend(["--nic", INTERFACE, "--driver", driver].map(OsString::from));
            line.extend(["--address", &address].map(OsString::from));
            flags
        }
    };
    line.extend(flags.split_ascii_whitespace().map(OsString::from));
    line.push("--".into());
    Ok(line)
}
