//! What each kind of line does.

use std::time::Duration;

use super::{Pending, Player, now_ns, ns};
use crate::compare;
use crate::frame::{IpFields, flags, icmp};
use crate::script::{Action, Call, CallResult, Event, Icmp, Segment, Span, Wanted, When};

/// How much later than allowed something is still waited for, so that the report can say "late".
pub(super) const LATENESS: Duration = Duration::from_millis(300);
/// How long a call may take that does not wait for anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// A call that has not returned after this long has blocked.
const BLOCKED: Duration = Duration::from_millis(15);

impl Player<'_, '_> {
    pub(super) fn perform(&mut self, event: &Event) -> Result<(), String> {
        match &event.action {
            Action::In(segment) => {
                self.begin(event.when)?;
                self.inject(segment, &event.text)
            }
            Action::IcmpIn(error) => {
                self.begin(event.when)?;
                self.inject_icmp(error, &event.text)
            }
            Action::Out { segment, need } => self.expect(segment, *need, event.when),
            Action::Silence(duration) => self.silence(*duration),
            Action::Call(call) => {
                self.begin(event.when)?;
                self.call(call, &event.text)
            }
            Action::Returns {
                name,
                socket,
                result,
            } => self.returns(name, socket, result, event),
            Action::Renew(flow) => {
                let flow = self.flow(*flow);
                flow.host_isn = None;
                Ok(())
            }
        }
    }

    /// Waits until something that we cause may happen: what happened before is done, and its time has come.
    fn begin(&mut self, when: When) -> Result<(), String> {
        self.settle()?;
        self.wait(when)?;
        self.is_unsettled = true;
        Ok(())
    }

