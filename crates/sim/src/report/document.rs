//! A report once, in three forms: text for a terminal, Markdown, and one HTML file that needs
//! nothing else.

use crate::report::plot::{Plot, escape};

/// A part of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Points of a list.
    List(Vec<String>),
    /// A table: headings, then rows.
    Table(Vec<String>, Vec<Vec<String>>),
    /// A chart; text and Markdown leave it out.
    Plot(Plot),
    /// A drawing, as SVG; text and Markdown leave it out.
    Drawing(String),
}

/// A report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// Its parts in order.
    pub blocks: Vec<Block>,
}

impl Document {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            blocks: Vec::new(),
        }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Heading(text.into()));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Adds a list.
    pub fn list(&mut self, points: impl IntoIterator<Item = String>) {
        self.blocks.push(Block::List(points.into_iter().collect()));
    }

    /// Adds a table.
    pub fn table<H: Into<String>>(
        &mut self,
        headings: impl IntoIterator<Item = H>,
        rows: Vec<Vec<String>>,
    ) {
        let headings = headings.into_iter().map(Into::into).collect();
        self.blocks.push(Block::Table(headings, rows));
    }

    /// The report for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for block in &self.blocks {
            text += &match block {
                Block::Heading(heading) => format!("\n{heading}\n"),
                Block::Text(paragraph) => format!("{paragraph}\n"),
                Block::List(points) => points.iter().map(|p| format!("- {p}\n")).collect(),
                Block::Table(headings, rows) => aligned(headings, rows),
                Block::Plot(_) | Block::Drawing(_) => String::new(),
            };
        }
        text
    }

    /// The report as Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}\n", self.title);
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
        for block in &self.blocks {
            text += &match block {
                Block::Heading(heading) => format!("\n## {heading}\n"),
                Block::Text(paragraph) => format!("\n{paragraph}\n"),
                Block::List(points) => {
                    let points = points.iter().map(|p| format!("- {p}\n"));
                    format!("\n{}", points.collect::<String>())
                }
                Block::Table(headings, rows) => {
                    let rule = "|---".repeat(headings.len()) + "|\n";
                    let rows = rows.iter().map(|cells| row(cells));
                    format!("\n{}{rule}{}", row(headings), rows.collect::<String>())
                }
                Block::Plot(_) | Block::Drawing(_) => String::new(),
            };
        }
        text
    }

    /// The tables alone, as comma-separated values (RFC 4180).
    pub fn to_csv(&self) -> String {
        let cell = |text: &String| {
            if text.contains([',', '"', '\n']) {
                format!("\"{}\"", text.replace('"', "\"\""))
            } else {
                text.clone()
            }
        };
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(cell).collect();
            cells.join(",") + "\r\n"
        };
        let tables = self.blocks.iter().filter_map(|block| match block {
            Block::Table(headings, rows) => {
                let rows: String = rows.iter().map(|row| line(row)).collect();
                Some(line(headings) + &rows)
            }
            _ => None,
        });
        tables.collect()
    }

    /// The report as one HTML file, charts inside.
    pub fn to_html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n", escape(&self.title));
        for block in &self.blocks {
            body += &match block {
                Block::Heading(heading) => format!("<h2>{}</h2>\n", escape(heading)),
                Block::Text(paragraph) => format!("<p>{}</p>\n", escape(paragraph)),
                Block::List(points) => {
                    let points = points.iter().map(|p| format!("<li>{}</li>", escape(p)));
                    format!("<ul>{}</ul>\n", points.collect::<String>())
                }
                Block::Table(headings, rows) => html_table(headings, rows),
                Block::Plot(plot) => format!("<figure>{}</figure>\n", plot.svg()),
                Block::Drawing(svg) => format!("<figure>{svg}</figure>\n"),
            };
        }
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\n\
             <style>{STYLE}</style></head><body>\n{body}</body></html>\n",
            escape(&self.title)
        )
    }
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}\
td,th{padding:.2em .7em;border-bottom:1px solid #8884;text-align:right}\
td:first-child,th:first-child{text-align:left}figure{margin:1em 0;overflow-x:auto}\
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}svg{fill:#bbb}}";

fn html_table(headings: &[String], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &[String]| {
        let cells = cells
            .iter()
            .map(|c| format!("<{tag}>{}</{tag}>", escape(c)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().map(|row| cells("td", row)).collect();
    format!("<table>\n{}{rows}</table>\n", cells("th", headings))
}

/// Whether a cell is read by its last digits.
fn is_number(cell: &str) -> bool {
    let first = cell.chars().next();
    first.is_none_or(|c| c.is_ascii_digit() || "+-–≥.".contains(c)) || cell == "overload"
}

/// Columns as wide as their widest cell; numbers to the right, words to the left.
fn aligned(headings: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(headings).chain(rows.iter().map(Vec::as_slice));
    let columns = all().map(<[String]>::len).max().unwrap_or(0);
    let layout = |column: usize| {
        let widths = all().filter_map(move |row| row.get(column));
        let width = widths.map(|cell| cell.chars().count()).max().unwrap_or(0);
        let mut cells = rows.iter().filter_map(move |row| row.get(column));
        (width, column > 0 && cells.all(|cell| is_number(cell)))
    };
    let layouts: Vec<(usize, bool)> = (0..columns).map(layout).collect();
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(&layouts).map(|(cell, (width, right))| {
            if *right {
                format!("  {cell:>width$}")
            } else {
                format!("  {cell:<width$}")
            }
        });
        text += cells.collect::<String>().trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let mut document = Document::new("A & B");
        document.heading("Part");
        document.text("One.");
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        document.table(["what", "ms"], vec![row("mean", "165"), row("p99 <", "9")]);
        document.list(["first".to_owned()]);
        document
    }

    #[test]
    fn text_aligns_its_tables() {
        let text = document().to_text();
        assert_eq!(
            text,
            "A & B\n\nPart\nOne.\n  what    ms\n  mean   165\n  p99 <    9\n- first\n"
        );
        let mut words = Document::new("W");
        let row = vec!["a".to_owned(), "1".to_owned(), "word".to_owned()];
        words.table(["x", "number", "a long heading"], vec![row]);
        assert!(words.to_text().ends_with("\n  a       1  word\n"));
    }

    #[test]
    fn markdown_has_tables_and_html_escapes() {
        assert!(
            document()
                .to_markdown()
                .contains("| what | ms |\n|---|---|\n| mean | 165 |\n")
        );
        let csv = document().to_csv();
        assert_eq!(csv, "what,ms\r\nmean,165\r\np99 <,9\r\n");
        let html = document().to_html();
        assert!(html.contains("<h1>A &amp; B</h1>") && html.contains("<td>p99 &lt;</td>"));
        assert!(!html.contains("http") || html.contains("www.w3.org/2000/svg"));
    }
}
