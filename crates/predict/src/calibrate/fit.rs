//! What a request, a byte, a packet and a wake-up cost apart, from samples in which they came in different numbers:
//! least squares with no cost below nothing, by coordinate descent (Lawson and Hanson, "Solving Least Squares
//! Problems", chapter 23, has the problem; so few unknowns need no better method).

/// One sample: how often each cost came in it, and what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<const N: usize> {
    /// How often each cost came.
    pub counts: [f64; N],
    /// What they took together.
    pub took_ns: f64,
}

/// The costs, and how well they explain the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit<const N: usize> {
    /// The costs, in the order of the counts.
    pub costs_ns: [f64; N],
    /// Root of the mean square of what is left over, as a part of each sample.
    pub left_over: f64,
}

/// Rounds of the descent; with so few unknowns it stands still long before.
const ROUNDS: usize = 5000;
/// What took less than this tells nothing of its parts.
const LEAST_NS: f64 = 1.0;

/// The costs that explain the samples best, each sample as important as any other; none where there are fewer
/// samples than costs.
pub fn fit<const N: usize>(samples: &[Sample<N>]) -> Option<Fit<N>> {
    let usable = |sample: &&Sample<N>| sample.took_ns > LEAST_NS;
    // Parts and not nanoseconds are to be small: large samples would outweigh all others.
    let rows: Vec<[f64; N]> = samples
        .iter()
        .filter(usable)
        .map(|sample| sample.counts.map(|count| count / sample.took_ns))
        .collect();
    if rows.len() < N {
        return None;
    }
    let product = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum::<f64>();
    let squares: [[f64; N]; N] = std::array::from_fn(|i| std::array::from_fn(|j| product(i, j)));
    let sums: [f64; N] = std::array::from_fn(|i| rows.iter().map(|row| row[i]).sum());
    let mut costs_ns = [0.0; N];
    for _ in 0..ROUNDS {
        for i in 0..N {
            if squares[i][i] <= 0.0 {
                continue;
            }
            let explained: f64 = (0..N)
                .filter(|j| *j != i)
                .map(|j| squares[i][j] * costs_ns[j])
                .sum();
            costs_ns[i] = ((sums[i] - explained) / squares[i][i]).max(0.0);
        }
    }
    let left_over = rows.iter().map(|row| {
        let explained: f64 = row
            .iter()
            .zip(&costs_ns)
            .map(|(count, cost)| count * cost)
            .sum();
        (explained - 1.0).powi(2)
    });
    Some(Fit {
        costs_ns,
        left_over: (left_over.sum::<f64>() / rows.len() as f64).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn(f64, f64) -> f64) -> Vec<Sample<2>> {
        let turns = [1.0, 0.5, 0.25, 0.1, 0.03];
        let of = |turns| Sample {
            counts: [1.0, turns],
            took_ns: of(1.0, turns),
        };
        turns.map(of).to_vec()
    }

    #[test]
    fn costs_are_found_again_in_what_they_add_up_to() {
        let found = fit(&samples(|requests, turns| {
            3000.0 * requests + 1200.0 * turns
        }))
        .unwrap();
        let [request, turn] = found.costs_ns;
        assert!((request - 3000.0).abs() < 1.0, "{found:?}");
        assert!(
            (turn - 1200.0).abs() < 1.0 && found.left_over < 1e-3,
            "{found:?}"
        );
    }

    #[test]
    fn no_cost_is_below_nothing() {
        let found = fit(&samples(|requests, turns| {
            3000.0 * requests - 500.0 * turns
        }))
        .unwrap();
        assert_eq!(found.costs_ns[1], 0.0);
        assert!((2500.0..3000.0).contains(&found.costs_ns[0]), "{found:?}");
        assert!(found.left_over > 0.01);
    }

    #[test]
    fn what_never_came_costs_nothing_and_too_few_samples_say_nothing() {
        let never = [1.0, 2.0, 3.0].map(|n| Sample {
            counts: [n, 0.0],
            took_ns: 100.0 * n,
        });
        assert!((fit(&never).unwrap().costs_ns[0] - 100.0).abs() < 1e-6);
        assert!(fit(&never[..1]).is_none());
        assert!(
            fit::<1>(&[Sample {
                counts: [1.0],
                took_ns: 0.0
            }])
            .is_none()
        );
    }
}
