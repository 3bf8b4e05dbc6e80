//! listen(2) and accept(2). A listener on ANY listens on every stack at once; one accept serves both queues.

use std::time::{Duration, Instant};

use client::route::Owner;
use client::{Socket, State, TcpSocket};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::options::{self, Settings};
use crate::pair::{Pair, is_nonblocking, set_nonblocking};
use crate::queue::{Queue, Ready};
use crate::relay::{Phase, Relay, Step};
use crate::stopped_call::{Call, Outcome, Waiting, low_half};
use crate::supervisor::{Served, Supervisor};
use crate::sys::{self, TargetFd};
use switch::backing::{family_of_tcp, local_of};
use switch::bind::Local;
use switch::device;
use switch::listen::Listener;

/// The shortest time for which a call waits.
const AT_ONCE: Duration = Duration::from_micros(1);
/// A connect that found no engine's listener on loopback is about to reach the kernel, which refuses it unless it listens.
const GRACE: Duration = Duration::from_millis(1);
/// How often an engine is looked for that is gone.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

impl Supervisor {
    /// listen(2).
    pub fn listen(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let Some((fd, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let backlog = i32::from_ne_bytes(low_half(call.arguments[1]));
        if let Some(outcome) = self.listen_again(cookie, backlog)? {
            return Ok(outcome);
        }
        if family_of_tcp(fd.as_fd()).is_none() {
            return Ok(Outcome::Continue);
        }
        let local = local_of(fd.as_fd())?;
        if local.ip().is_loopback() && !self.engine_access.has_loopback() {
            return Ok(Outcome::Continue);
        }
        let Some(engines) = self.engine_access.open(call.caller)? else {
            return Ok(Outcome::Continue);
        };
        let all = engines.stream_networks();
        let (bound, device) = (Local::of(local, &all), device::of(fd.as_fd(), &all));
        let is_engine_only = self.engine_access.is_engine_only();
        let decided = switch::listen::decide(bound, device, is_engine_only, engines)?;
        let Some(Listener {
            owner,
            place,
            is_on_all,
        }) = decided
        else {
            return Ok(Outcome::Continue);
        };
        let others = match is_on_all {
            true => engines.others(place),
            false => Vec::new(),
        };
        let settings = Settings::of_listener(fd.as_fd())?;
        let session = engines.session(place)?;
        let prepare = || {
            let socket = TcpSocket::open(session, fd.as_fd())?;
            // Before, so that the first connection has them; after, for the engine's other cores.
            settings.tell(&socket);
            socket.bind(local_of(fd.as_fd())?)?;
            socket.prepare_to_listen(fd.as_fd())?;
            Ok(socket)
        };
        // A peer that knows the port already shall not reach the kernel's listener in between.
        let prepared = (local.port() != 0).then(prepare);
        if prepared.is_some() && owner == Owner::Any && self.engine_access.has_loopback() {
            std::thread::sleep(GRACE);
        }
        rustix::net::listen(&fd, backlog)?;
        let started = prepared.unwrap_or_else(prepare).and_then(|socket| {
            socket.listen_beside(fd.as_fd(), switch::stream::length(backlog), &others)?;
            settings.tell(&socket);
            Ok(socket)
        });
        match (started, owner) {
            (Ok(socket), owner) => {
                self.serve_listener(call, fd, socket, settings, owner == Owner::Any)?;
                Ok(Outcome::Return(0))
            }
            (Err(error), owner)
                if owner == Owner::Engine || self.engine_access.is_engine_only() =>
            {
                Err(error)
            }
            (Err(error), _) => {
                call.caller.say(&format!(
                    "a listener on ANY is served by the kernel alone: {error}"
                ));
                Ok(Outcome::Continue)
            }
        }
    }

    /// listen(2) on what is served; `None`: it is not.
    fn listen_again(&self, cookie: u64, backlog: i32) -> Result<Option<Outcome>, Errno> {
        match self.served.get(&cookie) {
            // A second listen changes the backlog.
            Some(Served::Queue(queue)) => {
                rustix::net::listen(&queue.backing, backlog)?;
                queue
                    .socket
                    .listen(queue.backing.as_fd(), switch::stream::length(backlog))?;
                Ok(Some(Outcome::Return(0)))
            }
            Some(Served::Relay(_)) => Err(Errno::INVAL),
            Some(Served::Datagrams(_)) => Err(Errno::OPNOTSUPP),
            None if self.holders.is_shut(cookie) => Err(Errno::INVAL),
            None => Ok(None),
        }
    }

    fn serve_listener(
        &mut self,
        call: &Call,
        backing: OwnedFd,
        socket: std::sync::Arc<TcpSocket>,
        settings: Settings,
        kernel_too: bool,
    ) -> Result<(), Errno> {
        let nonblocking = is_nonblocking(backing.as_fd());
        let pair = Pair::new(nonblocking)?;
        // A listening socket is never writable.
        pair.stuff()?;
        // And sending to it is EPIPE.
        rustix::net::shutdown(&pair.ours, rustix::net::Shutdown::Read)?;
        // Who receives from it is told an error, if not the right one, and does not wait for ever.
        let soon = sockopt::Timeout::Recv;
        sockopt::set_socket_timeout(&pair.programs, soon, Some(AT_ONCE))?;
        let key = pair.cookie;
        let bell = self.news.listen_to(&*socket, key);
        self.watch(pair.ours.as_fd(), key)?;
        if kernel_too {
            // Its connections are taken here, and nobody may wait for one.
            set_nonblocking(backing.as_fd(), true)?;
            self.watch_kernels(backing.as_fd(), key)?;
        }
        let place = (call.caller, call.fd);
        let backing_cookie = sys::cookie(&backing)?;
        let parts = (socket, backing);
        let (mut queue, programs) = Queue::new(parts, settings, kernel_too, pair, bell, place);
        match self.exchange(call.id, place, queue.backing.as_fd(), programs.as_fd()) {
            Ok(()) => {}
            // A signal took the call back. It comes again, and finds the listener (`join`).
            Err(Errno::NOENT | Errno::SRCH) => {
                queue.undelivered = Some(programs);
                self.waited_for.insert(key);
            }
            Err(error) => {
                if kernel_too {
                    self.ignore_kernels(queue.backing.as_fd());
                    set_nonblocking(queue.backing.as_fd(), nonblocking)?;
                }
                return Err(error);
            }
        }
        queue.bell.ring();
        self.served.insert(key, Served::Queue(Box::new(queue)));
        self.holders.note(backing_cookie, key);
        Ok(())
    }

    /// accept4(2).
    pub fn accept(&mut self, call: &Call, flags: i32) -> Result<Outcome, Errno> {
        let Some((programs, key)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let queue = match self.served.get_mut(&key) {
            Some(Served::Queue(queue)) => queue,
            Some(Served::Relay(_)) => return Err(Errno::INVAL),
            Some(Served::Datagrams(_)) => return Err(Errno::OPNOTSUPP),
            None if self.holders.is_shut(key) => return Err(Errno::INVAL),
            None => return Ok(Outcome::Continue),
        };
        if queue.is_shut {
            return Err(Errno::INVAL);
        }
        if let Some(ready) = queue.take()? {
            queue.update_mark(programs.as_fd());
            return self.hand_over(key, ready, call, flags);
        }
        queue.update_mark(programs.as_fd());
        if is_nonblocking(programs.as_fd()) {
            return Err(Errno::AGAIN);
        }
        let timeout = options::timeout(queue.backing.as_fd(), libc::SO_RCVTIMEO);
        queue.wait(Waiting {
            id: call.id,
            caller: call.caller,
            fd: call.fd,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            late: Errno::AGAIN,
            flags,
            name: (call.arguments[1], call.arguments[2]),
        })?;
        self.waited_for.insert(key);
        Ok(Outcome::Later)
    }

    /// Concludes connects of programs that are served here and were decided: whoever accepts a connection finds its other end
    /// connected, as it was first.
    fn conclude_connects(&mut self) {
        for key in std::mem::take(&mut self.connecting) {
            let Some(Served::Relay(relay)) = self.served.get_mut(&key) else {
                continue;
            };
            if !matches!(relay.phase, Phase::Connecting { .. }) {
                continue;
            }
            match relay.poll(&mut []) {
                Step::Decided => self.conclude(key),
                Step::Gone => drop(self.let_go(key)),
                Step::Idle | Step::More => self.connecting.push(key),
            }
        }
    }

    /// Gives the caller a connection. Where its call is gone meanwhile, the connection waits for another.
    fn hand_over(
        &mut self,
        key: u64,
        ready: Ready,
        call: &Call,
        flags: i32,
    ) -> Result<Outcome, Errno> {
        self.conclude_connects();
        let given = self.try_hand_over(key, &ready, call, flags);
        // Where the caller has no memory for the name, the connection goes with the call, as in Linux.
        if given.is_err_and(|error| error != Errno::FAULT)
            && let Some(Served::Queue(queue)) = self.served.get_mut(&key)
        {
            queue.put_back(ready);
        }
        given.map(|()| Outcome::Later)
    }

    fn try_hand_over(
        &mut self,
        key: u64,
        ready: &Ready,
        call: &Call,
        flags: i32,
    ) -> Result<(), Errno> {
        let Some(Served::Queue(queue)) = self.served.get(&key) else {
            return Err(Errno::INVAL);
        };
        let closes = flags & libc::SOCK_CLOEXEC != 0;
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let name = (call.arguments[1], call.arguments[2]);
        let listener = self.listener.as_fd();
        let peer = match ready {
            Ready::Engine(accepted) => {
                let session = accepted.socket.session();
                self.engine_access.scoped(accepted.peer, session)
            }
            Ready::Kernel(_, peer) => *peer,
        };
        if name.0 != 0 {
            self.tell_address(call.caller, name, peer, queue.backing.as_fd())?;
        }
        match ready {
            Ready::Kernel(fd, _) => {
                set_nonblocking(fd.as_fd(), nonblocking)?;
                sys::give(listener, call.id, fd.as_fd(), TargetFd::Lowest, closes)?;
            }
            Ready::Engine(accepted) => {
                let pair = Pair::new(nonblocking)?;
                queue.settings.set_on(accepted.backing.as_fd());
                queue.settings.set_on_descriptor(pair.programs.as_fd());
                queue.settings.tell(&accepted.socket);
                let key = pair.cookie;
                let backing = rustix::io::fcntl_dupfd_cloexec(&accepted.backing, 0)?;
                self.watch(pair.ours.as_fd(), key)?;
                let fd = sys::give(
                    listener,
                    call.id,
                    pair.programs.as_fd(),
                    TargetFd::Lowest,
                    closes,
                )?;
                let bell = self.news.listen_to(&*accepted.socket, key);
                bell.ring();
                let socket = std::sync::Arc::clone(&accepted.socket);
                let place = (call.caller, fd);
                let mut relay = Relay::new(socket, backing, pair, Phase::Open, place, bell);
                relay.programs = None;
                self.served.insert(key, Served::Relay(Box::new(relay)));
            }
        }
        Ok(())
    }

    /// A listener has news: connections for those who wait, the rest into the queue.
    pub fn serve_queue(&mut self, key: u64) {
        loop {
            let Some(Served::Queue(queue)) = self.served.get_mut(&key) else {
                return;
            };
            let is_over = queue.socket.state() == State::Closed && !queue.socket.is_lost_listener();
            if is_over && !queue.kernel_too {
                self.shut_queue(key);
                return;
            }
            if !queue.has_connection() {
                return;
            }
            let Some(waiting) = queue.next_waiting() else {
                queue.mark();
                return;
            };
            let Some(programs) = waiting.caller.same_socket(waiting.fd, key) else {
                // It is gone, or its descriptor now is something else.
                self.reply(waiting.id, Some(Err(Errno::BADF)));
                continue;
            };
            let ready = match queue.take() {
                Ok(Some(ready)) => ready,
                Ok(None) => {
                    // Somebody in another process was faster.
                    let _ = queue.wait(waiting);
                    return;
                }
                Err(error) => {
                    self.reply(waiting.id, Some(Err(error)));
                    continue;
                }
            };
            queue.update_mark(programs.as_fd());
            let mut arguments = [0; 6];
            (arguments[1], arguments[2]) = waiting.name;
            let call = Call {
                id: waiting.id,
                caller: waiting.caller,
                fd: waiting.fd,
                arguments,
            };
            match self.hand_over(key, ready, &call, waiting.flags) {
                // A signal took the call back.
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => self.reply(waiting.id, Some(Err(error))),
            }
        }
    }

    /// Looks now and then for engines that are gone, as long as a listener misses one: it listens on the next one.
    pub fn look_for_engines(&mut self) {
        let changes = client::changes();
        if changes == self.changes_seen || self.looked_for_engines.elapsed() < BETWEEN_LOOKS {
            return;
        }
        self.looked_for_engines = Instant::now();
        let is_missing =
            |served: &Served| matches!(served, Served::Queue(queue) if queue.misses_engine());
        if !self.served.values().any(is_missing) {
            self.changes_seen = changes;
            return;
        }
        self.engine_access.look_for_lost();
        for served in self.served.values() {
            if let Served::Queue(queue) = served
                && queue.misses_engine()
            {
                queue.listen_again();
            }
        }
    }

    /// Ends a listener for good; its descriptor stays.
    pub fn shut_queue(&mut self, key: u64) {
        let Some(Served::Queue(queue)) = self.served.get_mut(&key) else {
            return;
        };
        queue.is_shut = true;
        queue.kernel_too = false;
        queue.socket.close();
        for id in queue.take_waiting() {
            self.reply(id, Some(Err(Errno::INVAL)));
        }
    }

    /// Lets go of a listener whose program was told EINTR and has closed the socket since, or ended.
    pub fn abandon_queue(&mut self, key: u64) {
        if let Some(Served::Queue(queue)) = self.served.get(&key) {
            // Another thread may have it.
            self.ignore_kernels(queue.backing.as_fd());
            let nonblocking = queue
                .undelivered
                .as_ref()
                .map(|end| is_nonblocking(end.as_fd()));
            let _ = set_nonblocking(queue.backing.as_fd(), nonblocking.unwrap_or_default());
            self.drop_queue(key);
        }
    }

    /// Every process has closed the listener: what waits in it is reset.
    pub fn drop_queue(&mut self, key: u64) {
        if let Some(Served::Queue(queue)) = self.let_go(key) {
            queue.socket.close();
            self.holders.forget(key);
        }
    }
}
