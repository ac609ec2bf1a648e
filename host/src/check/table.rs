//! The report for people.

use super::{Report, Verdict};
use crate::report::log::escape_line;

/// Characters of one cell; the rest is cut.
const MAX_CELL: usize = 100;

/// A row a case: the verdict, the case and what came of it; below a case that failed, what it asks for.
pub fn text(report: &Report) -> String {
    let width = report
        .cases
        .iter()
        .map(|outcome| outcome.case.chars().count())
        .max()
        .unwrap_or(0);
    let mut lines = vec![format!("{} ({})", report.component.display(), report.world)];
    for outcome in &report.cases {
        let word = match outcome.verdict {
            Verdict::Passed => "ok  ",
            Verdict::Failed => "FAIL",
            Verdict::DoesNotApply => "-   ",
        };
        lines.push(format!(
            "{word}  {:<width$}  {}",
            outcome.case,
            cell(&outcome.got)
        ));
        if outcome.verdict == Verdict::Failed {
            lines.push(format!(
                "      {:<width$}  expected: {}",
                "", outcome.expected
            ));
        }
    }
    lines.push(format!(
        "{} passed, {} failed, {} do not apply",
        report.count(Verdict::Passed),
        report.count(Verdict::Failed),
        report.count(Verdict::DoesNotApply)
    ));
    lines.join("\n")
}

fn cell(text: &str) -> String {
    let line = escape_line(text);
    match line.char_indices().nth(MAX_CELL) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.into_owned(),
    }
}
