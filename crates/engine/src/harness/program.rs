//! A program as the engine sees one: a control channel, a region, rings. What the client library does
//! with care this does step by step, so that a test can leave steps out or do them wrongly.

use super::{Act, Wired};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use hostif::control::{ASK_AGAIN, Reply, Request, receive, send};
use hostif::{
    Command, Completion, Consumed, Consumer, Flags, Op, Producer, Region, SocketHeader, SocketId,
    Written,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

/// Polls that an answer may take.
const TURNS_MAX: usize = 1_000;

/// How often a library asks an engine that ends before it has noted who asks.
const ATTEMPTS: usize = 3;
/// The engine that took a request was replaced.
const ASK_AGAIN_ERRNO: Errno = Errno::from_raw_os_error(ASK_AGAIN as i32);

/// An attached program. Dropping it is its death.
pub struct Program {
    /// Which core it is attached to.
    pub side: usize,
    /// Its session's slot.
    pub slot: usize,
    /// Its session's number.
    pub session: u32,
    /// Its region.
    pub region: Region,
    /// The region's file, to write anything anywhere.
    pub file: OwnedFd,
    /// Its end of the control channel.
    pub control: Channel,
    /// The doorbells: the program's own, the engine's.
    pub bells: [OwnedFd; 2],
    /// Commands.
    pub commands: Producer<Command>,
    /// Notes of bytes written.
    pub written: Producer<Written>,
    /// Notes of bytes consumed.
    pub consumed: Producer<Consumed>,
    /// Completions.
    pub completions: Consumer<Completion>,
    /// A kernel socket, bound to a free port of any address, that stands behind every socket.
    pub backing: OwnedFd,
    token: u32,
    /// Handles of prepared backing sockets.
    handles: Vec<u32>,
    /// Everything reaped and not asked for yet.
    pub reaped: Vec<Completion>,
}

/// A socket as a program sees it.
#[derive(Clone)]
pub struct Socket {
    /// Its name.
    pub id: SocketId,
    region: Region,
    index: u32,
}

impl Socket {
    /// Its header.
    pub fn header(&self) -> SocketHeader<'_> {
        self.region
            .socket_header(self.index)
            .expect("the engine named a header")
    }

    /// The region that holds its header and windows.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Its published state; nothing once the socket is gone.
    pub fn flags(&self) -> Flags {
        if self.header().is_of(self.id) {
            self.header().flags()
        } else {
            Flags::empty()
        }
    }
}

/// A TCP socket of the kernel that holds a free port.
pub fn kernel_socket() -> OwnedFd {
    kernel_socket_on((Ipv4Addr::UNSPECIFIED, 0).into()).expect("a free port")
}

