//! The page of `shunt bench all`: tables, a bar for each ratio, a bar of stages for each stack.

use std::fmt::Write;

use output::html::{self, escaped};
use statistics::Summary;

use crate::{paper::Published, unit::ratio_figure};

use super::{
    report::{Report, Row, Section, Verdict, figure},
    stages::{Mode, Stages},
};

/// Size of a ratio's figure; it shows a tenth to ten times.
const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 18.0;
/// Size of a bar of stages.
const BAR_WIDTH: f64 = 1000.0;
const BAR_HEIGHT: f64 = 34.0;
/// Of kinds of latency, readable on light and dark.
const COLOURS: [(&str, &str); 3] = [
    ("processing", "#3d7cc9"),
    ("transmission", "#c9642c"),
    ("propagation", "#7a8f3a"),
];
const OTHER_COLOUR: &str = "#9a6fb0";

pub fn page(report: &Report) -> String {
    let title = "Shunt beside the kernel";
    let mut page = html::head(title);
    let _ = write!(
        page,
        "<h1>{title}</h1>\n<p>shunt {}, Linux {}, {} processors; up to {} interleaved runs of each setup{}, {} s in all.</p>\n",
        escaped(report.version),
        escaped(&report.kernel),
        report.processors,
        report.runs,
        if report.quick { ", quick" } else { "" },
        report.duration_s
    );
    page += "<p>Each number is a median, with the spread of the runs (largest less smallest, by the median). A ratio is the median of the ratios within runs; its \
             interval holds it in 95 of 100 such experiments (bootstrap over runs), and where it holds 1 the difference is smaller than the noise. \
             In the column “a tenth to ten times” the dot is the ratio, the thick line its interval, the thin line 1 (left of it ours is the smaller \
             number), and a ring a paper's ratio. What a paper measured was another machine at another time: only its ratio can be set beside ours. The limit is what this \
             machine allows whatever a stack does.</p>\n";
    let _ = writeln!(page, "<p><strong>{}</strong></p>", report.summary());
    for warning in &report.warnings {
        let _ = writeln!(page, "<p class=\"bad\">{}</p>", escaped(warning));
    }
    page += "<nav aria-label=\"Parts\"><ul>\n";
    for (index, section) in report.sections.iter().enumerate() {
        let _ = writeln!(
            page,
            "<li><a href=\"#part{index}\">{}</a></li>",
            section.title
        );
    }
    page += "</ul></nav>\n<main>\n";
    for (index, section) in report.sections.iter().enumerate() {
        let _ = writeln!(
            page,
            "<section id=\"part{index}\">\n<h2>{}</h2>",
            section.title
        );
        page += &section_text(section);
        page += "</section>\n";
    }
    page + "</main>\n" + html::FOOT
}

fn section_text(section: &Section) -> String {
    let mut text = String::new();
    if !section.rows.is_empty() {
        text += &table(section);
    }
    if let Some(stages) = &section.stages {
        text += &stages_text(stages);
    }
    if section.is_empty() {
        text += "<p class=\"bad\">Nothing was measured.</p>\n";
    }
    for (class, lead, lines) in [
        ("soft", "Not measured: ", &section.skipped),
        ("bad", "Failed: ", &section.failures),
    ] {
        for line in lines {
            let _ = writeln!(text, "<p class=\"{class}\">{lead}{}</p>", escaped(line));
        }
    }
    if !section.conditions.is_empty() {
        text += "<details><summary>Conditions</summary><ul>\n";
        for line in &section.conditions {
            let _ = writeln!(text, "<li>{}</li>", escaped(line));
        }
        text += "</ul></details>\n";
    }
    text
}

fn table(section: &Section) -> String {
    let [baseline, ours] = section.sides;
    let mut text = format!(
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">what</th><th scope=\"col\">unit</th><th scope=\"col\">{baseline}</th>\
         <th scope=\"col\">{ours}</th><th scope=\"col\">ratio</th><th scope=\"col\">a tenth to ten times</th><th scope=\"col\">runs</th>\
         <th scope=\"col\" class=\"words\">a paper's ratio</th><th scope=\"col\" class=\"words\">limit</th></tr></thead><tbody>\n"
    );
    for row in &section.rows {
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}{}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td>{}</td><td>{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            escaped(&row.what),
            missing(row),
            row.unit,
            side(row.baseline.as_ref()),
            side(row.ours.as_ref()),
            ratio(row),
            bar(row),
            row.ours.as_ref().map_or(0, |of| of.samples.len()),
            row.paper.as_ref().map_or(String::new(), published),
            row.limit.as_ref().map_or(String::new(), |limit| format!(
                "{} {}<div class=\"soft\">{}</div>",
                figure(limit.value),
                limit.unit,
                escaped(&limit.what)
            )),
        );
    }
    text + "</tbody></table></div>\n"
}

fn missing(row: &Row) -> String {
    let of = |why: &String| format!("<div class=\"soft\">not measured: {}</div>", escaped(why));
    row.missing.iter().map(of).collect()
}

fn side(side: Option<&Summary>) -> String {
    side.map_or("–".to_owned(), |of| {
        let spread = 100.0 * of.spread();
        format!(
            "{}<div class=\"soft\">spread {spread:.0} %</div>",
            figure(of.median)
        )
    })
}

