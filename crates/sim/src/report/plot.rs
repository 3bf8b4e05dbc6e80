//! Line charts as self-contained SVG: no script, no font to load, readable in light and dark.

use std::fmt::Write as _;

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed: a published value, a bound.
    pub dashed: bool,
}

/// A line chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The x axis, with its unit.
    pub x_label: String,
    /// The y axis, with its unit.
    pub y_label: String,
    /// A logarithmic x axis.
    pub log_x: bool,
    /// The lines.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// Distinguishable for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// Text with what SVG and HTML take as markup replaced.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A step of 1, 2 or 5 times a power of ten that divides a range into about five.
fn step_for(range: f64) -> f64 {
    let raw = (range / 5.0).max(1e-12);
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power >= raw * 0.999)
        .unwrap_or(10.0);
    factor * power
}

struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    fn share(&self, value: f64) -> f64 {
        let f = |v: f64| if self.log { v.max(1e-12).log10() } else { v };
        let range = f(self.to) - f(self.from);
        if range == 0.0 {
            0.5
        } else {
            (f(value) - f(self.from)) / range
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (self.from.max(1e-12).log10(), self.to.max(1e-12).log10());
            let decades = std::iter::successors(Some(low.floor()), |d| Some(d + 1.0));
            return decades
                .take_while(|d| *d <= high)
                .flat_map(|d| [1.0, 2.0, 5.0].map(|f| f * 10_f64.powf(d)))
                .filter(|v| *v >= self.from * 0.999 && *v <= self.to * 1.001)
                .collect();
        }
        let step = step_for(self.to - self.from);
        let first = (self.from / step).ceil();
        std::iter::successors(Some(first), |n| Some(n + 1.0))
            .map(|n| n * step)
            .take_while(|v| *v <= self.to + step * 1e-6)
            .collect()
    }
}

fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded == 0.0 {
        "0".to_owned()
    } else {
        format!("{rounded}")
    }
}

impl Plot {
    fn scales(&self) -> (Scale, Scale) {
        let all = || self.series.iter().flat_map(|s| s.points.iter());
        let least = |f: fn(&(f64, f64)) -> f64| all().map(f).fold(f64::INFINITY, f64::min);
        let most = |f: fn(&(f64, f64)) -> f64| all().map(f).fold(f64::NEG_INFINITY, f64::max);
        let finite = |v: f64, otherwise: f64| if v.is_finite() { v } else { otherwise };
        let x = Scale {
            from: finite(least(|p| p.0), 0.0),
            to: finite(most(|p| p.0), 1.0),
            log: self.log_x,
        };
        let top = finite(most(|p| p.1), 1.0).max(1e-12);
        let y = Scale {
            from: finite(least(|p| p.1), 0.0).min(0.0),
            to: top + step_for(top) * 0.2,
            log: false,
        };
        (x, y)
    }

    /// The chart as an SVG element.
    pub fn svg(&self) -> String {
        let (x_scale, y_scale) = self.scales();
        let x = |v: f64| LEFT + x_scale.share(v) * (WIDTH - LEFT - RIGHT);
        let y = |v: f64| HEIGHT - BOTTOM - y_scale.share(v) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"#555\">\n<title>{0}</title>\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{0}</text>\n",
            escape(&self.title)
        );
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y_scale.ticks() {
            let at = y(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#888\" stroke-opacity=\".25\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                number(tick)
            );
        }
        for tick in x_scale.ticks() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(tick),
                floor + 16.0,
                number(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{floor}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"14\" y=\"{:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 14 {:.1})\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 10.0,
            escape(&self.x_label),
            (TOP + floor) / 2.0,
            (TOP + floor) / 2.0,
            escape(&self.y_label)
        );
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            svg += &line(series, colour, index, x, y);
        }
        svg + "</svg>\n"
    }
}

fn line(
    series: &Series,
    colour: &str,
    index: usize,
    x: impl Fn(f64) -> f64,
    y: impl Fn(f64) -> f64,
) -> String {
    let dash = if series.dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    let places = series.points.iter();
    let path: Vec<String> = places
        .map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b)))
        .collect();
    let legend = TOP + 8.0 + 18.0 * index as f64;
    let key = WIDTH - RIGHT + 10.0;
    let mut svg = format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
         <path d=\"M{key} {legend}h18\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
        path.join(" "),
        key + 24.0,
        legend + 4.0,
        escape(&series.name)
    );
    if !series.dashed {
        for (a, b) in &series.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {}, {}</title></circle>",
                x(*a),
                y(*b),
                escape(&series.name),
                number(*a),
                number(*b)
            );
        }
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        Plot {
            title: "a < b".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            log_x: false,
            series: vec![Series {
                name: "one".to_owned(),
                points,
                dashed: false,
            }],
        }
    }

    #[test]
    fn a_chart_has_its_line_its_points_and_escaped_text() {
        let svg = plot(vec![(0.0, 1.0), (10.0, 3.0)]).svg();
        assert!(svg.contains("<polyline points=\"64.0,"));
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_chart_without_points_or_with_one_is_still_a_chart() {
        for points in [vec![], vec![(5.0, 0.0)]] {
            let svg = plot(points).svg();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        }
    }

    #[test]
    fn ticks_are_round_numbers() {
        let ticks = |from, to, log| Scale { from, to, log }.ticks();
        assert_eq!(ticks(0.0, 10.0, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            ticks(50.0, 1000.0, true),
            [50.0, 100.0, 200.0, 500.0, 1000.0]
        );
    }
}
