//! The fake engine's sockets: commands, and bytes from window to window.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

use hostif::control::Opened;
use hostif::{
    Command, Completion, Consumed, Consumer, Figures, Flags, Op, Producer, Region, ShutdownHow,
    SleepWord, SocketHeader, SocketId, WindowSpan, WriteMode, Written, sync::doorbell,
};
use rustix::fd::{AsFd, OwnedFd};

use super::super::{ECHO_PORT, RESETTING_PORT, address};
use super::Core;

/// What a session has once it has said hello.
pub struct Attached {
    pub region: Region,
    pub commands: Consumer<Command>,
    pub sends: Consumer<Written>,
    pub receives: Consumer<Consumed>,
    pub completions: Producer<Completion>,
    /// Completions that found the ring full.
    pub pending: VecDeque<Completion>,
    pub engine_word: SleepWord,
    pub program_word: SleepWord,
    pub program_bell: OwnedFd,
    pub next_header: u32,
}

pub struct Program {
    pub channel: OwnedFd,
    pub attached: Option<Attached>,
    pub handles: HashMap<u32, OwnedFd>,
    pub next_handle: u32,
}

/// Where the bytes of a socket go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Nobody,
    Itself,
    Socket(SocketId),
}

pub struct Socket {
    pub id: SocketId,
    pub region: Region,
    pub header: u32,
    pub holders: BTreeSet<u32>,
    pub flags: Flags,
    pub local: Option<SocketAddr>,
    pub peer: Peer,
    pub send: WindowSpan,
    pub receive: WindowSpan,
    pub written: u64,
    pub acknowledged: u64,
    pub received_end: u64,
    pub consumed: u64,
    pub finished: bool,
    pub fin_sent: bool,
    pub linger_zero: bool,
    /// What it is sent comes back with a reset.
    pub resets: bool,
    pub backlog: VecDeque<(SocketId, SocketAddr)>,
    pub rx_events: u32,
    pub tx_events: u32,
}

impl Socket {
    pub fn header(&self) -> SocketHeader<'_> {
        self.region.socket_header(self.header).unwrap()
    }

    /// Placed as the program has begun it.
    fn send_window(&self) -> hostif::Window<'_> {
        let window = self.region.window(self.send).unwrap();
        self.header().place_sent(window)
    }

    fn set_flags(&mut self, flags: Flags) {
        self.flags |= flags;
        self.header().engine_set_flags(self.flags);
    }
}

