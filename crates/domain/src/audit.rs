//! How far the audit trail can be read without a gap. Pure.
//!
//! Rows are numbered when they are inserted and become visible when their transaction commits, so a row with a lower number can
//! appear after one with a higher number. A reader that continues after the highest number that it saw would skip such a row.
//!
//! ```text
//! look 1   numbers given up to 7, in progress: A      7 is not settled: A may have one of the numbers up to 7
//! look 2   numbers given up to 9, in progress: B      A has ended, so every row up to 7 is visible or will never be
//! ```
//!
//! A store lists a transaction from before it takes its first number until after its rows are visible. So when every transaction
//! of one look has ended, the numbers of that look are settled. A reader reads only settled numbers, in a later snapshot.

use std::collections::BTreeSet;

/// What a store shows at one moment. The number is read before the transactions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// The last number that was given to a row.
    pub given: i64,
    /// The transactions in progress that may have taken numbers.
    pub in_progress: BTreeSet<String>,
}

/// Follows one look after the other.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    settled: i64,
    awaited: Option<Look>,
}

impl Horizon {
    /// Returns the last settled number after this look.
    pub fn see(&mut self, look: Look) -> i64 {
        if look.in_progress.is_empty() {
            self.settled = look.given;
            self.awaited = None;
            return self.settled;
        }
        match &self.awaited {
            Some(awaited) if awaited.in_progress.is_disjoint(&look.in_progress) => {
                self.settled = awaited.given;
                self.awaited = Some(look);
            }
            Some(_) => {}
            None => self.awaited = Some(look),
        }
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(given: i64, in_progress: &[&str]) -> Look {
        Look { given, in_progress: in_progress.iter().map(ToString::to_string).collect() }
    }

    fn settled(looks: &[Look]) -> Vec<i64> {
        let mut horizon = Horizon::default();
        looks.iter().map(|look| horizon.see(look.clone())).collect()
    }

    #[test]
    fn without_transactions_in_progress_every_number_is_settled() {
        assert_eq!(settled(&[look(0, &[]), look(7, &[]), look(9, &[])]), [0, 7, 9]);
    }

    #[test]
    fn a_number_is_settled_when_the_transactions_of_its_look_have_ended() {
        assert_eq!(settled(&[look(7, &["a"]), look(8, &["a", "b"]), look(9, &["b"])]), [0, 0, 7]);
        assert_eq!(settled(&[look(7, &["a"]), look(9, &["b"]), look(11, &["c"]), look(12, &[])]), [0, 7, 9, 12]);
    }

    #[test]
    fn transactions_that_follow_one_another_do_not_hold_the_reader() {
        let name = |n: i64| format!("t{n}");
        let looks: Vec<Look> =
            (0..100).map(|n| Look { given: n, in_progress: [name(n), name(n + 1)].into() }).collect();
        let reached = settled(&looks);
        assert!(reached.last().is_some_and(|last| *last >= 96), "{reached:?}");
    }

    /// Every interleaving of two writers and a reader: the reader never passes a number whose row appears later.
    #[test]
    fn no_row_is_passed_before_it_is_visible() {
        // A writer: enters, takes a number, becomes visible, leaves. The reader looks: number, then transactions.
        #[derive(Clone)]
        struct State {
            given: i64,
            writers: [(u8, i64); 2],
            visible: BTreeSet<i64>,
            horizon: Horizon,
            half: Option<i64>,
            looks: u8,
        }
        fn explore(state: &State, seen: &mut usize) {
            *seen += 1;
            for n in 0..2 {
                let (step, number) = state.writers[n];
                let mut next = state.clone();
                match step {
                    0 => next.writers[n].0 = 1,
                    1 => {
                        next.given += 1;
                        next.writers[n] = (2, next.given);
                    }
                    2 => {
                        next.visible.insert(number);
                        next.writers[n].0 = 3;
                    }
                    3 => next.writers[n].0 = 4,
                    _ => continue,
                }
                explore(&next, seen);
            }
            if state.looks == 3 {
                return;
            }
            let mut next = state.clone();
            match next.half.take() {
                None => next.half = Some(next.given),
                Some(given) => {
                    let names = ["a", "b"];
                    let in_progress =
                        (0..2).filter(|n| (1..4).contains(&next.writers[*n].0)).map(|n| names[n].to_owned());
                    let settled = next.horizon.see(Look { given, in_progress: in_progress.collect() });
                    next.looks += 1;
                    assert!(
                        (1..=settled).all(|number| next.visible.contains(&number)),
                        "{settled}: {:?}",
                        next.visible
                    );
                }
            }
            explore(&next, seen);
        }
        let (horizon, visible) = (Horizon::default(), BTreeSet::new());
        let mut seen = 0;
        explore(&State { given: 0, writers: [(0, 0); 2], visible, horizon, half: None, looks: 0 }, &mut seen);
        assert!(seen > 1_000, "{seen}");
    }
}
