//! A host processor: interrupts over bottom halves over processes, and the round robin among these.
//!
//! The scheduler's rules, numbered as in docs/simulator.md:
//! 1. a dispatched process gets a fresh slice of wall-clock time, interrupts included;
//! 2. at its end, if another process can run, the current one goes to the tail, otherwise it gets a
//!    new slice; what may not be preempted (a system call) finishes first;
//! 3. at a scheduling point — the end of a slice after the decision of rule 2, a process that blocks,
//!    an idle processor — waiting bottom halves are let run, until none waits;
//! 4. a woken process joins the tail;
//! 5. what is preempted keeps the work it has left.

use std::collections::VecDeque;

use super::{
    Busy, Machine,
    event::Event,
    job::{After, Job},
    server::Server,
    timeline::{Level, request_of},
};
use crate::{
    scenario::{BottomHalf, Kind, Wake},
    statistics::meter::Meter,
    time::{NEVER, Ns, from_ms},
};

/// The server's place among a processor's processes.
pub(super) const SERVER: usize = 0;
/// The polling thread's place.
pub(super) const POLL_THREAD: usize = 1;
/// The first endless computation's place.
pub(super) const FIRST_BACKGROUND: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    Interrupt,
    BottomHalf,
    Process,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    /// The work in hand when it was put aside.
    pub saved: Option<Job>,
    pub blocked: bool,
}

#[derive(Debug, Default)]
pub(super) struct Core {
    pub interrupts: VecDeque<Job>,
    pub halves: VecDeque<Job>,
    /// Bottom halves may run now.
    pub halves_run: bool,
    running: Option<Running>,
    started: Ns,
    version: u32,
    pub run_queue: VecDeque<usize>,
    pub process: Option<usize>,
    item: Option<Job>,
    slice_version: u32,
    reschedule: bool,
    pub processes: Vec<Process>,
    pub server: Server,
    pub busy: Busy,
    pub interrupt_meter: Meter,
    pub half_meter: Meter,
    pub server_meter: Meter,
}

impl Core {
    /// An idle processor with this many processes.
    pub fn new(processes: usize) -> Self {
        Self {
            processes: std::iter::repeat_with(Process::default)
                .take(processes)
                .collect(),
            ..Self::default()
        }
    }

    /// The job in hand.
    fn job(&mut self, running: Running) -> Option<&mut Job> {
        match running {
            Running::Interrupt => self.interrupts.front_mut(),
            Running::BottomHalf => self.halves.front_mut(),
            Running::Process => self.item.as_mut(),
        }
    }

    fn level(&self, running: Running) -> Level {
        match (running, self.process) {
            (Running::Interrupt, _) => Level::Interrupt,
            (Running::BottomHalf, _) => Level::BottomHalf,
            (_, Some(SERVER)) if self.server.spinning => Level::Spin,
            (_, Some(SERVER)) | (_, None) => Level::Server,
            (_, Some(POLL_THREAD)) => Level::PollThread,
            (_, Some(_)) => Level::Background,
        }
    }

    fn runs_preemptible_process(&self) -> bool {
        self.running == Some(Running::Process) && self.item.is_some_and(|item| item.preemptible)
    }
}

