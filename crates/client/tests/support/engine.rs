//! A fake engine: serves control channel and rings in one thread, with no network behind it. What is
//! written to port 7 comes back; a connect to a port with a listener is joined to what that accepts.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hostif::control::{self, EngineAddress, Opened, Reply, Request, Welcome};
use hostif::{
    Command, Completion, Consumed, Consumer, Flags, Layout, Op, Producer, Region, RingEntries,
    ShutdownHow, SleepWord, SocketHeader, SocketId, WindowSpan, Written, doorbell,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

use super::{ECHO_PORT, address};

/// Small windows and rings, so that tests fill them.
pub fn small_layout() -> Layout {
    Layout {
        cores: 1,
        ring_entries: RingEntries {
            command: 16,
            send: 16,
            receive: 16,
            completion: 16,
        },
        socket_headers: 256,
        window_pairs: 256,
        send_window_bytes: 64 * 1024,
        receive_window_bytes: 64 * 1024,
    }
}

#[derive(Default)]
struct Switches {
    stop: AtomicBool,
    /// Leave the rings alone (the control channel is served).
    pause: AtomicBool,
}

/// A running fake engine; stops, and closes everything, when dropped.
pub struct FakeEngine {
    pub name: String,
    switches: Arc<Switches>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl FakeEngine {
    pub fn start() -> FakeEngine {
        FakeEngine::start_named(&super::process::unique_name(), small_layout())
    }

    pub fn start_named(name: &str, layout: Layout) -> FakeEngine {
        let listener = control::listen(name).unwrap();
        let bell = Arc::new(doorbell::create().unwrap());
        let switches = Arc::new(Switches::default());
        let mut core = Core {
            listener,
            bell: Arc::clone(&bell),
            switches: Arc::clone(&switches),
            layout,
            programs: BTreeMap::new(),
            sockets: BTreeMap::new(),
            listeners: HashMap::new(),
            next_session: 1,
            next_index: 1,
            next_port: 40000,
        };
        let thread = std::thread::spawn(move || core.run());
        FakeEngine {
            name: name.to_owned(),
            switches,
            bell,
            thread: Some(thread),
        }
    }

    pub fn attach(&self) -> &'static client::Session {
        client::Session::attach(&self.name).unwrap()
    }

    pub fn pause(&self, on: bool) {
        self.switches.pause.store(on, Ordering::SeqCst);
        doorbell::ring(self.bell.as_fd());
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.switches.stop.store(true, Ordering::SeqCst);
        doorbell::ring(self.bell.as_fd());
        let joined = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            joined.expect("the fake engine panicked");
        }
    }
}

/// What a session has once it has said hello.
struct Attached {
    region: Region,
    commands: Consumer<Command>,
    sends: Consumer<Written>,
    receives: Consumer<Consumed>,
    completions: Producer<Completion>,
    /// Completions that found the ring full.
    pending: VecDeque<Completion>,
    engine_word: SleepWord,
    program_word: SleepWord,
    program_bell: OwnedFd,
    next_header: u32,
}

struct Program {
    channel: OwnedFd,
    attached: Option<Attached>,
    handles: HashMap<u32, OwnedFd>,
    next_handle: u32,
}

/// Where the bytes of a socket go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Nobody,
    Itself,
    Socket(SocketId),
}

struct Socket {
    id: SocketId,
    region: Region,
    header: u32,
    holders: BTreeSet<u32>,
    flags: Flags,
    local: Option<SocketAddr>,
    peer: Peer,
    send: WindowSpan,
    receive: WindowSpan,
    written: u64,
    acknowledged: u64,
    received_end: u64,
    consumed: u64,
    finished: bool,
    fin_sent: bool,
    linger_zero: bool,
    backlog: VecDeque<(SocketId, SocketAddr)>,
    rx_events: u32,
    tx_events: u32,
}

impl Socket {
    fn header(&self) -> SocketHeader<'_> {
        self.region.socket_header(self.header).unwrap()
    }

    fn set_flags(&mut self, flags: Flags) {
        self.flags |= flags;
        self.header().engine_set_flags(self.flags);
    }
}

struct Core {
    listener: OwnedFd,
    bell: Arc<OwnedFd>,
    switches: Arc<Switches>,
    layout: Layout,
    programs: BTreeMap<u32, Program>,
    sockets: BTreeMap<SocketId, Socket>,
    listeners: HashMap<u16, SocketId>,
    next_session: u32,
    next_index: u32,
    next_port: u16,
}

