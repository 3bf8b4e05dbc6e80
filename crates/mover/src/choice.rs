//! Which way of several is kept where the user names none: at either end.

use std::time::Instant;

use crate::sys;

/// Finds the way by which bytes get on fastest here, some blocks each, and keeps it; of those that are as fast the
/// one that takes least processor time. What it costs the other end shows in how fast its blocks get on. One that
/// takes more processor time than the plain way, read and write, is never kept: to save that is what it is for.
#[derive(Debug)]
pub struct Probe<W> {
    tried: Vec<Tried<W>>,
    plain: W,
    block: usize,
    begun: Option<(Instant, u64)>,
}

/// What a way took so far.
#[derive(Clone, Copy, Debug)]
struct Tried<W> {
    way: W,
    bytes: u64,
    us: u64,
    cpu_us: u64,
}

impl<W> Tried<W> {
    /// For a GiB.
    fn each(&self, us: u64) -> u64 {
        us.saturating_mul(1 << 30)
            .checked_div(self.bytes)
            .unwrap_or(u64::MAX)
    }
}

impl<W: Copy + PartialEq> Probe<W> {
    /// Blocks for each way.
    const BLOCKS: usize = 24;
    /// The first of each are not counted: they fill what the connection holds.
    const UNCOUNTED: usize = 8;

    /// Nothing known of these ways, of which one is the plain one.
    pub fn new(ways: &[W], plain: W) -> Self {
        let tried = |&way: &W| Tried {
            way,
            bytes: 0,
            us: 0,
            cpu_us: 0,
        };
        Self {
            tried: ways.iter().map(tried).collect(),
            plain,
            block: 0,
            begun: None,
        }
    }

    /// How the next block is to be moved, and whether that is final.
    pub fn next(&mut self) -> (W, bool) {
        match self.tried.get(self.block / Self::BLOCKS) {
            Some(tried) => {
                self.begun = Some((Instant::now(), sys::thread_cpu_us()));
                (tried.way, false)
            }
            None => (self.best(), true),
        }
    }

    fn best(&self) -> W {
        let times = self.tried.iter().map(|tried| tried.each(tried.us));
        // A twentieth is no difference.
        let fastest = times.min().unwrap_or(0);
        let most = fastest.saturating_add(fastest / 20);
        let of_plain = self
            .tried
            .iter()
            .find(|tried| tried.way == self.plain)
            .map_or(u64::MAX, |tried| tried.each(tried.cpu_us));
        let fast = self.tried.iter().filter(|tried| {
            let is_worth_it = tried.way == self.plain || tried.each(tried.cpu_us) < of_plain;
            is_worth_it && tried.each(tried.us) <= most
        });
        let best = fast.min_by_key(|tried| tried.each(tried.cpu_us));
        best.map_or(self.plain, |tried| tried.way)
    }

    /// A way that cannot be had is not tried any further, and not kept.
    pub fn forget(&mut self, way: W) {
        let Some(index) = self.tried.iter().position(|tried| tried.way == way) else {
            return;
        };
        self.tried[index].bytes = 0;
        if self.block / Self::BLOCKS == index {
            self.block = (index + 1) * Self::BLOCKS;
            self.begun = None;
        }
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
        let is_counted = self.block % Self::BLOCKS >= Self::UNCOUNTED;
        if let Some(tried) = self.tried.get_mut(self.block / Self::BLOCKS) {
            if is_counted {
                tried.bytes += bytes;
                tried.us = tried.us.saturating_add(us);
                tried.cpu_us = tried.cpu_us.saturating_add(cpu_us);
            }
            self.block += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Method;

    /// The choice where blocks of each method take so long, and so much processor time.
    fn chosen(costs: [(u64, u64); 3]) -> Method {
        let mut probe = Probe::new(&Method::TRIED, Method::ReadWrite);
        for (us, cpu_us) in costs {
            for _ in 0..Probe::<Method>::BLOCKS {
                assert!(!probe.next().1);
                probe.count(1 << 20, us, cpu_us);
            }
        }
        let (method, is_final) = probe.next();
        assert!(is_final);
        method
    }

    #[test]
    fn the_fastest_method_is_taken_and_of_equals_the_cheapest() {
        assert_eq!(Method::TRIED[1], Method::Splice);
        // Splice costs this end least, and the other end so much that it is slow.
        let costs = [(500, 90), (600, 50), (300, 140)];
        assert_eq!(chosen(costs), Method::ReadWrite);
        // The network limits all of them.
        let costs = [(800, 90), (810, 50), (805, 140)];
        assert_eq!(chosen(costs), Method::Splice);
        // Sendfile would be fastest, and costs more than what it is to save.
        let costs = [(300, 150), (400, 160), (600, 140)];
        assert_eq!(chosen(costs), Method::ReadWrite);
    }

    #[test]
    fn the_first_blocks_of_a_method_do_not_count() {
        let mut probe = Probe::new(&Method::TRIED, Method::ReadWrite);
        const BLOCKS: usize = Probe::<Method>::BLOCKS;
        for block in 0..3 * BLOCKS {
            let is_first = block % BLOCKS < Probe::<Method>::UNCOUNTED;
            // The first method is fast only while the connection takes everything.
            let us = match (block < BLOCKS, is_first) {
                (true, true) => 10,
                (true, false) => 500,
                (false, _) => 300,
            };
            let cpu_us = if block < 2 * BLOCKS { 100 } else { 120 };
            probe.count(1 << 20, us, cpu_us);
        }
        assert_eq!(probe.best(), Method::TRIED[1]);
    }

    #[test]
    fn a_way_that_cannot_be_had_is_left_at_once_and_never_kept() {
        let mut probe = Probe::new(&Method::TRIED, Method::ReadWrite);
        assert_eq!(probe.next(), (Method::Sendfile, false));
        probe.count(1 << 20, 1, 1);
        probe.forget(Method::Sendfile);
        for block in 0..2 * Probe::<Method>::BLOCKS {
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
