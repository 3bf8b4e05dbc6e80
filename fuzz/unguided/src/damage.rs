//! Inputs by number: the seeds of a body, damaged. The same number gives the same input, so that nothing has to be
//! written before an execution that may end the process.

/// Longest input.
const INPUT_MAX_BYTES: usize = 2_048;

/// SplitMix64 (Steele, Lea, Flood 2014): any two numbers in a row give unlike sequences.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        // A remainder is uneven by less than one part in 2^40 here.
        (self.next() % end as u64) as usize
    }
}

/// Writes input `number` of a sequence into `input`.
pub fn input(seeds: &[Vec<u8>], sequence: u64, number: u64, input: &mut Vec<u8>) {
    let mut random = Random(sequence.rotate_left(32) ^ number);
    input.clear();
    if random.below(16) == 0 {
        let len = random.below(256);
        input.extend((0..len).map(|_| random.next() as u8));
        return;
    }
    input.extend_from_slice(&seeds[random.below(seeds.len())]);
    for _ in 0..=random.below(8) {
        damage(seeds, &mut random, input);
    }
    input.truncate(INPUT_MAX_BYTES);
}

fn damage(seeds: &[Vec<u8>], random: &mut Random, input: &mut Vec<u8>) {
    if input.is_empty() {
        input.push(random.next() as u8);
        return;
    }
    let at = random.below(input.len());
    let end = input.len().min(at + 1 + random.below(32));
    match random.below(12) {
        0..3 => input[at] = random.next() as u8,
        3..5 => input[at] ^= 1 << random.below(8),
        // Counters and lengths that are off by a little, and the ends of their ranges.
        5 => input[at] = input[at].wrapping_add(1 + random.below(4) as u8),
        6 => input[at] = input[at].wrapping_sub(1 + random.below(4) as u8),
        7 => input[at..end].fill([0, 0xff, 0x7f, 0x80][random.below(4)]),
        8 => drop(input.drain(at..end)),
        9 => input.extend_from_within(at..end),
        10 => {
            let from = random.below(input.len());
            let len = (end - at).min(input.len() - from);
            let to = at.min(input.len() - len);
            input.copy_within(from..from + len, to);
        }
        _ => {
            input.truncate(at);
            let other = &seeds[random.below(seeds.len())];
            if !other.is_empty() {
                input.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn the_same_number_gives_the_same_input_and_others_give_others() {
        let seeds = [vec![1, 2, 3, 4, 5, 6, 7, 8], vec![9; 100], vec![]];
        let made = |sequence, number| {
            let mut input = Vec::new();
            super::input(&seeds, sequence, number, &mut input);
            input
        };
        assert_eq!(made(1, 7), made(1, 7));
        let inputs: HashSet<_> = (0..10_000).map(|number| made(1, number)).collect();
        assert!(inputs.len() > 6_000, "{}", inputs.len());
        assert_ne!(
            (0..10).map(|n| made(1, n)).collect::<Vec<_>>(),
            (0..10).map(|n| made(2, n)).collect::<Vec<_>>()
        );
        assert!(
            inputs
                .iter()
                .all(|input| input.len() <= super::INPUT_MAX_BYTES)
        );
    }
}
