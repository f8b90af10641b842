//! Makes tables fit 80 columns, or the terminal if that is wider: texts of some columns are cut, and times are short. Ids and
//! names that commands accept are never cut. `-o json` shows everything.

use crate::output::{Output, Text};

/// Columns of the narrowest terminal that tables are made for, and of a pipe.
pub(super) const WIDTH_MIN: usize = 80;
/// Space between two columns.
pub(super) const GAP: usize = 2;

/// A column whose texts may be cut to this width, or to the width of its header.
pub(super) type Cut = (usize, usize);

/// Prints a table after cutting the texts of some columns until it fits. The column that is widest beyond its limit is cut first.
pub(super) fn table(out: Output, header: &[&str], mut rows: Vec<Vec<Text>>, cuts: &[Cut]) -> anyhow::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(Text::width).max().unwrap_or(0);
        cells.max(header[column].chars().count())
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let space = out.columns().max(WIDTH_MIN).saturating_sub(GAP * header.len().saturating_sub(1));
    let least: Vec<Cut> = cuts.iter().map(|(column, min)| (*column, (*min).max(header[*column].len()))).collect();
    let fitted = fitted(widths, space, &least);
    for row in &mut rows {
        for (column, _) in cuts {
            if let Some(cell) = row.get_mut(*column) {
                cell.cut(fitted[*column]);
            }
        }
    }
    Ok(out.table(header, rows)?)
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

/// The instants as `11-16 07:00:00`, with the year if they are of several years, and the offset that all of them have. An empty
/// text stays empty.
pub(super) fn short_times<'a>(out: Output, instants: impl IntoIterator<Item = &'a str>) -> (String, Vec<String>) {
    let shown: Vec<String> =
        instants.into_iter().map(|at| if at.is_empty() { String::new() } else { out.time(at) }).collect();
    let given: Vec<&String> = shown.iter().filter(|text| !text.is_empty()).collect();
    let same_year = given.windows(2).all(|pair| pair[0].get(..4) == pair[1].get(..4));
    let first = given.first().map(|text| offset(text)).unwrap_or_default();
    let zone = if given.iter().all(|text| offset(text) == first) { first } else { String::new() };
    let from = if same_year { 5 } else { 0 };
    let short = shown.iter().map(|text| match text.get(from..10).zip(text.get(11..19)) {
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
