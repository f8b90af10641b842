//! Which of the known words the user probably meant.

/// The known word that differs from `word` in the fewest letters, if it is close enough to be a typing error.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = folded(word);
    let close = |known: &'a str| {
        let lower = self::folded(known);
        let part = folded.len() >= PART_MIN && (lower.contains(&folded) || folded.contains(&lower));
        let distance = distance(&lower, &folded);
        let near = distance <= 1 + folded.chars().count() / LETTERS_PER_ERROR && distance < known.chars().count();
        (near || (part && lower.len() >= PART_MIN)).then_some((distance, known))
    };
    known.into_iter().filter_map(close).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// A word of fewer letters may have one error. Each group of this many letters allows one more.
const LETTERS_PER_ERROR: usize = 5;
/// If one word contains the other, both must have at least this many letters to match.
const PART_MIN: usize = 4;

fn folded(word: &str) -> String {
    word.trim().to_lowercase().replace(['-', ' '], "_")
}

/// The edit distance: how many letters must be added, removed or changed. Swapping two neighbours counts as one.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let changed = rows[i][j] + usize::from(a[i] != b[j]);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_the_word_and_another_word_finds_none() {
        let known = ["nightly-report", "hourly", "timezone", "schedule", "http", "a"];
        for (word, meant) in [
            ("nightly-reprot", Some("nightly-report")),
            ("nightly_report", Some("nightly-report")),
            ("nightly", Some("nightly-report")),
            ("Hourly", Some("hourly")),
            ("houry", Some("hourly")),
            ("schedul", Some("schedule")),
            ("htttp", Some("http")),
            ("time_zone", Some("timezone")),
            ("daily", None),
            ("nope", None),
            ("b", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn the_distance_counts_letters() {
        for (a, b, letters) in [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("kitten", "sitting", 3), ("é", "e", 1)] {
            assert_eq!(distance(a, b), letters, "{a} {b}");
            assert_eq!(distance(b, a), letters, "{b} {a}");
        }
    }
}
