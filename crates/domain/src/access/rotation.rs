//! Rotation of tokens. A token is replaced at most once, so the tokens made from one token form a chain. A thief can rotate
//! a stolen token only once. The rotation by its owner is then refused, which reveals the theft. A revocation ends the rest
//! of the chain.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ids::TokenId, invalid::Invalid, time::Span};

/// Maximum number of valid tokens in one chain. A rotation with an overlap adds one for the time of the overlap.
pub const CHAIN_VALID_MAX: usize = 3;
/// The minimum age at which a token made by a rotation may be rotated again.
pub const ROTATED_AGAIN_AFTER: Span = Span::minutes(1);

/// Which tokens were made from which by a rotation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rotations {
    from: BTreeMap<TokenId, TokenId>,
    to: BTreeMap<TokenId, Vec<TokenId>>,
}

impl FromIterator<(TokenId, TokenId)> for Rotations {
    /// Pairs of a token and the token that it replaces.
    fn from_iter<I: IntoIterator<Item = (TokenId, TokenId)>>(pairs: I) -> Self {
        let mut all = Self::default();
        for (token, from) in pairs {
            all.from.insert(token, from);
            all.to.entry(from).or_default().push(token);
        }
        all
    }
}

/// A rotation that a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// The token to replace.
    pub token: TokenId,
    /// How long ago it was created.
    pub age: Span,
    pub overlap: Span,
}

impl Rotations {
    /// The tokens made from this one, directly or by further rotations, the nearest first.
    #[must_use]
    pub fn successors(&self, token: TokenId) -> Vec<TokenId> {
        let (mut found, mut seen) = (vec![token], BTreeSet::from([token]));
        let mut at = 0;
        while let Some(one) = found.get(at).copied() {
            at += 1;
            // A damaged row could name its own successor.
            found.extend(self.to.get(&one).into_iter().flatten().copied().filter(|next| seen.insert(*next)));
        }
        found.split_off(1)
    }

    /// The tokens from which this one was made, the nearest first.
    fn predecessors(&self, token: TokenId) -> Vec<TokenId> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::from([token]));
        let mut at = token;
        while let Some(from) = self.from.get(&at).copied().filter(|from| seen.insert(*from)) {
            found.push(from);
            at = from;
        }
        found
    }

    /// Checks that a token may be rotated. `is_valid` returns whether a token is valid now.
    pub fn check(&self, asked: Rotation, is_valid: impl Fn(TokenId) -> bool) -> Result<(), Invalid> {
        let refused = |message: String| Err(Invalid::new("", message));
        let Rotation { token, age, overlap } = asked;
        if let Some(next) = self.to.get(&token).and_then(|next| next.first()) {
            return refused(format!(
                "the token was rotated already, to {next}; use that token. If its owner did not rotate it, revoke it: that \
                 also ends the tokens made from it"
            ));
        }
        if self.from.contains_key(&token) && age < ROTATED_AGAIN_AFTER {
            return refused(format!(
                "the token was made by a rotation {age} ago; rotate it {ROTATED_AGAIN_AFTER} after that at the earliest"
            ));
        }
        let before = self.predecessors(token).into_iter().filter(|token| is_valid(*token)).count();
        let own = usize::from(!overlap.is_zero());
        if before + own + 1 > CHAIN_VALID_MAX {
            return refused(format!(
                "after the rotation, {} tokens of this chain of rotations would be valid, but at most {CHAIN_VALID_MAX} may be; \
                 wait for the end of an overlap, revoke an earlier token, or write an overlap of 0s",
                before + own + 1
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::DbTime;

    fn id(n: u8) -> TokenId {
        TokenId::new(DbTime::EPOCH, [n; 10])
    }

    /// The chain 1, 2, ..., and the token 9, which no rotation made.
    fn chain(length: u8) -> Rotations {
        (2..=length).map(|n| (id(n), id(n - 1))).collect()
    }

    fn asked(n: u8, overlap: Span) -> Rotation {
        Rotation { token: id(n), age: ROTATED_AGAIN_AFTER, overlap }
    }

    #[test]
    fn a_token_is_rotated_once() {
        let all = chain(2);
        assert!(all.check(asked(1, Span::days(1)), |_| true).unwrap_err().message.contains("was rotated already"));
        assert_eq!(all.check(asked(2, Span::days(1)), |_| true), Ok(()));
        assert_eq!(all.check(asked(9, Span::days(1)), |_| true), Ok(()));
        // The successor is revoked: the token stays replaced.
        assert!(all.check(asked(1, Span::days(1)), |token| token == id(1)).is_err());
    }

    #[test]
    fn a_token_made_by_a_rotation_is_not_rotated_at_once() {
        let young = Rotation { age: Span::seconds(59), ..asked(2, Span::days(1)) };
        assert!(chain(2).check(young, |_| true).unwrap_err().message.contains("1m"));
        assert_eq!(chain(1).check(Rotation { token: id(1), ..young }, |_| true), Ok(()));
    }

    #[test]
    fn a_chain_has_a_limited_number_of_valid_tokens() {
        let all = chain(3);
        let none = Span::seconds(0);
        for (valid, overlap, allowed) in [
            (&[1, 2][..], Span::days(1), false),
            (&[1, 2], none, true),
            (&[2], Span::days(1), true),
            (&[], Span::days(1), true),
        ] {
            let checked = all.check(asked(3, overlap), |token| valid.iter().any(|n| id(*n) == token));
            assert_eq!(checked.is_ok(), allowed, "{valid:?} {overlap}");
        }
    }

    #[test]
    fn the_successors_are_the_rest_of_the_chain() {
        assert_eq!(chain(4).successors(id(2)), [id(3), id(4)]);
        assert_eq!(chain(4).successors(id(9)), []);
        let damaged: Rotations = [(id(1), id(2)), (id(2), id(1))].into_iter().collect();
        assert_eq!(damaged.successors(id(1)), [id(2)]);
        assert_eq!(damaged.predecessors(id(1)), [id(2)]);
    }
}
