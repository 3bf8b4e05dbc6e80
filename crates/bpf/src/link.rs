//! Links: a program at an interface's hook or a tracepoint, for as long as a descriptor is open. A process that dies closes
//! it, so nothing of a crashed engine stays on the interface. Read first: bpf(2), `BPF_LINK_CREATE`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Error, Program, sys};

/// Where on the way of a frame an XDP program stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// Behind the driver, on any interface.
    Generic,
    /// In the driver, where that can.
    Native,
}

/// The two places of TCX (kernel 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TcxHook {
    /// Packets that arrive, behind packet sockets and before the stack.
    Ingress = 46,
    /// Packets that leave.
    Egress = 47,
}

/// A program that is attached to an interface until this is dropped.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
}

impl Link {
    /// Attaches to the XDP hook of the interface with this number. There is room for one program.
    ///
    /// # Errors
    /// The hook is taken, the interface has no such mode, or privilege is missing.
    pub fn xdp(program: &Program, interface: u32, mode: XdpMode) -> Result<Self, Error> {
        let (what, flags) = match mode {
            XdpMode::Generic => ("attaching to XDP in generic mode", sys::XDP_GENERIC),
            XdpMode::Native => ("attaching to XDP in native mode", sys::XDP_NATIVE),
        };
        let created = sys::create_link(program.fd(), interface, sys::ATTACH_XDP, flags);
        created.map(|fd| Self { fd }).map_err(Error::of(what))
    }

    /// Attaches to a TCX hook of the interface with this number, behind the programs that are there.
    ///
    /// # Errors
    /// An older kernel, or privilege is missing.
    pub fn tcx(program: &Program, interface: u32, hook: TcxHook) -> Result<Self, Error> {
        let created = sys::create_link(program.fd(), interface, hook as u32, 0);
        created
            .map(|fd| Self { fd })
            .map_err(|source| match source.raw_os_error() {
                // A kernel before 6.6 does not know this kind of link.
                Some(libc::EINVAL) => Error::Unsupported {
                    what: "attaching to TCX (kernel 6.6)",
                    source,
                },
                _ => Error::of("attaching to TCX")(source),
            })
    }

    /// Runs a program of kind `RawTracepoint` at the kernel's tracepoint of that name.
    ///
    /// # Errors
    /// There is no such tracepoint, or privilege is missing.
    pub fn raw_tracepoint(program: &Program, name: &std::ffi::CStr) -> Result<Self, Error> {
        let opened = sys::open_raw_tracepoint(program.fd(), name);
        opened
            .map(|fd| Self { fd })
            .map_err(Error::of("attaching to a tracepoint"))
    }

    /// The same link, its descriptor moved to the number where it stays.
    #[must_use]
    pub fn moved(self, relocate_fd: fn(OwnedFd) -> OwnedFd) -> Self {
        Self {
            fd: relocate_fd(self.fd),
        }
    }

    /// Of a descriptor that another process has opened; whether it is that of a link is found out when it is asked.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Whether the program still stands there: not after the interface went or somebody detached it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn is_attached(&self) -> Result<bool, Error> {
        let interface = sys::interface_of_link(self.fd());
        let interface = interface.map_err(Error::of("asking for a BPF link"))?;
        Ok(interface != 0)
    }

    /// Puts another program in the place of this one, without a frame between them.
    ///
    /// # Errors
    /// The program is of another kind, or the link is detached.
    pub fn replace(&self, program: &Program) -> Result<(), Error> {
        sys::update_link(self.fd(), program.fd()).map_err(Error::of("replacing a BPF program"))
    }

    /// The link's descriptor, to be handed to another process or kept for it: the program stays attached as
    /// long as one is open.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
