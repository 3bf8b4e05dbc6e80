//! Which way of several is kept where the user names none: at either end.

use std::time::Instant;

use crate::sys;

/// Finds the way that takes least processor time here and keeps it, unless it is far slower than another: what it costs
/// the other end shows in how fast its blocks get on. One that takes more processor time than the plain way, read and
/// write, is never kept: to save that is what it is for.
///
/// How fast blocks get on is for the most part not the way's doing but the disk's or the connection's, which change from
/// one moment to the next. So the ways take turns, and of a way's turns the middle one counts.
#[derive(Debug)]
pub struct Probe<W> {
    /// In the order in which they are preferred.
    tried: Vec<Tried<W>>,
    plain: W,
    /// Turns that are over, of all ways.
    turn: usize,
    /// Blocks of this turn.
    block: usize,
    begun: Option<(Instant, u64)>,
}

/// What a way took so far.
#[derive(Clone, Debug)]
struct Tried<W> {
    way: W,
    is_had: bool,
    turns: Vec<Cost>,
}

/// What blocks took.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: u64,
    us: u64,
    cpu_us: u64,
}

impl Cost {
    /// So many for a GiB.
    fn each(&self, us: u64) -> u64 {
        us.saturating_mul(1 << 30)
            .checked_div(self.bytes)
            .unwrap_or(u64::MAX)
    }
}

impl<W> Tried<W> {
    /// Processor time for a GiB.
    fn cpu_us(&self) -> u64 {
        let sum = |of: fn(&Cost) -> u64| self.turns.iter().map(of).fold(0, u64::saturating_add);
        let all = Cost {
            bytes: sum(|cost| cost.bytes),
            ..Cost::default()
        };
        all.each(sum(|cost| cost.cpu_us))
    }

    /// Time for a GiB, in the middle one of its turns.
    fn us(&self) -> u64 {
        let mut times: Vec<u64> = self.turns.iter().map(|cost| cost.each(cost.us)).collect();
        times.sort_unstable();
        let middle = times.len().saturating_sub(1) / 2;
        times.get(middle).copied().unwrap_or(u64::MAX)
    }
}

impl<W: Copy + PartialEq> Probe<W> {
    /// Turns of each way.
    const TURNS: usize = 4;
    /// Blocks of a turn.
    const BLOCKS: usize = 6;
    /// The first of each are not counted: what the connection holds of the way before is still on its way.
    const UNCOUNTED: usize = 2;

    /// Nothing known of these ways, of which one is the plain one. Of those that take as much processor time the first is
    /// kept.
    pub fn new(ways: &[W], plain: W) -> Self {
        let tried = |&way: &W| Tried {
            way,
            is_had: true,
            turns: Vec::new(),
        };
        Self {
            tried: ways.iter().map(tried).collect(),
            plain,
            turn: 0,
            block: 0,
            begun: None,
        }
    }

    /// Whose turn it is; `None`: all had theirs.
    fn current(&self) -> Option<usize> {
        (self.turn < Self::TURNS * self.tried.len()).then(|| self.turn % self.tried.len())
    }

    /// How the next block is to be moved, and whether that is final.
    pub fn next(&mut self) -> (W, bool) {
        while let Some(index) = self.current() {
            if self.tried[index].is_had {
                self.begun = Some((Instant::now(), sys::thread_cpu_us()));
                return (self.tried[index].way, false);
            }
            self.end_turn();
        }
        (self.best(), true)
    }

    fn best(&self) -> W {
        let had = || self.tried.iter().filter(|tried| tried.is_had);
        let fastest_us = had().map(Tried::us).min().unwrap_or(0);
        let plain = had().find(|tried| tried.way == self.plain);
        let plain_us = plain.map_or(u64::MAX, Tried::cpu_us);
        let fits: Vec<_> = had()
            .filter(|tried| tried.way == self.plain || tried.cpu_us() < plain_us)
            .filter(|tried| tried.us() / 3 <= fastest_us / 2)
            .collect();
        let least_us = fits.iter().map(|tried| tried.cpu_us()).min().unwrap_or(0);
        // A tenth is no difference.
        let enough_us = least_us.saturating_add(least_us / 10);
        let best = fits.iter().find(|tried| tried.cpu_us() <= enough_us);
        best.map_or(self.plain, |tried| tried.way)
    }

    /// A way that cannot be had is not tried any further, and not kept.
    pub fn forget(&mut self, way: W) {
        let Some(index) = self.tried.iter().position(|tried| tried.way == way) else {
            return;
        };
        self.tried[index].is_had = false;
        if self.current() == Some(index) {
            self.end_turn();
        }
    }