fn ratio(row: &Row) -> String {
    let Some(ratio) = row.ratio else {
        return "–".to_owned();
    };
    let (class, said) = match row.verdict() {
        Verdict::Better => ("good", "better"),
        Verdict::Worse => ("bad", "worse"),
        Verdict::Noise => ("soft", "smaller than the noise"),
        Verdict::Unknown => ("soft", "too few runs for an interval"),
    };
    let interval = row.interval.map_or(String::new(), |of| {
        format!(" ({} to {})", ratio_figure(of.low), ratio_figure(of.high))
    });
    format!(
        "<strong class=\"{class}\">{}</strong>{interval}<div class=\"soft\">{said}</div>",
        ratio_figure(ratio)
    )
}

/// Where a ratio lies in a tenth to ten times.
fn at(ratio: f64) -> f64 {
    (f64::midpoint(ratio.clamp(0.1, 10.0).log10(), 1.0) * WIDTH).clamp(0.0, WIDTH)
}

/// A line for the interval, a dot for the ratio, a ring for the paper's.
fn bar(row: &Row) -> String {
    let Some(ratio) = row.ratio else {
        return String::new();
    };
    let middle = HEIGHT / 2.0;
    let colour = match row.verdict() {
        Verdict::Better => "var(--good)",
        Verdict::Worse => "var(--bad)",
        Verdict::Noise | Verdict::Unknown => "var(--soft)",
    };
    let mut figure = format!(
        "<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"ratio {said}\">\
         <line class=\"axis\" x1=\"{one}\" x2=\"{one}\" y1=\"0\" y2=\"{HEIGHT}\"/>",
        said = ratio_figure(ratio),
        one = at(1.0)
    );
    if let Some(interval) = row.interval {
        let _ = write!(
            figure,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" style=\"stroke:{colour};stroke-width:3\"/>",
            at(interval.low),
            at(interval.high)
        );
    }
    let _ = write!(
        figure,
        "<circle cx=\"{:.1}\" cy=\"{middle}\" r=\"4\" style=\"fill:{colour}\"/>",
        at(ratio)
    );
    if let Some(paper) = row.paper.as_ref().and_then(Published::ratio) {
        let _ = write!(
            figure,
            "<circle cx=\"{:.1}\" cy=\"{middle}\" r=\"5.5\" style=\"fill:none;stroke:currentColor\"><title>the paper's: {paper:.2}</title></circle>",
            at(paper)
        );
    }
    figure + "</svg>"
}

fn published(of: &Published) -> String {
    let figures = match of.ratio() {
        Some(ratio) => format!(
            "{ratio:.2}<div class=\"soft\">{} → {} {}</div>",
            figure(of.baseline),
            figure(of.ours),
            of.unit
        ),
        None if of.ours > 0.0 => format!("{} {}", figure(of.ours), of.unit),
        None => String::new(),
    };
    format!(
        "{figures}<div class=\"soft\">{}: {}</div>",
        escaped(&of.source),
        escaped(&of.conditions)
    )
}

fn stages_text(stages: &Stages) -> String {
    let mut text = format!(
        "<p>{}. Means over the middle half of the round trips.</p>\n",
        escaped(&stages.subject)
    );
    let longest = stages
        .modes
        .iter()
        .map(|mode| mode.round_trip_ns)
        .fold(1.0, f64::max);
    for mode in &stages.modes {
        text += &stages_of(mode, longest);
    }
    text += "<p class=\"soft\">";
    for (name, colour) in COLOURS {
        let _ = write!(text, "<span style=\"color:{colour}\">■</span> {name} ");
    }
    text + &format!("<span style=\"color:{OTHER_COLOUR}\">■</span> of several kinds</p>\n")
}

fn stages_of(mode: &Mode, longest_ns: f64) -> String {
    let name = escaped(&mode.mode);
    let mut text = format!(
        "<h3>{name}: {:.2} µs, {:.1} % of it in no stage</h3>\n\
         <svg class=\"wide\" viewBox=\"0 0 {BAR_WIDTH} {BAR_HEIGHT}\" role=\"img\" aria-label=\"stages of {name}; the table below has them\">",
        mode.round_trip_ns / 1e3,
        mode.unexplained_percent
    );
    let mut x = 0.0;
    for stretch in &mode.stretches {
        let width = stretch.mean_ns / longest_ns * BAR_WIDTH;
        let colour = COLOURS.iter().find(|(kind, _)| *kind == stretch.group);
        let colour = colour.map_or(OTHER_COLOUR, |(_, colour)| colour);
        let _ = write!(
            text,
            "<rect x=\"{x:.2}\" y=\"2\" width=\"{:.2}\" height=\"{:.0}\" fill=\"{colour}\"><title>{}, {}: {:.2} µs</title></rect>",
            (width - 1.0).max(0.3),
            BAR_HEIGHT - 4.0,
            escaped(&stretch.name),
            escaped(&stretch.way),
            stretch.mean_ns / 1e3
        );
        x += width;
    }
    text += "</svg>\n<details><summary>Stage by stage</summary><table><thead><tr><th scope=\"col\">stage</th><th scope=\"col\">way</th>\
             <th scope=\"col\">kind</th><th scope=\"col\">µs</th></tr></thead><tbody>\n";
    for stretch in &mode.stretches {
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{:.3}</td></tr>",
            escaped(&stretch.name),
            escaped(&stretch.way),
            escaped(&stretch.group),
            stretch.mean_ns / 1e3
        );
    }
    text += "</tbody></table></details>\n";
    for missing in &mode.missing {
        let _ = writeln!(text, "<p class=\"soft\">{}</p>", escaped(missing));
    }
    text
}
