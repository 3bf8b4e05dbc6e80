//! A fake engine: serves control channel and rings in one thread, with no network behind it. What is
//! written to port 7 comes back; a connect to a port with a listener is joined to what that accepts.

mod sockets;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hostif::control::{self, Addresses, EngineAddress, Reply, Request, Welcome};
use hostif::{Consumed, Layout, Region, RingEntries, SocketId, sync::doorbell};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

use super::address;
use sockets::{Attached, Program, Socket};

/// Small windows and rings, so that tests fill them.
pub fn small_layout() -> Layout {
    Layout {
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
        // As the real engine, this one looks again by itself while a program has left no room for reports.
        let reports_wait = |program: &Program| {
            let attached = program.attached.as_ref();
            attached.is_some_and(|attached| !attached.pending.is_empty())
        };
        let soon = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        let limit = self.programs.values().any(reports_wait).then_some(&soon);
        poll(&mut fds, limit).unwrap();
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

    fn answer(&mut self, session: u32, request: &Request, descriptors: Vec<OwnedFd>) {
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
            Request::Open { .. } | Request::OpenDatagram => {
                let opened = descriptors.iter().map(|_| self.open(session)).collect();
                reply(self, &Reply::Opened(opened), &[]);
            }
            Request::Prepare { .. } | Request::ShareFile => {
                let program = self.programs.get_mut(&session).unwrap();
                let first = program.next_handle;
                let count = u16::try_from(descriptors.len()).unwrap();
                program.next_handle += u32::from(count);
                program.handles.extend((first..).zip(descriptors));
                reply(self, &Reply::Prepared { first, count }, &[]);
            }
            Request::Fork => {
                let (ours, theirs) = channel();
                let child = self.add_program(ours);
                for socket in self.sockets.values_mut() {
                    if socket.holders.contains(&session) {
                        socket.holders.insert(child);
                    }
                }
                reply(self, &Reply::Forked { session: child }, &[theirs.as_fd()]);
            }
            Request::MapRegion { region } => match self.file_of(*region) {
                Some(file) => reply(self, &Reply::Region { region: *region }, &[file]),
                None => {
                    let text = "no such region".to_owned();
                    reply(self, &Reply::Refused { errno: 2, text }, &[]);
                }
            },
            Request::MapArea { .. }
            | Request::MapHolders
            | Request::Capture(_)
            | Request::Adopt
            | Request::Yield
            | Request::Signals { .. } => {
                let text = "neighbours, heirs and signals are not here".to_owned();
                reply(self, &Reply::Refused { errno: 2, text }, &[]);
            }
            Request::Join { .. } => {
                let text = "one core only".to_owned();
                reply(self, &Reply::Refused { errno: 22, text }, &[]);
            }
            Request::Share { .. } => reply(self, &Reply::Shared, &[]),
            Request::Moderate(_) => reply(self, &Reply::Moderated, &[]),
            Request::Addresses => reply(self, &addresses(), &[]),
            Request::Query { .. } => reply(self, &Reply::Report, &[report().as_fd()]),
        }
    }

    /// Regions have the numbers of their sessions here.
    fn file_of(&self, region: u32) -> Option<rustix::fd::BorrowedFd<'_>> {
        Some(self.programs.get(&region)?.attached.as_ref()?.region.file())
    }

    fn welcome(&mut self, session: u32, version: u16) {
        let region = Region::create(self.layout, session, session).unwrap();
        let doorbell::DoorbellPair { tx, rx } = doorbell::between().unwrap();
        let welcome = Welcome {
            version,
            core: 0,
            steering: hostif::Steering::SINGLE,
            session,
            region: session,
        };
        let program = self.programs.get_mut(&session).unwrap();
        let fds = [region.file(), rx.as_fd(), self.bell.as_fd()];
        let packet = Reply::Welcome(welcome).encode();
        let _ = control::send(program.channel.as_fd(), &packet, &fds);
        program.attached = Some(Attached {
            commands: region.command_consumer(),
            sends: region.send_consumer(),
            receives: region.receive_consumer(),
            completions: region.completion_producer(),
            pending: VecDeque::new(),
            engine_word: region.engine_sleep_word(),
            program_word: region.program_sleep_word(),
            program_bell: tx,
            region,
            next_header: 0,
        });
    }

    /// The program is gone: its rings are drained, then its holds dropped.
    fn drop_program(&mut self, session: u32) {
        let attached = self.programs.get_mut(&session).unwrap().attached.take();
        if let Some(mut attached) = attached {
            while let Some(written) = attached.sends.pop_final().unwrap() {
                self.on_note(session, &written);
            }
            while let Some(Consumed { socket, end, .. }) = attached.receives.pop_final().unwrap() {
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

fn addresses() -> Reply {
    let entry = EngineAddress {
        address: address(0).ip(),
        prefix_len: 24,
        mtu_bytes: 1500,
    };
    Reply::Addresses(Addresses {
        addresses: vec![entry],
        ..Addresses::default()
    })
}

fn report() -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create(c"report", flags).unwrap();
    rustix::io::write(&file, b"{\"fake\":true}").unwrap();
    file
}

/// A control channel's two ends.
fn channel() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}