    fn end_turn(&mut self) {
        self.turn += 1;
        self.block = 0;
        self.begun = None;
    }

    /// A block of so many bytes is through.
    pub fn moved(&mut self, bytes: u64) {
        let Some((begun, cpu_us)) = self.begun.take() else {
            return;
        };
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.count(bytes, us, sys::thread_cpu_us().saturating_sub(cpu_us));
    }

    fn count(&mut self, bytes: u64, us: u64, cpu_us: u64) {
        let Some(index) = self.current() else {
            return;
        };
        let turns = &mut self.tried[index].turns;
        if self.block == 0 {
            turns.push(Cost::default());
        }
        if let Some(cost) = turns.last_mut()
            && self.block >= Self::UNCOUNTED
        {
            cost.bytes = cost.bytes.saturating_add(bytes);
            cost.us = cost.us.saturating_add(us);
            cost.cpu_us = cost.cpu_us.saturating_add(cpu_us);
        }
        self.block += 1;
        if self.block == Self::BLOCKS {
            self.end_turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Method;

    const BLOCKS: usize = Probe::<Method>::BLOCKS;
    const TURNS: usize = Probe::<Method>::TURNS;

    /// The choice where a block of a method takes so long and so much processor time, given its turn and its place there.
    fn chosen(cost: impl Fn(Method, usize, usize) -> (u64, u64)) -> Method {
        let mut probe = Probe::new(&Method::TRIED, Method::ReadWrite);
        for turn in 0..TURNS {
            for expected in Method::TRIED {
                for block in 0..BLOCKS {
                    assert_eq!(probe.next(), (expected, false));
                    let (us, cpu_us) = cost(expected, turn, block);
                    probe.count(1 << 20, us, cpu_us);
                }
            }
        }
        let (method, is_final) = probe.next();
        assert!(is_final);
        method
    }

    /// The same where it is always the same.
    fn chosen_of(sendfile: (u64, u64), splice: (u64, u64), plain: (u64, u64)) -> Method {
        chosen(|method, _, _| match method {
            Method::Sendfile => sendfile,
            Method::Splice => splice,
            _ => plain,
        })
    }

    #[test]
    fn the_cheapest_method_is_taken_unless_it_is_far_slower() {
        // The network limits all of them.
        let cheapest = chosen_of((800, 90), (810, 50), (790, 140));
        assert_eq!(cheapest, Method::Splice);
        // A tenth is no difference.
        let first = chosen_of((800, 90), (810, 85), (790, 140));
        assert_eq!(first, Method::Sendfile);
        // Splice costs this end least, and the other end so much that it is slow.
        let not_slow = chosen_of((500, 90), (700, 50), (400, 140));
        assert_eq!(not_slow, Method::Sendfile);
        // Both cost more than what they are to save, were they ever so fast.
        let plain = chosen_of((300, 141), (310, 160), (400, 140));
        assert_eq!(plain, Method::ReadWrite);
    }

    #[test]
    fn a_disk_that_halts_for_a_moment_is_nobodys_fault() {
        let method = chosen(|method, turn, _| match (method, turn) {
            (Method::Sendfile, 1) => (50_000, 60),
            (Method::Sendfile, _) => (300, 60),
            (Method::Splice, _) => (300, 90),
            (_, _) => (300, 140),
        });
        assert_eq!(method, Method::Sendfile);
    }

    #[test]
    fn the_first_blocks_of_a_turn_do_not_count() {
        let method = chosen(|method, _, block| match method {
            Method::Sendfile if block < Probe::<Method>::UNCOUNTED => (10, 5),
            Method::Sendfile => (300, 160),
            Method::Splice if block < Probe::<Method>::UNCOUNTED => (50_000, 500),
            Method::Splice => (300, 100),
            _ => (300, 140),
        });
        assert_eq!(method, Method::Splice);
    }

    #[test]
    fn a_way_that_cannot_be_had_is_left_at_once_and_never_kept() {
        let mut probe = Probe::new(&Method::TRIED, Method::ReadWrite);
        assert_eq!(probe.next(), (Method::Sendfile, false));
        probe.count(1 << 20, 1, 1);
        probe.forget(Method::Sendfile);
        for block in 0..2 * TURNS * BLOCKS {
            let (method, is_final) = probe.next();
            assert!(method != Method::Sendfile && !is_final, "block {block}");
            let cpu_us = if method == Method::Splice { 80 } else { 90 };
            probe.count(1 << 20, 300, cpu_us);
        }
        assert_eq!(probe.next(), (Method::Splice, true));
        // Known too late that it does nothing for us.
        probe.forget(Method::Splice);
        assert_eq!(probe.next(), (Method::ReadWrite, true));
    }
}
