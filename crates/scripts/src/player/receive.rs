//! Taking in what the host sends, and what the agent says, while time passes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Captured, Player, now_ns};
use crate::compare;
use crate::flow::Flow;
use crate::frame::{self, Content, flags};

/// Segments that may wait to be spoken of: more means that the host has gone wild.
const MAX_CAPTURED: usize = 10_000;

impl Player<'_, '_> {
    /// Takes in what comes until that time.
    pub(super) fn collect_until(&mut self, deadline_ns: i64) -> anyhow::Result<()> {
        while self.collect_once(deadline_ns)? {}
        Ok(())
    }

    /// Waits for anything and takes it in; false when the time is over.
    pub(super) fn collect_once(&mut self, deadline_ns: i64) -> anyhow::Result<bool> {
        let now = now_ns();
        let left = deadline_ns - now;
        let timeout = Timespec {
            tv_sec: left.max(0) / 1_000_000_000,
            tv_nsec: left.max(0) % 1_000_000_000,
        };
        let (socket, agent) = (self.run.socket(), self.run.agent.readable());
        let mut fds = [
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(agent, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.late_ns = self
            .late_ns
            .max(now_ns() - deadline_ns.max(now + left.max(0)));
        let (has_frames, has_words) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if has_frames {
            self.drain()?;
        }
        if has_words {
            self.run.agent.read()?;
        }
        Ok(has_frames || has_words || left > 0)
    }

    /// Takes in every frame that is there.
    pub(super) fn drain(&mut self) -> anyhow::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut result = Ok(());
        loop {
            match self.run.capture(&mut buffer) {
                Ok(Some((len, at_ns))) => {
                    result = self.take_frame(buffer.get(..len).unwrap_or(&buffer), at_ns);
                }
                Ok(None) => break,
                Err(error) => result = Err(error),
            }
            if result.is_err() {
                break;
            }
        }
        self.buffer = buffer;
        result
    }

    fn take_frame(&mut self, bytes: &[u8], at_ns: i64) -> anyhow::Result<()> {
        let received = frame::parse(bytes);
        match received.content.clone() {
            Content::Asks(asked) if asked.target == self.run.link.peer => {
                self.run.inject(&asked.answer(self.run.link.peer_mac))?;
            }
            Content::EchoReply(number) if received.to == Some(self.run.link.peer) => {
                self.answered = number;
            }
            // Others are the affair of earlier scripts, or of the kernel beside an engine.
            Content::Tcp(tcp) if received.to == Some(self.run.link.peer) => {
                if self.captured.len() >= MAX_CAPTURED {
                    anyhow::bail!("more than {MAX_CAPTURED} segments that were not expected");
                }
                self.captured.push_back(Captured {
                    at_ns,
                    received,
                    tcp,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Number and state of the flow that a segment belongs to.
    pub(super) fn flow_of(&self, captured: &Captured) -> Option<(u16, &Flow)> {
        let port = captured.tcp.destination_port;
        let found = self.flows.iter().find(|(_, flow)| flow.peer_port == port);
        found.map(|(number, flow)| (*number, flow))
    }

    pub(super) fn describe(&self, captured: &Captured) -> String {
        compare::describe(&captured.received, &captured.tcp, self.flow_of(captured))
    }

    /// Faults if something has left that no line spoke of.
    pub(super) fn nothing_is_left(&mut self) -> Result<(), String> {
        let Some(first) = self.captured.front() else {
            return Ok(());
        };
        let what = if first.tcp.flags & flags::RST != 0 {
            "a reset"
        } else {
            "a segment"
        };
        Err(format!(
            "{what} left at {} that was not expected",
            self.clock(first.at_ns)
        ))
    }
}
