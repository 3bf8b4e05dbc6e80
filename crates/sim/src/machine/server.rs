//! What the processes do next: the server in each architecture, the polling thread, and the endless
//! computations.

use std::collections::VecDeque;

use super::{
    Machine,
    event::Id,
    job::{After, Job},
    processor::{POLL_THREAD, SERVER},
};
use crate::{
    scenario::{Distribution, Kind, Mode},
    time::{Ns, round},
};

/// A server process's queues.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Requests that wait in sockets: since when, and whether they were read already.
    pub sockets: VecDeque<(Id, Ns, bool)>,
    /// Packets that the library has not looked at (user-level stack), and since when they are there.
    pub ring: VecDeque<(Id, bool, Ns)>,
    /// Since when the segment that the library looks at was in the ring.
    pub taken_since: Ns,
    /// Segments that wait in the NIC's memory.
    pub stored: VecDeque<Id>,
    /// Responses that the library has to send again.
    pub repeats: VecDeque<Id>,
    /// A read waits at the NIC.
    pub reading: bool,
    /// It looks for work without sleeping.
    pub spinning: bool,
}

impl Machine<'_> {
    /// What the current process does next; none where it blocks.
    pub(super) fn next_item(&mut self, core: usize) -> Option<Job> {
        let item = match self.cores[core].process {
            Some(SERVER) => match self.scenario.stack.kind {
                Kind::Kernel => self.serve(core),
                Kind::User => self.user_item(core),
                Kind::Nic => self.nic_item(core),
            },
            Some(POLL_THREAD) => self.poll_thread_item(core),
            _ => Some(Job::endless(self.now)),
        };
        if item.is_none()
            && let Some(process) = self.cores[core].process
        {
            self.cores[core].processes[process].blocked = true;
        }
        item
    }

    fn compute(&mut self) -> Ns {
        let mean = self.work.compute;
        match self.scenario.workload.compute {
            Distribution::Fixed => mean,
            Distribution::Exponential => round(self.rng.exponential(mean as f64)),
            Distribution::Empirical => {
                let at = (self.rng.unit() * self.work.samples.len() as f64).floor();
                let index = usize::try_from(round(at)).unwrap_or(0);
                self.work.samples.get(index).copied().unwrap_or(mean)
            }
        }
    }

    /// Reads a request from its socket, computes, and writes the response.
    fn serve(&mut self, core: usize) -> Option<Job> {
        let (request, since, read) = self.cores[core].server.sockets.pop_front()?;
        let compute = self.compute();
        let own = if read {
            self.work.answer
        } else {
            self.work.serve
        };
        let (after, preemptible) = match self.scenario.stack.kind {
            // One item, which may be preempted only where it is more than system calls.
            Kind::Kernel => (
                After::Reply(request),
                self.scenario.workload.compute_us > 0.0,
            ),
            Kind::User => (After::Reply(request), true),
            Kind::Nic => (After::ToNic(request), true),
        };
        Some(Job::process(own + compute, after, preemptible, since))
    }

    /// A library receives everything before it serves anything: under overload it never answers.
    fn user_item(&mut self, core: usize) -> Option<Job> {
        let server = &mut self.cores[core].server;
        if let Some((request, last, since)) = server.ring.pop_front() {
            server.taken_since = since;
            let (work, after) = if last {
                (self.work.receive + self.work.segment, After::Read(request))
            } else {
                (self.work.receive, After::Nothing)
            };
            return Some(Job::process(work, after, true, self.now));
        }
        if let Some(request) = server.repeats.pop_front() {
            let after = After::Reply(request);
            self.cores[core].server_meter.arrived(self.now);
            return Some(Job::process(self.work.transmit, after, true, self.now));
        }
        let spins = self.scenario.stack.busy_poll && server.sockets.is_empty();
        if spins {
            server.spinning = true;
            return Some(Job::endless(self.now));
        }
        self.serve(core)
    }

    fn nic_item(&mut self, core: usize) -> Option<Job> {
        let server = &mut self.cores[core].server;
        if !server.sockets.is_empty() {
            return self.serve(core);
        }
        if self.scenario.nic.mode != Mode::Push
            && let Some(request) = server.stored.pop_front()
        {
            self.release_memory(request);
            let after = After::Read(request);
            return Some(Job::process(self.work.fetch, after, true, self.now));
        }
        server.reading = true;
        None
    }

    /// A request is complete in its socket, and its server wakes.
    pub(super) fn deliver(&mut self, core: usize, request: Id) {
        if self.requests[request as usize].dropped {
            return;
        }
        let server_core = self.server_core(request);
        if server_core != core && self.work.handover > 0 {
            self.push_interrupt(server_core, self.work.handover, After::Deliver(request));
            self.kick(server_core);
            return;
        }
        self.join_socket(server_core, request, false);
        self.wake(server_core, SERVER);
    }

    /// A job of the server has made a segment ready to be served.
    pub(super) fn on_read(&mut self, core: usize, request: Id) {
        if self.scenario.stack.kind == Kind::Nic {
            self.join_socket(core, request, true);
        } else {
            // It has waited for the server since it joined the ring.
            let server = &mut self.cores[core].server;
            let since = server.taken_since;
            server.sockets.push_back((request, since, false));
        }
    }

    pub(super) fn join_socket(&mut self, core: usize, request: Id, read: bool) {
        let row = &mut self.cores[core];
        row.server_meter.arrived(self.now);
        row.server.sockets.push_back((request, self.now, read));
    }
}
