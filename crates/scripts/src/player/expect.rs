//! What leaves the host against the line that speaks of it.

use super::events::LATENESS;
use super::{Captured, Player, now_ns, ns};
use crate::compare;
use crate::frame::flags;
use crate::script::{Match, Need, Segment, Span, When};

impl Player<'_, '_> {
    /// A train is as many expectations as it has segments.
    pub(super) fn expect(
        &mut self,
        segment: &Segment,
        need: Need,
        when: When,
    ) -> Result<(), String> {
        self.flow(segment.flow);
        let Some(size) = &segment.train else {
            return self.expect_one(segment, need, when);
        };
        let size = size.value(&self.values)?.max(1);
        let number = |wanted: &Option<Match>| match wanted {
            Some(Match::Is(expression, None)) => expression.value(&self.values),
            _ => Err("a train has a first and a last number".to_owned()),
        };
        let (mut seq, mut left) = (number(&segment.seq)?, number(&segment.len)?);
        let mut when = when;
        while left > 0 {
            let len = size.min(left);
            let is = |number: i64| Some(Match::Is(number.into(), None));
            let one = Segment {
                seq: is(seq),
                len: is(len),
                train: None,
                ..segment.clone()
            };
            self.expect_one(&one, need, when)?;
            (seq, left, when) = (seq + len, left - len, When::AtOnce);
        }
        Ok(())
    }

    fn expect_one(&mut self, wanted: &Segment, need: Need, when: When) -> Result<(), String> {
        let (base, span) = self.times(when);
        loop {
            let Some(got) = self.next_segment(base, span, need)? else {
                return Ok(());
            };
            let faults = self.faults(wanted, &got, (base, span, when));
            if !faults.is_empty() && need == Need::Optional {
                self.captured.push_front(got);
                return Ok(());
            }
            let line = self.describe(&got);
            self.note(got.at_ns, &line);
            if faults.is_empty() {
                self.last_ns = got.at_ns;
                return Ok(());
            }
            let is_pure_ack =
                got.tcp.payload.is_empty() && got.tcp.flags & !flags::PSH == flags::ACK;
            if need != Need::AfterAcks || !is_pure_ack {
                return Err(faults.join("; "));
            }
        }
    }

    /// The next segment, once it is there; none where none must come.
    fn next_segment(
        &mut self,
        base: i64,
        span: Span,
        need: Need,
    ) -> Result<Option<Captured>, String> {
        let patience = if need == Need::Optional {
            0
        } else {
            ns(LATENESS)
        };
        let deadline = base + ns(span.until) + patience;
        while self.captured.is_empty() {
            let is_running = self.collect_once(deadline);
            let is_running = is_running.map_err(|error| error.to_string())?;
            if self.captured.is_empty() && !is_running {
                if need == Need::Optional {
                    return Ok(None);
                }
                return Err(format!("nothing left until {}", self.clock(now_ns())));
            }
        }
        Ok(self.captured.pop_front())
    }

    fn faults(
        &mut self,
        wanted: &Segment,
        got: &Captured,
        (base, span, when): (i64, Span, When),
    ) -> Vec<String> {
        let number = self.flow_of(got).map(|(number, _)| number);
        if number != Some(wanted.flow) {
            return vec![format!(
                "it belongs to another connection than {}",
                wanted.flow
            )];
        }
        let flow = self.flow(wanted.flow);
        flow.on_host_segment(&got.tcp);
        let flow = flow.clone();
        let mut faults = compare::faults(wanted, &got.received, &got.tcp, &flow, &mut self.values);
        faults.extend(self.lateness(base, span, when, got.at_ns));
        faults
    }
}