/// The same at an address that somebody else may have.
pub fn kernel_socket_on(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

/// A program's end of a control channel. The system may close a Unix socket a little after close(2) has
/// returned, while descriptors are in flight elsewhere in the process; the end that the other side sees
/// shall be at once.
pub struct Channel(OwnedFd);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// The channel that came with an answer.
fn only(descriptors: Vec<OwnedFd>) -> Channel {
    let channel = descriptors.into_iter().next().expect("a channel");
    rustix::io::ioctl_fionbio(&channel, true).expect("a socket");
    Channel(channel)
}

fn pair() -> (Channel, OwnedFd) {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .expect("a pair of sockets");
    (Channel(ours), theirs)
}

impl Wired {
    /// Attaches a program to one of the cores.
    pub fn attach(&mut self, side: usize) -> Program {
        self.try_attach(side).expect("the engine takes a program")
    }

    /// As [`Wired::attach`]; the engine may refuse.
    pub fn try_attach(&mut self, side: usize) -> Result<Program, Errno> {
        let (ours, theirs) = pair();
        self.cores[side].accept_session(theirs);
        self.greet(side, ours)
    }

    /// As [`Wired::try_attach`], for a program of that user.
    pub fn try_attach_as(&mut self, side: usize, uid: u32) -> Result<Program, Errno> {
        let (ours, theirs) = pair();
        self.cores[side].programs.add(theirs, 1, uid);
        self.greet(side, ours)
    }

    /// Attaches a program to a core that has a keeper by its control socket, as a library does.
    pub fn attach_by_socket(&mut self, side: usize) -> Result<Program, Errno> {
        for _ in 0..ATTEMPTS {
            let control = hostif::control::connect(&self.cores[side].config.name)?;
            self.perform(side, Act::Accept);
            match self.greet(side, Channel(control)) {
                // The engine that accepted was replaced before it had noted that.
                Err(Errno::CONNRESET) => {}
                greeted => return greeted,
            }
        }
        Err(Errno::CONNRESET)
    }

    /// Says hello on a channel that the engine knows.
    pub fn greet(&mut self, side: usize, control: Channel) -> Result<Program, Errno> {
        let hello = Request::Hello {
            min_version: hostif::MIN_VERSION,
            max_version: hostif::MAX_VERSION,
            pid: 1,
        };
        let (reply, descriptors) = loop {
            // Refused already, perhaps; then the channel is closed.
            let _ = send(control.as_fd(), &hello.encode(), &[]);
            self.serve();
            match answer(control.as_fd()) {
                Err(errno) if errno == ASK_AGAIN_ERRNO => {}
                answer => break answer?,
            }
        };
        let Reply::Welcome(welcome) = reply else {
            panic!("{reply:?} is no welcome");
        };
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().expect("three descriptors");
        let (file, bells) = (next(), [next(), next()]);
        let region =
            Region::map(rustix::io::dup(&file).expect("a descriptor")).expect("a good region");
        let slot = self.cores[side].programs.slot_of(welcome.session);
        Ok(Program {
            side,
            slot: slot.expect("a session of that number"),
            session: welcome.session,
            commands: region.command_producer(),
            written: region.send_producer(),
            consumed: region.receive_producer(),
            completions: region.completion_consumer(),
            region,
            file,
            control,
            bells,
            backing: kernel_socket(),
            token: 0,
            handles: Vec::new(),
            reaped: Vec::new(),
        })
    }
}

fn answer(control: BorrowedFd<'_>) -> Result<(Reply, Vec<OwnedFd>), Errno> {
    let received = receive(control, RecvFlags::DONTWAIT)?;
    if received.bytes.is_empty() {
        return Err(Errno::CONNRESET);
    }
    match Reply::decode(&received.bytes).expect("the engine speaks well") {
        Reply::Refused { errno, .. } => Err(Errno::from_raw_os_error(i32::from(errno))),
        reply => Ok((reply, received.descriptors)),
    }
}

impl Program {
    /// Asks over the control channel.
    pub fn request(
        &self,
        wired: &mut Wired,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Errno> {
        loop {
            // An engine that goes on where another one stopped may have answered what was answered already.
            while receive(self.control.as_fd(), RecvFlags::DONTWAIT)
                .is_ok_and(|old| !old.bytes.is_empty())
            {}
            send(self.control.as_fd(), &request.encode(), descriptors)?;
            wired.perform(self.side, Act::Control(self.slot));
            match answer(self.control.as_fd()) {
                Err(errno) if errno == ASK_AGAIN_ERRNO => {}
                answer => return answer,
            }
        }
    }

    /// The port that the kernel socket behind every socket of this program holds.
    pub fn port(&self) -> u16 {
        let name = rustix::net::getsockname(&self.backing).expect("a bound socket");
        SocketAddr::try_from(name).expect("an address").port()
    }

    /// Opens a socket.
    pub fn open(&self, wired: &mut Wired) -> Result<Socket, Errno> {
        self.open_by(wired, &Request::Open { count: 1 })
    }

    /// Opens one by this request, over the kernel socket behind every socket of this program.
    pub fn open_by(&self, wired: &mut Wired, request: &Request) -> Result<Socket, Errno> {
        let (reply, _) = self.request(wired, request, &[self.backing.as_fd()])?;
        let Reply::Opened(opened) = reply else {
            panic!("{reply:?} opens nothing");
        };
        Ok(Socket {
            id: opened[0].socket,
            region: self.region.clone(),
            index: opened[0].header,
        })
    }

    /// A socket by what the engine answered.
    pub fn socket(&self, id: SocketId, index: u32) -> Socket {
        Socket {
            id,
            region: self.region.clone(),
            index,
        }
    }

    /// Takes what the engine says into `reaped`.
    pub fn reap(&mut self) {
        while let Some(completion) = self.completions.pop().expect("the engine writes well") {
            self.reaped.push(completion);
        }
    }

    /// Sends a command and returns its token.
    pub fn post(&mut self, socket: Option<SocketId>, op: Op) -> u32 {
        self.token += 1;
        let token = self.token;
        let command = Command { token, socket, op };
        self.commands.push(&command).expect("room for a command");
        token
    }

    /// Sends a command and waits for its completion.
    pub fn call(&mut self, wired: &mut Wired, socket: SocketId, op: Op) -> Completion {
        let wanted = self.post(Some(socket), op);
        for _ in 0..TURNS_MAX {
            wired.turn();
            self.reap();
            let is_it = |completion: &Completion| match completion {
                Completion::Done { token, .. } | Completion::Accepted { token, .. } => {
                    *token == wanted
                }
                Completion::Event { .. } => false,
            };
            if let Some(at) = self.reaped.iter().position(is_it) {
                return self.reaped.remove(at);
            }
        }
        panic!("no answer to {op:?}");
    }

    /// As `call`, for commands that are done or refused.
    pub fn try_call(&mut self, wired: &mut Wired, socket: SocketId, op: Op) -> Result<u64, Errno> {
        match self.call(wired, socket, op) {
            Completion::Done {
                errno: 0, value, ..
            } => Ok(value),
            Completion::Done { errno, .. } => Err(Errno::from_raw_os_error(i32::from(errno))),
            other => panic!("{other:?} answers {op:?}"),
        }
    }

    /// A listening socket, and where it listens.
    pub fn listen(
        &mut self,
        wired: &mut Wired,
        backlog: u32,
    ) -> Result<(Socket, SocketAddr), Errno> {
        let socket = self.open(wired)?;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let port = self.try_call(wired, socket.id, Op::Bind { local: any })?;
        self.try_call(wired, socket.id, Op::Listen { backlog })?;
        let port = u16::try_from(port).expect("a port");
        let engine = usize::from(self.side == super::OTHER);
        let address = SocketAddr::new(IpAddr::V4(super::ADDRESSES[engine]), port);
        Ok((socket, address))
    }

    /// Starts to connect.
    pub fn connect(&mut self, wired: &mut Wired, remote: SocketAddr) -> Result<Socket, Errno> {
        let socket = self.open(wired)?;
        let connect = Op::Connect {
            remote,
            local: None,
        };
        match self.try_call(wired, socket.id, connect) {
            Ok(_) => Ok(socket),
            Err(errno) => {
                self.close(&socket);
                wired.run_until_idle();
                Err(errno)
            }
        }
    }

    /// Takes a connection; EAGAIN when there is none.
    pub fn accept(&mut self, wired: &mut Wired, listener: &Socket) -> Result<Socket, Errno> {
        let handle = match self.handles.pop() {
            Some(handle) => handle,
            None => {
                let prepare = Request::Prepare { count: 1 };
                let (reply, _) = self.request(wired, &prepare, &[self.backing.as_fd()])?;
                let Reply::Prepared { first, .. } = reply else {
                    panic!("{reply:?} prepares nothing");
                };
                first
            }
        };
        match self.call(wired, listener.id, Op::Accept { handle }) {
            Completion::Accepted { socket, header, .. } => Ok(Socket {
                id: socket,
                region: self.region.clone(),
                index: header,
            }),
            Completion::Done { errno, .. } => {
                self.handles.push(handle);
                Err(Errno::from_raw_os_error(i32::from(errno)))
            }
            Completion::Event { .. } => panic!("an event answers nothing"),
        }
    }

    /// Connects two programs.
    pub fn connected(
        wired: &mut Wired,
        [active, passive]: [&mut Program; 2],
        listener: &(Socket, SocketAddr),
    ) -> (Socket, Socket) {
        let near = active
            .connect(wired, listener.1)
            .expect("the engine connects");
        wired.run_until_idle();
        assert!(near.flags().contains(Flags::CONNECTED), "no connection");
        let far = passive
            .accept(wired, &listener.0)
            .expect("a connection waits");
        (near, far)
    }

    /// Sends what fits and returns how many bytes that was.
    pub fn send(&self, socket: &Socket, bytes: &[u8]) -> usize {
        self.send_as(socket, bytes, hostif::WriteMode::Plain)
    }

    /// As `send`, in that mode.
    pub fn send_as(&self, socket: &Socket, bytes: &[u8], mode: hostif::WriteMode) -> usize {
        let header = socket.header();
        let (span, _) = header.windows();
        let window = socket.region.window(span).expect("a good window");
        let used = header.written() - header.acknowledged();
        let room = u64::from(header.send_limit(span.size)).saturating_sub(used);
        let free = usize::try_from(room).expect("a window is small");
        let len = bytes.len().min(free);
        if len == 0 || self.written.pending() == Ok(self.written.capacity()) {
            return 0;
        }
        let start = header.written();
        let window = header.program_place_sent(window, start, used);
        window.copy_in(start, &bytes[..len]);
        let end = start + len as u64;
        let note = Written {
            socket: socket.id,
            start,
            end,
            source: None,
            mode,
            in_place: false,
            stamps: 0,
        };
        header.program_set_written(end);
        self.written.push(&note).expect("there was room");
        len
    }

    /// Receives what is there.
    pub fn receive(&self, socket: &Socket, bytes: &mut [u8]) -> usize {
        let header = socket.header();
        let (_, span) = header.windows();
        let Some(window) = socket.region.window(span) else {
            return 0;
        };
        let there = usize::try_from(header.received_end() - header.consumed()).expect("small");
        let len = there.min(bytes.len());
        if len == 0 || self.consumed.pending() == Ok(self.consumed.capacity()) {
            return 0;
        }
        let (place, _) = header.receive_place(header.consumed(), span.size);
        window.copy_out(place, &mut bytes[..len]);
        let end = header.consumed() + len as u64;
        header.program_set_consumed(end);
        let note = Consumed {
            socket: socket.id,
            end,
            in_place: false,
        };
        self.consumed.push(&note).expect("there was room");
        len
    }

    /// Closes a socket.
    pub fn close(&mut self, socket: &Socket) {
        let (written, consumed) = (socket.header().written(), socket.header().consumed());
        let op = Op::Close { written, consumed };
        let (token, socket) = (0, Some(socket.id));
        let command = Command { token, socket, op };
        self.commands.push(&command).expect("room for a command");
    }

    /// Tells the engine of a coming fork and returns the child's end of its control channel.
    pub fn fork(&self, wired: &mut Wired) -> Result<Channel, Errno> {
        let (_, descriptors) = self.request(wired, &Request::Fork, &[])?;
        Ok(only(descriptors))
    }

    /// A channel to another core of the engine, which has yet to look at it.
    pub fn join(&self, wired: &mut Wired, core: u16) -> Result<Channel, Errno> {
        let (_, descriptors) = self.request(wired, &Request::Join { core }, &[])?;
        Ok(only(descriptors))
    }
}