impl Core {
    fn run(&mut self) {
        while !self.switches.stop.load(Ordering::SeqCst) {
            let paused = self.switches.pause.load(Ordering::SeqCst);
            if !paused {
                while self.serve_rings() {}
            }
            for program in self.programs.values().filter_map(|p| p.attached.as_ref()) {
                program.engine_word.announce();
            }
            if !paused && self.serve_rings() {
                self.withdraw();
                continue;
            }
            let ready = self.sleep();
            self.withdraw();
            self.serve_control(&ready);
        }
    }

    fn withdraw(&self) {
        for program in self.programs.values().filter_map(|p| p.attached.as_ref()) {
            program.engine_word.withdraw();
        }
    }

    /// Sleeps; which sessions' channels have something, and 0 for the listener.
    fn sleep(&self) -> Vec<u32> {
        let flags = PollFlags::IN;
        let mut numbers = vec![0, 0];
        let mut fds = vec![
            PollFd::new(&*self.bell, flags),
            PollFd::new(&self.listener, flags),
        ];
        for (session, program) in &self.programs {
            numbers.push(*session);
            fds.push(PollFd::new(&program.channel, flags));
        }
        poll(&mut fds, None).unwrap();
        doorbell::drain(self.bell.as_fd());
        let ready = fds
            .iter()
            .zip(numbers)
            .skip(1)
            .filter(|(fd, _)| !fd.revents().is_empty());
        ready.map(|(_, number)| number).collect()
    }