    /// Waits until the host has taken in what arrived and done what calls asked for. A kernel has when a frame is through or
    /// a call returns; an engine some moments later. It answers an echo request behind them, and another one behind that: the
    /// first answer may leave in the middle of the turn that does what calls asked for.
    fn settle(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.is_unsettled) {
            return Ok(());
        }
        for _ in 0..2 {
            self.asked = self.asked.wrapping_add(1);
            let frame = icmp::echo_request(&self.run.link, self.asked);
            self.run.inject(&frame).map_err(|error| error.to_string())?;
            let deadline = now_ns() + ns(PATIENCE);
            while self.answered != self.asked {
                let is_running = self.collect_once(deadline);
                if !is_running.map_err(|error| error.to_string())? {
                    return Err("the host answers no echo request".to_owned());
                }
            }
        }
        Ok(())
    }

    fn inject(&mut self, segment: &Segment, text: &str) -> Result<(), String> {
        let now = now_ns();
        let now_ms = u32::try_from((now - self.start_ns) / 1_000_000).unwrap_or(0);
        let values = self.values.clone();
        let is_first_syn = segment.flags & (flags::SYN | flags::ACK) == flags::SYN;
        let known = self.cookie();
        let flow = self.flow(segment.flow);
        if is_first_syn && flow.cookie().is_empty() {
            flow.take_cookie(&known);
        }
        let segments = flow.segments(segment, &values, now_ms)?;
        let fields = IpFields {
            ecn: segment.ecn.map_or(0, compare::code_point),
            df: segment.df.unwrap_or(true),
        };
        for tcp in segments {
            let frame = tcp.frame(&self.run.link, fields);
            self.run.inject(&frame).map_err(|error| error.to_string())?;
        }
        self.last_ns = now;
        self.note(now, text);
        Ok(())
    }

    /// The cookie that any flow has seen: a peer keeps one for a host, not for a connection.
    fn cookie(&self) -> Vec<u8> {
        let mut cookies = self.flows.values().map(|flow| flow.cookie().to_vec());
        cookies
            .find(|cookie| !cookie.is_empty())
            .unwrap_or_default()
    }

    fn inject_icmp(&mut self, error: &Icmp, text: &str) -> Result<(), String> {
        let about = error.about.value(&self.values)?;
        let mtu = match &error.mtu {
            Some(mtu) => mtu.value(&self.values)?,
            None => 0,
        };
        let mtu = u32::try_from(mtu).map_err(|_| format!("an MTU of {mtu}"))?;
        let quotation = self.flow(error.flow).quotation(about);
        let frame = icmp::frame(&self.run.link, error.kind, mtu, &quotation);
        let now = now_ns();
        self.run.inject(&frame).map_err(|error| error.to_string())?;
        self.last_ns = now;
        self.note(now, text);
        Ok(())
    }

    /// What is wrong with the time of something that was not ours to choose.
    pub(super) fn lateness(&self, base: i64, span: Span, when: When, at_ns: i64) -> Option<String> {
        let after_ms = (at_ns - base) / 1_000_000;
        if at_ns > base + ns(span.until) {
            let until = span.until.as_millis();
            return Some(format!(
                "it is late: {after_ms} ms after, not {until} at most"
            ));
        }
        if when != When::AtOnce && at_ns < base + ns(span.from) {
            let from = span.from.as_millis();
            return Some(format!(
                "it is early: {after_ms} ms after, not {from} at least"
            ));
        }
        None
    }

    fn silence(&mut self, duration: Duration) -> Result<(), String> {
        let end = self.last_ns + ns(duration);
        self.collect_until(end).map_err(|error| error.to_string())?;
        self.nothing_is_left()?;
        self.last_ns = end.max(now_ns());
        Ok(())
    }

    fn call(&mut self, call: &Call, text: &str) -> Result<(), String> {
        let agent = &mut self.run.agent;
        let makes = call.makes.as_deref();
        let number = agent.send(makes, &call.name, &call.socket, &call.arguments);
        let number = number.map_err(|error| error.to_string())?;
        let began = now_ns();
        match &call.result {
            CallResult::Blocks => self.blocks(number, call, text, began),
            CallResult::Returns(wanted) => {
                let done = loop {
                    if let Some(done) = self.run.agent.take_done(number) {
                        break done;
                    }
                    let deadline = began + ns(PATIENCE);
                    if !self
                        .collect_once(deadline)
                        .map_err(|error| error.to_string())?
                    {
                        return Err(format!(
                            "the call has not returned after {} s",
                            PATIENCE.as_secs()
                        ));
                    }
                };
                self.late_ns = self.late_ns.max(now_ns() - began);
                self.note(
                    done.at_ns,
                    &format!("{}({}…) = {}", call.name, call.socket, done.result),
                );
                self.last_ns = done.at_ns;
                self.check_result(wanted, &done.result)
            }
        }
    }

    fn blocks(&mut self, number: u64, call: &Call, text: &str, began: i64) -> Result<(), String> {
        while !self.run.agent.has_started(number) {
            if !self
                .collect_once(began + ns(PATIENCE))
                .map_err(|error| error.to_string())?
            {
                return Err("the agent does not answer".to_owned());
            }
        }
        self.note(began, text);
        self.collect_until(now_ns() + ns(BLOCKED))
            .map_err(|error| error.to_string())?;
        if let Some(done) = self.run.agent.take_done(number) {
            return Err(format!("the call returned {} at once", done.result));
        }
        self.last_ns = began;
        self.watched_ns = now_ns();
        self.pending.push(Pending {
            number,
            name: call.name.clone(),
            socket: call.socket.clone(),
        });
        Ok(())
    }

    fn returns(
        &mut self,
        name: &str,
        socket: &str,
        wanted: &Wanted,
        event: &Event,
    ) -> Result<(), String> {
        let is_it = |one: &Pending| one.name == name && one.socket == socket;
        let at = self.pending.iter().position(is_it);
        let at = at.ok_or_else(|| format!("no {name} is pending on {socket}"))?;
        let pending = self.pending.remove(at);
        let (base, mut span) = self.times(event.when);
        if event.when == When::AtOnce {
            // The thread in the call has to be scheduled too: that takes longer than a packet does.
            span.until += LATENESS;
        }
        let deadline = base + ns(span.until + LATENESS);
        let done = loop {
            if let Some(done) = self.run.agent.take_done(pending.number) {
                break done;
            }
            if !self
                .collect_once(deadline)
                .map_err(|error| error.to_string())?
            {
                return Err("the call has not returned".to_owned());
            }
        };
        self.note(
            done.at_ns,
            &format!("{name}({socket}) returned {}", done.result),
        );
        self.check_result(wanted, &done.result)?;
        if let Some(fault) = self.lateness(base, span, event.when, done.at_ns) {
            return Err(fault);
        }
        self.last_ns = done.at_ns.max(base);
        Ok(())
    }

    fn check_result(&mut self, wanted: &Wanted, is: &str) -> Result<(), String> {
        let number = is.parse::<i64>();
        match (wanted, number) {
            (Wanted::Success, Ok(_)) => Ok(()),
            (Wanted::Number(wanted), Ok(is)) => {
                compare::number("the result", Some(wanted), is, &mut self.values)
                    .map_or(Ok(()), Err)
            }
            (Wanted::Word(word), _) if word == is => Ok(()),
            (Wanted::Word(word), _) => Err(format!("the result is {is}, not {word}")),
            (Wanted::Success | Wanted::Number(_), Err(_)) => Err(format!("the result is {is}")),
        }
    }
}
