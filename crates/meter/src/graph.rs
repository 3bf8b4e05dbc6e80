//! A distribution as bars for a terminal: cells of equal ratio, because times spread over powers of ten.

/// Bars that are shown.
const BARS: usize = 16;
/// Characters of the longest bar.
const WIDTH: usize = 50;

/// The bars of a histogram of nanoseconds; empty where there is nothing in it.
pub fn bars(histogram: &[(u64, u64)]) -> String {
    let cells = cells(histogram);
    let most = cells.iter().map(|cell| cell.count).max().unwrap_or(0);
    let all: u64 = cells.iter().map(|cell| cell.count).sum();
    let mut text = String::new();
    for cell in &cells {
        let part = cell.count as f64 / most.max(1) as f64;
        let bar = bar(part * WIDTH as f64);
        let percent = cell.count as f64 * 100.0 / all.max(1) as f64;
        let (from, to) = (cell.from_ns / 1e3, cell.to_ns / 1e3);
        text += format!(
            "{from:>10.1} to {to:>10.1} µs  {:>9}  {percent:>6.2} %  {bar}",
            cell.count
        )
        .trim_end();
        text.push('\n');
    }
    text
}

/// A bar's part of the distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Lower end.
    pub from_ns: f64,
    /// Upper end.
    pub to_ns: f64,
    /// Times in it.
    pub count: u64,
}

/// Puts a histogram into cells of equal ratio.
pub fn cells(histogram: &[(u64, u64)]) -> Vec<Cell> {
    let (Some(first), Some(last)) = (histogram.first(), histogram.last()) else {
        return Vec::new();
    };
    let low = (first.0.max(1)) as f64;
    let high = (last.0.max(1)) as f64;
    let ratio = (high / low).powf(1.0 / BARS as f64);
    if ratio <= 1.0 + 1e-4 {
        let count = histogram.iter().map(|cell| cell.1).sum();
        return vec![Cell {
            from_ns: low,
            to_ns: high,
            count,
        }];
    }
    let end = |index: usize| low * ratio.powf(index as f64);
    let mut cells: Vec<Cell> = (0..BARS)
        .map(|index| Cell {
            from_ns: end(index),
            to_ns: end(index + 1),
            count: 0,
        })
        .collect();
    for (value, count) in histogram {
        let index = cells.iter().position(|cell| *value as f64 <= cell.to_ns);
        cells[index.unwrap_or(BARS - 1)].count += count;
    }
    cells
}

/// A bar in eighths of a character.
fn bar(width: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let width = width.clamp(0.0, WIDTH as f64);
    let whole = (0..WIDTH)
        .take_while(|index| (*index + 1) as f64 <= width)
        .count();
    let eighths = (width - whole as f64) * 8.0;
    let part = (1..PARTS.len())
        .take_while(|eighth| *eighth as f64 <= eighths)
        .count();
    "█".repeat(whole) + PARTS[part]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_one_cell() {
        let histogram: Vec<(u64, u64)> = (1..=100).map(|value| (value * 1000, value)).collect();
        let cells = cells(&histogram);
        assert_eq!(cells.len(), BARS);
        assert_eq!(cells.iter().map(|cell| cell.count).sum::<u64>(), 5050);
        assert!((cells[BARS - 1].to_ns - 100_000.0).abs() < 1.0);
        assert_eq!(bars(&histogram).lines().count(), BARS);
    }

    #[test]
    fn one_value_is_one_bar_and_none_is_no_bar() {
        assert_eq!(
            cells(&[(5000, 3)]),
            [Cell {
                from_ns: 5000.0,
                to_ns: 5000.0,
                count: 3
            }]
        );
        assert_eq!(bars(&[]), "");
    }

    #[test]
    fn bars_have_eighths() {
        assert_eq!(
            (bar(2.0), bar(0.5), bar(1.25)),
            ("██".to_owned(), "▌".to_owned(), "█▎".to_owned())
        );
        assert_eq!(bar(1000.0).chars().count(), WIDTH);
    }
}