impl Machine<'_> {
    pub(super) fn push_interrupt(&mut self, core: usize, work: Ns, after: After) {
        let job = Job::new(work, after, self.now);
        let row = &mut self.cores[core];
        row.interrupt_meter.arrived(self.now);
        row.interrupts.push_back(job);
    }

    pub(super) fn push_half(&mut self, core: usize, work: Ns, after: After) {
        let job = Job::new(work, after, self.now);
        let row = &mut self.cores[core];
        row.half_meter.arrived(self.now);
        row.halves.push_back(job);
    }

    /// Decides anew what a processor runs.
    pub(super) fn kick(&mut self, core: usize) {
        let row = &self.cores[core];
        let wanted = if !row.interrupts.is_empty() {
            Running::Interrupt
        } else if row.halves_run && !row.halves.is_empty() {
            Running::BottomHalf
        } else {
            Running::Process
        };
        match row.running {
            Some(running) if running == wanted || running == Running::Interrupt => return,
            Some(Running::BottomHalf) if wanted == Running::Process => return,
            Some(_) => self.stop(core),
            None => {}
        }
        if wanted == Running::Process {
            self.cores[core].halves_run &= !self.cores[core].halves.is_empty();
            self.run_process(core);
        } else {
            self.start_running(core, wanted);
        }
    }

    fn start_running(&mut self, core: usize, running: Running) {
        let now = self.now;
        let row = &mut self.cores[core];
        row.running = Some(running);
        row.started = now;
        row.version = row.version.wrapping_add(1);
        let version = row.version;
        let Some(job) = row.job(running) else {
            return;
        };
        let (left, waited) = (job.left, now - job.since);
        let (first, after) = (!job.begun, job.after);
        job.begun = true;
        if first {
            match running {
                Running::Interrupt => row.interrupt_meter.began(waited),
                Running::BottomHalf => row.half_meter.began(waited),
                Running::Process if is_service(after) => row.server_meter.began(waited),
                Running::Process => {}
            }
        }
        if left != NEVER {
            self.after(left, Event::Finish { core, version });
        }
    }

    /// Takes the processor from what it runs.
    pub(super) fn stop(&mut self, core: usize) {
        let now = self.now;
        let Some(running) = self.cores[core].running else {
            return;
        };
        self.account(core, running);
        let row = &mut self.cores[core];
        let elapsed = now - row.started;
        if let Some(job) = row.job(running).filter(|job| job.left != NEVER) {
            job.left = job.left.saturating_sub(elapsed);
        }
        row.running = None;
        row.version = row.version.wrapping_add(1);
    }

    fn account(&mut self, core: usize, running: Running) {
        let row = &mut self.cores[core];
        let (from, elapsed) = (row.started, self.now - row.started);
        let level = row.level(running);
        if let Some(busy) = row.busy.of(level) {
            *busy += elapsed;
        }
        match level {
            Level::Interrupt => row.interrupt_meter.busy(elapsed),
            Level::BottomHalf => row.half_meter.busy(elapsed),
            Level::Server => row.server_meter.busy(elapsed),
            _ => {}
        }
        if self.timeline.wants_more() {
            let request = row.job(running).and_then(|job| request_of(job.after));
            self.timeline.add(core, level, from, self.now, request);
        }
    }

    pub(super) fn on_finish(&mut self, core: usize, version: u32) {
        let row = &self.cores[core];
        let Some(running) = row.running.filter(|_| row.version == version) else {
            return;
        };
        self.account(core, running);
        let now = self.now;
        let row = &mut self.cores[core];
        row.running = None;
        let job = match running {
            Running::Interrupt => row.interrupts.pop_front(),
            Running::BottomHalf => row.halves.pop_front(),
            Running::Process => row.item.take(),
        };
        let Some(job) = job else { return };
        match running {
            Running::Interrupt => row.interrupt_meter.left(now, job.since),
            Running::BottomHalf => {
                row.half_meter.left(now, job.since);
                row.halves_run &= !row.halves.is_empty();
            }
            Running::Process => {
                if is_service(job.after) {
                    row.server_meter.left(now, job.since);
                }
                let stack = &self.scenario.stack;
                let returns = stack.bottom_half == BottomHalf::Sysret && stack.kind == Kind::Kernel;
                row.halves_run |= returns && !row.halves.is_empty();
            }
        }
        self.on_done(core, job.after);
        if self.cores[core].running.is_none() {
            self.kick(core);
        }
    }

    /// Rule 3: bottom halves may run now. True where one does.
    fn scheduling_point(&mut self, core: usize) -> bool {
        let stack = &self.scenario.stack;
        let row = &mut self.cores[core];
        let here = matches!(stack.bottom_half, BottomHalf::Sched | BottomHalf::Sysret);
        if stack.kind == Kind::Kernel && here && !row.halves.is_empty() {
            row.halves_run = true;
        }
        let run = row.halves_run && !row.halves.is_empty();
        if run {
            self.kick(core);
        }
        run
    }

    fn run_process(&mut self, core: usize) {
        loop {
            let row = &self.cores[core];
            let may_leave = row.item.is_none_or(|item| item.preemptible);
            if row.process.is_some() && row.reschedule && may_leave {
                if self.scenario.stack.bottom_half_first && self.scheduling_point(core) {
                    return;
                }
                self.end_slice(core);
                if self.scheduling_point(core) {
                    return;
                }
            }
            if self.cores[core].process.is_none() {
                let Some(next) = self.cores[core].run_queue.pop_front() else {
                    self.scheduling_point(core);
                    return;
                };
                let row = &mut self.cores[core];
                row.process = Some(next);
                row.item = row.processes[next].saved.take();
                self.new_slice(core);
            }
            if self.cores[core].item.is_none() {
                self.cores[core].item = self.next_item(core);
                if self.cores[core].item.is_none() {
                    self.cores[core].process = None;
                    if self.scheduling_point(core) {
                        return;
                    }
                    continue;
                }
            }
            self.start_running(core, Running::Process);
            return;
        }
    }

    /// Rule 2.
    fn end_slice(&mut self, core: usize) {
        let row = &mut self.cores[core];
        row.reschedule = false;
        if row.run_queue.is_empty() {
            self.new_slice(core);
        } else if let Some(process) = row.process.take() {
            row.run_queue.push_back(process);
            row.processes[process].saved = row.item.take();
        }
    }

    /// Rule 1.
    fn new_slice(&mut self, core: usize) {
        self.slice_ends_after(core, from_ms(self.scenario.host.quantum_ms));
    }

    pub(super) fn slice_ends_after(&mut self, core: usize, length: Ns) {
        let row = &mut self.cores[core];
        row.slice_version = row.slice_version.wrapping_add(1);
        row.reschedule = false;
        let version = row.slice_version;
        self.after(length, Event::Slice { core, version });
    }

    pub(super) fn on_slice(&mut self, core: usize, version: u32) {
        let row = &mut self.cores[core];
        if version != row.slice_version || row.process.is_none() {
            return;
        }
        row.reschedule = true;
        if row.runs_preemptible_process() {
            self.stop(core);
            self.kick(core);
        }
    }

    /// Rule 4.
    pub(super) fn wake(&mut self, core: usize, process: usize) {
        let row = &mut self.cores[core];
        if !row.processes[process].blocked {
            return;
        }
        row.processes[process].blocked = false;
        if self.scenario.host.wake == Wake::Preempt {
            row.run_queue.push_front(process);
            row.reschedule |= row.process.is_some();
            if row.runs_preemptible_process() {
                self.stop(core);
            }
        } else {
            row.run_queue.push_back(process);
        }
        self.kick(core);
    }

    /// The server stops spinning, because there is work.
    pub(super) fn end_spin(&mut self, core: usize) {
        let row = &mut self.cores[core];
        if !row.server.spinning {
            return;
        }
        if row.process == Some(SERVER) {
            if row.running == Some(Running::Process) {
                self.stop(core);
            }
            self.cores[core].item = None;
        } else {
            row.processes[SERVER].saved = None;
        }
        self.cores[core].server.spinning = false;
        self.kick(core);
    }
}

/// The server's work that answers a request, as opposed to receiving it.
fn is_service(after: After) -> bool {
    matches!(after, After::Reply(_) | After::ToNic(_))
}
