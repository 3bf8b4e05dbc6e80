//! What is asked or said on a link of our own accord: it waits until the interface takes it.

use super::Link;
use super::interface::{InterfaceId, Resolution};
use super::neighbour::Probe;
use crate::egress::{Busy, Egress};
use core::net::{IpAddr, Ipv6Addr};

/// Questions that wait to be sent at most; the timers repeat what is dropped.
pub(super) const QUESTIONS_MAX: usize = 256;

/// Something to say on the link of our own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Who(Probe),
    /// This own address is ours (a gratuitous request, RFC 5227 §3).
    Announce(InterfaceId, IpAddr),
    /// Does somebody else have this own address? (RFC 4862 §5.4.2)
    Duplicate(InterfaceId, Ipv6Addr),
    /// Which routers are there? (RFC 4861 §6.3.7)
    Routers(InterfaceId),
}

impl Link {
    /// Asks for a hardware address as soon as the interface takes it.
    pub(crate) fn ask(&mut self, probe: Probe) {
        self.question(Question::Who(probe));
    }

    pub(crate) fn question(&mut self, question: Question) {
        // Bounded: whoever asks has a timer and asks again.
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push_back(question);
        }
    }

    fn send_question(&mut self, question: &Question, egress: &mut dyn Egress) -> Result<(), Busy> {
        let (id, target, unicast) = match *question {
            Question::Who(probe) => (probe.interface, probe.address, probe.hardware),
            Question::Announce(id, address) => (id, address, None),
            Question::Duplicate(id, address) => return self.probe_duplicate(id, address, egress),
            Question::Routers(id) => return self.ask_routers(id, egress),
        };
        let Some(interface) = self.interfaces.find(id) else {
            return Ok(());
        };
        if interface.config.resolution == Resolution::External {
            egress.resolve(id, target);
            return Ok(());
        }
        match target {
            IpAddr::V4(target) => {
                let is_announcement = matches!(question, Question::Announce(..));
                self.send_request(id, target, unicast, is_announcement, egress)
            }
            IpAddr::V6(target) => self.solicit_neighbour(id, target, unicast, egress),
        }
    }

    /// Whether questions wait.
    pub(crate) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Sends the questions that wait.
    pub(crate) fn send_questions(&mut self, egress: &mut dyn Egress) {
        while let Some(question) = self.questions.pop_front() {
            if self.send_question(&question, egress).is_err() {
                self.questions.push_front(question);
                return;
            }
        }
    }
}
