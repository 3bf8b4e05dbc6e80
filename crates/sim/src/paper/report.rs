//! The study as a report: what was published, what came out here, what does not agree, and what the
//! paper leaves out.

mod figures;
mod prose;

use super::{Figure, Study};
use crate::report::document::Document;
pub use figures::SURVIVORS;

impl Study {
    /// The report on these figures; with the checks where all are there.
    pub fn report(&self, shown: &[Figure], with_checks: bool) -> Document {
        let mut d = Document::new("The nic-net paper, simulated again");
        for figure in shown {
            match figure {
                Figure::Table1 => figures::table1(&mut d),
                Figure::Table2 => self.table2_part(&mut d),
                Figure::Fig7 => self.fig7_part(&mut d),
                Figure::Fig8 => self.fig8_part(&mut d),
                Figure::Fig9 => self.fig9_part(&mut d),
                Figure::Fig10 => self.fig10_part(&mut d),
            }
        }
        if with_checks {
            self.checks_part(&mut d);
        }
        d
    }

    /// The whole study: the verdict first, then how it was done, what came out, and what it rests on.
    pub fn full_report(&self) -> Document {
        let mut d = Document::new("The nic-net paper, simulated again: a reproduction study");
        self.verdict(&mut d);
        prose::said(&mut d, "method");
        let all = [
            Figure::Table1,
            Figure::Table2,
            Figure::Fig7,
            Figure::Fig8,
            Figure::Fig9,
            Figure::Fig10,
        ];
        d.blocks.extend(self.report(&all, true).blocks);
        prose::said(&mut d, "assumptions");
        prose::dependence(&mut d);
        prose::beyond(&mut d);
        prose::again(&mut d);
        d
    }

    fn checks_part(&self, d: &mut Document) {
        d.heading("Checks");
        let rows = self.checks().into_iter().map(|check| {
            let verdict = check.verdict();
            vec![
                check.name.to_owned(),
                check.published,
                check.ours,
                check.band.to_owned(),
                verdict.to_owned(),
            ]
        });
        d.table(["what", "published", "here", "band", ""], rows.collect());
        d.heading("Not reproduced");
        let rows = self.misses().into_iter().map(|miss| {
            let numbers = [miss.published, miss.ours].map(|v| format!("{v:.0}"));
            vec![miss.name.to_owned(), numbers[0].clone(), numbers[1].clone()]
        });
        d.table(["what", "published", "here"], rows.collect());
        prose::said(d, "misses");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_report_names_the_misses_and_warns_of_survivors() {
        let study = Study::of(&[Figure::Fig8, Figure::Fig9, Figure::Fig10]);
        let text = study.full_report().to_text();
        for phrase in [
            "Not reproduced",
            "survivor's mean",
            "527 MHz",
            "68 to 71",
            "FAIL",
        ] {
            let wanted = !matches!(phrase, "FAIL" | "68 to 71");
            assert_eq!(text.contains(phrase), wanted, "{phrase}");
        }
        let html = study.full_report().to_html();
        assert_eq!(html.matches("<svg").count(), 3);
    }

    #[test]
    fn a_single_figure_is_reported_alone() {
        let text = Study::of(&[]).report(&[Figure::Table2], false).to_text();
        assert!(text.contains("68.33 %") && !text.contains("Fig 8"));
    }
}
