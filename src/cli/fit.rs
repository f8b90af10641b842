//! Makes tables fit 80 columns, or the terminal if that is wider: texts of some columns are cut, and times are short. Ids and
//! names that commands accept are never cut. `-o json` shows everything.

use crate::output::{Output, Text};

/// Tables fit this many columns in a pipe and in every terminal that is not wider.
pub(super) const WIDTH_MIN: usize = 80;
/// Space between two columns.
pub(super) const GAP: usize = 2;

/// A column whose texts may be cut to this width, or to the width of its header.
pub(super) type Cut = (usize, usize);

/// Prints a table after cutting the texts of some columns until it fits. Each step cuts the
/// column that exceeds its limit most.
pub(super) fn table(out: Output, header: &[&str], rows: Vec<Vec<Text>>, cuts: &[Cut]) -> anyhow::Result<()> {
    Layout { header: header.iter().map(ToString::to_string).collect(), rows, cuts: cuts.to_vec() }.print(out)
}

/// Prints the first layout that fits, else the last layout. The caller orders them from wide to narrow: later layouts have
/// fewer columns, shorter times, or smaller limits.
pub(super) fn first_that_fits(out: Output, layouts: impl IntoIterator<Item = Layout>) -> anyhow::Result<()> {
    let mut last = None;
    for layout in layouts {
        if layout.fits(out) {
            return layout.print(out);
        }
        last = Some(layout);
    }
    last.map_or(Ok(()), |layout| layout.print(out))
}

/// A table, and how far the texts of its columns may be cut.
#[derive(Debug)]
pub(super) struct Layout {
    header: Vec<String>,
    rows: Vec<Vec<Text>>,
    cuts: Vec<Cut>,
}

impl Layout {
    /// A table of these columns. Leaves out columns without a text.
    pub(super) fn of(columns: Vec<Column>) -> Self {
        let is_shown = |column: &Column| column.is_kept || column.cells.iter().any(|cell| cell.width() > 0);
        let columns: Vec<Column> = columns.into_iter().filter(is_shown).collect();
        let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
        let row = |index| columns.iter().filter_map(|column| column.cells.get(index).cloned()).collect();
        let cuts = columns.iter().enumerate().filter_map(|(index, column)| Some((index, column.least?)));
        Self {
            cuts: cuts.collect(),
            rows: (0..rows).map(row).collect(),
            header: columns.into_iter().map(|column| column.header).collect(),
        }
    }

    /// The widths of the columns after all allowed cuts, and whether they fit.
    fn fitted(&self, out: Output) -> (Vec<usize>, bool) {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(Text::width).max().unwrap_or(0);
            cells.max(self.header[column].chars().count())
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let space = out.columns().max(WIDTH_MIN).saturating_sub(GAP * self.header.len().saturating_sub(1));
        let least: Vec<Cut> =
            self.cuts.iter().map(|(column, min)| (*column, (*min).max(self.header[*column].len()))).collect();
        let fitted = fitted(widths, space, &least);
        let fits = fitted.iter().sum::<usize>() <= space;
        (fitted, fits)
    }

    fn fits(&self, out: Output) -> bool {
        self.fitted(out).1
    }

    fn print(mut self, out: Output) -> anyhow::Result<()> {
        let (fitted, _) = self.fitted(out);
        for row in &mut self.rows {
            for (column, _) in &self.cuts {
                if let Some(cell) = row.get_mut(*column) {
                    cell.cut(fitted[*column]);
                }
            }
        }
        let header: Vec<&str> = self.header.iter().map(String::as_str).collect();
        Ok(out.table(&header, self.rows)?)
    }
}

/// A column, and the least width to which its texts may be cut.
#[derive(Debug)]
pub(super) struct Column {
    header: String,
    cells: Vec<Text>,
    least: Option<usize>,
    /// Whether the column is shown even if no cell has a text.
    is_kept: bool,
}

impl Column {
    pub(super) fn whole(header: impl Into<String>, cells: impl IntoIterator<Item = Text>) -> Self {
        Self { header: header.into(), cells: cells.into_iter().collect(), least: None, is_kept: false }
    }

    pub(super) fn cut(header: impl Into<String>, least: usize, cells: impl IntoIterator<Item = Text>) -> Self {
        Self { least: Some(least), ..Self::whole(header, cells) }
    }

    /// Keeps the column also if it has no text.
    pub(super) fn kept(self) -> Self {
        Self { is_kept: true, ..self }
    }
}

fn fitted(mut widths: Vec<usize>, space: usize, cuts: &[Cut]) -> Vec<usize> {
    while widths.iter().sum::<usize>() > space {
        let excess = |(column, min): &&Cut| widths[*column].saturating_sub(*min);
        match cuts.iter().filter(|cut| excess(cut) > 0).max_by_key(excess) {
            Some((column, _)) => widths[*column] -= 1,
            None => break,
        }
    }
    widths
}

/// How precise short times are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Precision {
    Seconds,
    Minutes,
}

/// The common offset of the instants, and each instant as `11-16 07:00:00`. They show the year if the instants are in several
/// years. An empty text stays empty.
pub(super) fn short_times<'a>(out: Output, instants: impl IntoIterator<Item = &'a str>) -> (String, Vec<String>) {
    times_to(Precision::Seconds, out, instants)
}

/// The same with this precision: `11-16 07:00`.
pub(super) fn times_to<'a>(
    precision: Precision,
    out: Output,
    instants: impl IntoIterator<Item = &'a str>,
) -> (String, Vec<String>) {
    let shown: Vec<String> =
        instants.into_iter().map(|at| if at.is_empty() { String::new() } else { out.time(at) }).collect();
    let given: Vec<&String> = shown.iter().filter(|text| !text.is_empty()).collect();
    let same_year = given.windows(2).all(|pair| pair[0].get(..4) == pair[1].get(..4));
    let first = given.first().map(|text| offset(text)).unwrap_or_default();
    let zone = if given.iter().all(|text| offset(text) == first) { first } else { String::new() };
    let from = if same_year { 5 } else { 0 };
    let end = if precision == Precision::Minutes { 16 } else { 19 };
    let short = shown.iter().map(|text| match text.get(from..10).zip(text.get(11..end)) {
        Some((date, time)) => format!("{date} {time}"),
        None => text.clone(),
    });
    (zone, short.collect())
}

fn offset(text: &str) -> String {
    match text.get(19..).and_then(|rest| rest.find(['Z', '+', '-']).map(|at| &rest[at..])) {
        Some("Z") => " UTC".to_owned(),
        Some(offset) => format!(" {offset}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_cut_until_they_fit_and_never_below_their_limit() {
        assert_eq!(fitted(vec![10, 30, 20], 100, &[(1, 5)]), [10, 30, 20], "it fits");
        assert_eq!(fitted(vec![10, 30, 20], 50, &[(1, 5)]), [10, 20, 20]);
        assert_eq!(fitted(vec![10, 30, 20], 40, &[(1, 5), (2, 5)]), [10, 15, 15], "the widest is cut first");
        assert_eq!(fitted(vec![10, 30, 20], 12, &[(1, 5), (2, 6)]), [10, 5, 6], "no further than the limits");
    }
}