    fn serve_control(&mut self, ready: &[u32]) {
        for session in ready {
            if *session == 0 {
                if let Ok(fd) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                    self.add_program(fd);
                }
                continue;
            }
            let channel = self.programs[session].channel.as_fd();
            match control::receive(channel, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {}
                Ok(received) if !received.bytes.is_empty() => {
                    let request = Request::decode(&received.bytes).unwrap();
                    assert_eq!(request.descriptors(), received.descriptors.len());
                    self.answer(*session, &request, received.descriptors);
                }
                _ => self.drop_program(*session),
            }
        }
    }

    fn add_program(&mut self, channel: OwnedFd) -> u32 {
        let session = self.next_session;
        self.next_session += 1;
        let program = Program {
            channel,
            attached: None,
            handles: HashMap::new(),
            next_handle: 100,
        };
        self.programs.insert(session, program);
        session
    }

    fn answer(&mut self, session: u32, request: &Request, mut descriptors: Vec<OwnedFd>) {
        let reply = |core: &Core, reply: &Reply, fds: &[rustix::fd::BorrowedFd<'_>]| {
            // The program may be gone already.
            let _ = control::send(
                core.programs[&session].channel.as_fd(),
                &reply.encode(),
                fds,
            );
        };
        match request {
            Request::Hello {
                min_version,
                max_version,
                ..
            } => match control::negotiate(*min_version, *max_version) {
                Ok(version) => self.welcome(session, version),
                Err(error) => {
                    let text = error.to_string();
                    reply(self, &Reply::Refused { errno: 71, text }, &[]);
                }
            },
            Request::Open { count } => {
                let opened = (0..*count).map(|_| self.open(session)).collect();
                reply(self, &Reply::Opened(opened), &[]);
            }
            Request::Prepare { count } => {
                let program = self.programs.get_mut(&session).unwrap();
                let first = program.next_handle;
                program.next_handle += u32::from(*count);
                program.handles.extend((first..).zip(descriptors));
                reply(
                    self,
                    &Reply::Prepared {
                        first,
                        count: *count,
                    },
                    &[],
                );
            }
            Request::Fork => {
                let child = self.add_program(descriptors.remove(0));
                for socket in self.sockets.values_mut() {
                    if socket.holders.contains(&session) {
                        socket.holders.insert(child);
                    }
                }
                reply(self, &Reply::Forked { session: child }, &[]);
            }
            Request::MapRegion { region } => {
                // Regions have the numbers of their sessions here.
                match self.programs.get(region).and_then(|p| p.attached.as_ref()) {
                    Some(other) => {
                        let file = other.region.file().unwrap();
                        reply(self, &Reply::Region { region: *region }, &[file]);
                    }
                    None => {
                        let text = "no such region".to_owned();
                        reply(self, &Reply::Refused { errno: 2, text }, &[]);
                    }
                }
            }
            Request::Addresses => {
                let entry = EngineAddress {
                    address: address(0).ip(),
                    prefix_len: 24,
                    mtu_bytes: 1500,
                };
                reply(
                    self,
                    &Reply::Addresses {
                        addresses: vec![entry],
                        gateway: None,
                    },
                    &[],
                );
            }
            Request::Query { .. } => {
                let flags = rustix::fs::MemfdFlags::CLOEXEC;
                let file = rustix::fs::memfd_create(c"report", flags).unwrap();
                rustix::io::write(&file, b"{\"fake\":true}").unwrap();
                reply(self, &Reply::Report, &[file.as_fd()]);
            }
        }
    }

    fn welcome(&mut self, session: u32, version: u16) {
        let region = Region::create(self.layout, session, session).unwrap();
        let program_bell = doorbell::create().unwrap();
        let welcome = Welcome {
            version,
            cores: 1,
            session,
            region: session,
        };
        let program = self.programs.get_mut(&session).unwrap();
        let fds = [
            region.file().unwrap(),
            program_bell.as_fd(),
            self.bell.as_fd(),
        ];
        let packet = Reply::Welcome(welcome).encode();
        let _ = control::send(program.channel.as_fd(), &packet, &fds);
        program.attached = Some(Attached {
            commands: region.command_consumer(0),
            sends: region.send_consumer(0),
            receives: region.receive_consumer(0),
            completions: region.completion_producer(0),
            pending: VecDeque::new(),
            engine_word: region.engine_sleep_word(0),
            program_word: region.program_sleep_word(0),
            program_bell,
            region,
            next_header: 0,
        });
    }

    fn open(&mut self, session: u32) -> Opened {
        let attached = self
            .programs
            .get_mut(&session)
            .unwrap()
            .attached
            .as_mut()
            .unwrap();
        let header = attached.next_header;
        attached.next_header += 1;
        let id = SocketId::new(self.next_index, 1).unwrap();
        self.next_index += 1;
        let (send, receive) = attached.region.window_pair(header).unwrap();
        let socket = Socket {
            id,
            region: attached.region.clone(),
            header,
            holders: BTreeSet::from([session]),
            flags: Flags::empty(),
            local: None,
            peer: Peer::Nobody,
            send,
            receive,
            written: 0,
            acknowledged: 0,
            received_end: 0,
            consumed: 0,
            finished: false,
            fin_sent: false,
            linger_zero: false,
            backlog: VecDeque::new(),
            rx_events: 0,
            tx_events: 0,
        };
        socket.header().engine_reset(id);
        self.sockets.insert(id, socket);
        Opened { socket: id, header }
    }

    /// One round over all rings; whether there was anything.
    fn serve_rings(&mut self) -> bool {
        let mut busy = false;
        let sessions: Vec<u32> = self.programs.keys().copied().collect();
        for session in sessions {
            let Some(attached) = self
                .programs
                .get_mut(&session)
                .and_then(|program| program.attached.as_mut())
            else {
                continue;
            };
            let written = attached.sends.pop().unwrap();
            let consumed = attached.receives.pop().unwrap();
            let command = attached.commands.pop().unwrap();
            busy |= written.is_some() || consumed.is_some() || command.is_some();
            if let Some(Written { socket, end }) = written {
                self.on_written(socket, end);
            }
            if let Some(Consumed { socket, end }) = consumed {
                self.on_consumed(socket, end);
            }
            if let Some(command) = command {
                self.on_command(session, command);
            }
            self.flush(session);
        }
        while self.move_bytes() {
            busy = true;
        }
        busy
    }

    fn on_written(&mut self, id: SocketId, end: u64) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            assert!(end <= socket.acknowledged + u64::from(socket.send.size));
            socket.written = socket.written.max(end);
        }
    }

    fn on_consumed(&mut self, id: SocketId, end: u64) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            assert!(end <= socket.received_end);
            socket.consumed = socket.consumed.max(end);
        }
    }

    fn on_command(&mut self, session: u32, command: Command) {
        let token = command.token;
        let done = |errno: u16, value: u64| Completion::Done {
            token,
            errno,
            value,
        };
        let Some(id) = command.socket else {
            if let Op::CloseBacking { handle } = command.op {
                self.programs
                    .get_mut(&session)
                    .unwrap()
                    .handles
                    .remove(&handle)
                    .unwrap();
            }
            return;
        };
        if !self
            .sockets
            .get(&id)
            .is_some_and(|socket| socket.holders.contains(&session))
        {
            return self.complete(session, token, done(9, 0));
        }
        let completion = match command.op {
            Op::Bind { local } => {
                let port = if local.port() == 0 {
                    self.fresh_port()
                } else {
                    local.port()
                };
                self.sockets.get_mut(&id).unwrap().local = Some(SocketAddr::new(local.ip(), port));
                done(0, u64::from(port))
            }
            Op::Listen { .. } => {
                let socket = self.sockets.get_mut(&id).unwrap();
                let local = socket.local.unwrap();
                socket.header().engine_set_addresses(Some(local), None);
                socket.set_flags(Flags::LISTENING);
                self.listeners.insert(local.port(), id);
                done(0, 0)
            }
            Op::Connect { remote, .. } => {
                self.connect(id, remote);
                done(0, 0)
            }
            Op::Accept { handle } => self.accept(session, token, id, handle),
            Op::Shutdown { how, written } => {
                self.on_written(id, written);
                if how != ShutdownHow::Read {
                    self.sockets.get_mut(&id).unwrap().finished = true;
                }
                done(0, 0)
            }
            Op::Close { written, consumed } => {
                self.on_written(id, written);
                self.on_consumed(id, consumed);
                self.drop_hold(id, session);
                done(0, 0)
            }
            Op::SetOptions(changes) => {
                self.sockets.get_mut(&id).unwrap().linger_zero = changes.linger_s == Some(Some(0));
                done(0, 0)
            }
            Op::CloseBacking { .. } => done(22, 0),
        };
        self.complete(session, token, completion);
    }

    fn fresh_port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    fn connect(&mut self, id: SocketId, remote: SocketAddr) {
        let port = self.fresh_port();
        let local = address(port);
        let listener = self.listeners.get(&remote.port()).copied();
        let peer = match listener {
            Some(listener) => {
                // The connection's header and windows lie with the listener's region.
                let owner = self.sockets[&listener].region.session();
                let accepted = self.open(owner).socket;
                let new = self.sockets.get_mut(&accepted).unwrap();
                new.holders.clear();
                new.peer = Peer::Socket(id);
                new.header().engine_set_addresses(Some(remote), Some(local));
                new.header().engine_set_windows(new.send, new.receive);
                new.set_flags(Flags::CONNECTED);
                let listening = self.sockets.get_mut(&listener).unwrap();
                listening.backlog.push_back((accepted, local));
                let waiting = u32::try_from(listening.backlog.len()).unwrap();
                listening.header().engine_set_accept_ready(waiting);
                self.announce(listener, true);
                Peer::Socket(accepted)
            }
            None if remote.port() == ECHO_PORT => Peer::Itself,
            None => {
                let socket = self.sockets.get_mut(&id).unwrap();
                socket.header().engine_set_error(111);
                socket.set_flags(Flags::ERROR | Flags::HUP);
                return self.announce(id, true);
            }
        };
        let socket = self.sockets.get_mut(&id).unwrap();
        socket.peer = peer;
        socket
            .header()
            .engine_set_addresses(Some(local), Some(remote));
        socket
            .header()
            .engine_set_windows(socket.send, socket.receive);
        socket.set_flags(Flags::CONNECTED);
        self.announce(id, false);
    }

    fn accept(&mut self, session: u32, token: u32, id: SocketId, handle: u32) -> Completion {
        let listener = self.sockets.get_mut(&id).unwrap();
        let Some((socket, peer)) = listener.backlog.pop_front() else {
            return Completion::Done {
                token,
                errno: 11,
                value: 0,
            };
        };
        let waiting = u32::try_from(listener.backlog.len()).unwrap();
        listener.header().engine_set_accept_ready(waiting);
        let backing = self
            .programs
            .get_mut(&session)
            .unwrap()
            .handles
            .remove(&handle);
        assert!(backing.is_some(), "accept names a prepared handle");
        let new = self.sockets.get_mut(&socket).unwrap();
        new.holders.insert(session);
        let (region, header) = (new.region.id(), new.header);
        Completion::Accepted {
            token,
            socket,
            region,
            header,
            peer,
        }
    }

    fn complete(&mut self, session: u32, token: u32, completion: Completion) {
        if token != 0 {
            self.report(session, completion);
        }
    }

    /// Tells every holder that the header changed.
    fn announce(&mut self, id: SocketId, rx: bool) {
        let socket = self.sockets.get_mut(&id).unwrap();
        if rx {
            socket.rx_events += 1;
        } else {
            socket.tx_events += 1;
        }
        socket.header().engine_set_rx_events(socket.rx_events);
        socket.header().engine_set_tx_events(socket.tx_events);
        for session in socket.holders.clone() {
            self.report(session, Completion::Event { socket: id });
        }
    }

    fn report(&mut self, session: u32, completion: Completion) {
        let Some(program) = self.programs.get_mut(&session) else {
            return;
        };
        if let Some(attached) = program.attached.as_mut() {
            attached.pending.push_back(completion);
            self.flush(session);
        }
    }

    fn flush(&mut self, session: u32) {
        let program = self
            .programs
            .get_mut(&session)
            .and_then(|program| program.attached.as_mut());
        let Some(attached) = program else { return };
        let mut pushed = false;
        while let Some(completion) = attached.pending.front() {
            if attached.completions.push(completion).is_err() {
                break;
            }
            pushed = true;
            attached.pending.pop_front();
        }
        if (pushed || !attached.pending.is_empty()) && attached.program_word.must_ring() {
            doorbell::ring(attached.program_bell.as_fd());
        }
    }

    /// Moves bytes of every socket to where they go; whether anything moved.
    fn move_bytes(&mut self) -> bool {
        let ids: Vec<SocketId> = self.sockets.keys().copied().collect();
        ids.into_iter()
            .fold(false, |moved, id| self.move_bytes_of(id) || moved)
    }

    fn move_bytes_of(&mut self, id: SocketId) -> bool {
        let Some(from) = self.sockets.get(&id) else {
            return false;
        };
        let target = match from.peer {
            Peer::Nobody => return false,
            Peer::Itself => id,
            Peer::Socket(peer) => peer,
        };
        let Some(to) = self.sockets.get(&target) else {
            return false;
        };
        let room = u64::from(to.receive.size) - (to.received_end - to.consumed);
        let len = usize::try_from((from.written - from.acknowledged).min(room)).unwrap();
        if len > 0 {
            let mut bytes = vec![0; len];
            from.region
                .window(from.send)
                .unwrap()
                .copy_out(from.acknowledged, &mut bytes);
            to.region
                .window(to.receive)
                .unwrap()
                .copy_in(to.received_end, &bytes);
            let to = self.sockets.get_mut(&target).unwrap();
            to.received_end += len as u64;
            to.header().engine_set_received_end(to.received_end);
            self.announce(target, true);
            let from = self.sockets.get_mut(&id).unwrap();
            from.acknowledged += len as u64;
            from.header().engine_set_acknowledged(from.acknowledged);
            if from.header().engine_take_tx_wanted() {
                self.announce(id, false);
            }
        }
        let from = self.sockets.get_mut(&id).unwrap();
        let at_end = from.finished && !from.fin_sent && from.acknowledged == from.written;
        if at_end {
            from.fin_sent = true;
            self.sockets.get_mut(&target).unwrap().set_flags(Flags::FIN);
            self.announce(target, true);
        }
        len > 0 || at_end
    }

    fn drop_hold(&mut self, id: SocketId, session: u32) {
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        socket.header().engine_release_dead(session);
        socket.holders.remove(&session);
        if !socket.holders.is_empty() {
            return;
        }
        let (peer, unread) = (socket.peer, socket.consumed < socket.received_end);
        let reset = unread || socket.linger_zero;
        socket.finished = true;
        if socket.flags.contains(Flags::LISTENING) {
            self.listeners.retain(|_, listener| *listener != id);
        }
        if let Peer::Socket(peer) = peer
            && reset
            && let Some(other) = self.sockets.get_mut(&peer)
        {
            other.header().engine_set_error(104);
            other.set_flags(Flags::ERROR | Flags::HUP);
            self.announce(peer, true);
        }
        while !reset && self.move_bytes_of(id) {}
        let socket = self.sockets.remove(&id).unwrap();
        socket.header().engine_retire();
    }

    /// The program is gone: its rings are drained, then its holds dropped.
    fn drop_program(&mut self, session: u32) {
        let attached = self.programs.get_mut(&session).unwrap().attached.take();
        if let Some(mut attached) = attached {
            while let Some(Written { socket, end }) = attached.sends.pop_final().unwrap() {
                self.on_written(socket, end);
            }
            while let Some(Consumed { socket, end }) = attached.receives.pop_final().unwrap() {
                self.on_consumed(socket, end);
            }
            while let Some(command) = attached.commands.pop_final().unwrap() {
                self.on_command(session, command);
            }
            while self.move_bytes() {}
        }
        self.programs.remove(&session);
        let held = self
            .sockets
            .values()
            .filter(|socket| socket.holders.contains(&session));
        let held: Vec<SocketId> = held.map(|socket| socket.id).collect();
        for id in held {
            self.drop_hold(id, session);
        }
        for socket in self.sockets.values() {
            socket.header().engine_release_dead(session);
        }
    }
}