impl Core {
    pub fn open(&mut self, session: u32) -> Opened {
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
            resets: false,
            backlog: VecDeque::new(),
            rx_events: 0,
            tx_events: 0,
        };
        socket.header().engine_reset(id);
        self.sockets.insert(id, socket);
        Opened { socket: id, header }
    }

    /// One round over all rings; whether there was anything.
    pub fn serve_rings(&mut self) -> bool {
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
            if let Some(written) = written {
                self.on_note(session, &written);
            }
            if let Some(Consumed { socket, end, .. }) = consumed {
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

    /// Notes come in the order of positions here; the bytes of a file are read into the window.
    pub fn on_note(&mut self, session: u32, note: &Written) {
        // Of several holders each has a ring of its own.
        if let Some(socket) = self.sockets.get(&note.socket)
            && socket.holders.len() == 1
        {
            assert_eq!(note.start, socket.written, "a note follows the one before");
        }
        if let Some(source) = note.source
            && let Some(socket) = self.sockets.get(&note.socket)
        {
            let file = &self.programs[&session].handles[&source.handle];
            let mut bytes = vec![0; usize::try_from(note.end - note.start).unwrap()];
            let read = rustix::io::pread(file, &mut bytes[..], source.offset);
            assert_eq!(read, Ok(bytes.len()));
            socket.send_window().copy_in(note.start, &bytes);
        }
        self.on_written(note.socket, note.end);
        if note.mode == WriteMode::Urgent {
            let to = match self.sockets[&note.socket].peer {
                Peer::Socket(peer) => peer,
                _ => note.socket,
            };
            self.sockets[&to].header().engine_set_urgent_end(note.end);
            self.announce(to, true);
        }
    }

    pub fn on_written(&mut self, id: SocketId, end: u64) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            assert!(end <= socket.acknowledged + u64::from(socket.send.size));
            socket.written = socket.written.max(end);
        }
    }

    pub fn on_consumed(&mut self, id: SocketId, end: u64) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            assert!(end <= socket.received_end);
            socket.consumed = socket.consumed.max(end);
        }
    }

    fn on_command_for_none(&mut self, session: u32, op: Op) {
        if let Op::CloseBacking { handle } = op {
            let program = self.programs.get_mut(&session).unwrap();
            program.handles.remove(&handle).unwrap();
        }
    }

    pub fn on_command(&mut self, session: u32, command: Command) {
        let token = command.token;
        let done = |errno: u16, value: u64| Completion::Done {
            token,
            errno,
            value,
        };
        let Some(id) = command.socket else {
            return self.on_command_for_none(session, command.op);
        };
        if !self
            .sockets
            .get(&id)
            .is_some_and(|socket| socket.holders.contains(&session))
        {
            return self.complete(session, token, done(9, 0));
        }
        let completion = match command.op {
            Op::Disconnect
            | Op::SetDatagramOptions(_)
            | Op::TooLong { .. }
            | Op::Membership { .. } => done(22, 0),
            Op::Bind { local } => {
                let port = if local.port() == 0 {
                    self.fresh_port()
                } else {
                    local.port()
                };
                let local = SocketAddr::new(local.ip(), port);
                let socket = self.sockets.get_mut(&id).unwrap();
                socket.local = Some(local);
                socket.header().engine_set_addresses(Some(local), None);
                done(0, u64::from(port))
            }
            Op::Listen { .. } => {
                let socket = self.sockets.get_mut(&id).unwrap();
                let local = socket.local.unwrap();
                socket.set_flags(Flags::LISTENING);
                self.listeners.insert(local.port(), id);
                done(0, 0)
            }
            Op::Connect { remote, .. }
            | Op::ConnectHeard { remote, .. }
            | Op::ConnectFast { remote, .. }
            | Op::ConnectForCookie { remote, .. } => {
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
            Op::SetOptions { changes, .. } => {
                self.sockets.get_mut(&id).unwrap().linger_zero = changes.linger_s == Some(Some(0));
                done(0, 0)
            }
            Op::SetOption { .. } | Op::SetFastOpenKeys(_) => done(0, 0),
            Op::Query { .. } => done(0, self.place_figures(session)),
            Op::CloseBacking { .. } | Op::TellLane(_) => done(22, 0),
        };
        self.complete(session, token, completion);
    }

    /// Figures that count upwards.
    fn place_figures(&self, session: u32) -> u64 {
        let words: Vec<u64> = (1..=Figures::WORDS as u64).collect();
        let attached = self.programs[&session].attached.as_ref().unwrap();
        attached.region.engine_set_answer(&words);
        words.len() as u64 * 8
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
                listening.header().engine_set_accept_ready(waiting, 0);
                self.announce(listener, true);
                Peer::Socket(accepted)
            }
            None if [ECHO_PORT, RESETTING_PORT].contains(&remote.port()) => {
                let socket = self.sockets.get_mut(&id).unwrap();
                socket.resets = remote.port() == RESETTING_PORT;
                Peer::Itself
            }
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
        listener.header().engine_set_accept_ready(waiting, 0);
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
    pub fn move_bytes(&mut self) -> bool {
        let ids: Vec<SocketId> = self.sockets.keys().copied().collect();
        let mut moved = false;
        for id in ids {
            moved |= self.move_bytes_of(id);
        }
        moved
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
            from.send_window().copy_out(from.acknowledged, &mut bytes);
            to.region
                .window(to.receive)
                .unwrap()
                .copy_in(to.received_end, &bytes);
            let to = self.sockets.get_mut(&target).unwrap();
            to.received_end += len as u64;
            to.header().engine_set_received_end(to.received_end);
            if to.resets {
                // In one turn with the bytes, and behind them, as an engine does.
                to.header().engine_set_error(104);
                to.set_flags(Flags::ERROR);
            }
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

    pub fn drop_hold(&mut self, id: SocketId, session: u32) {
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
}
