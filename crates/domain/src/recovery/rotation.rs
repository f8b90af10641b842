//! Tenant rotation: the backlog of one tenant does not delay another tenant.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::TenantId;

/// Orders the items round-robin by tenant: one of each tenant, then the next of each. Within a tenant, the order stays. The
/// first tenant is the one after `after`, which was served last.
#[must_use]
pub fn in_turn<T>(items: Vec<T>, tenant: impl Fn(&T) -> TenantId, after: Option<TenantId>) -> Vec<T> {
    let count = items.len();
    let mut waiting: BTreeMap<(bool, TenantId), VecDeque<T>> = BTreeMap::new();
    for item in items {
        let tenant = tenant(&item);
        waiting.entry((after.is_some_and(|after| tenant <= after), tenant)).or_default().push_back(item);
    }
    let mut ordered = Vec::with_capacity(count);
    while !waiting.is_empty() {
        ordered.extend(waiting.values_mut().filter_map(VecDeque::pop_front));
        waiting.retain(|_, items| !items.is_empty());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(items: &[(i32, char)], after: Option<i32>) -> String {
        let ordered = in_turn(items.to_vec(), |(tenant, _)| TenantId::from_raw(*tenant), after.map(TenantId::from_raw));
        ordered.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn tenants_rotate_and_each_keeps_its_own_order() {
        let items = [(1, 'a'), (1, 'b'), (1, 'c'), (2, 'p'), (2, 'q'), (3, 'x')];
        for (after, expected) in
            [(None, "apxbqc"), (Some(1), "pxaqbc"), (Some(2), "xapbqc"), (Some(3), "apxbqc"), (Some(9), "apxbqc")]
        {
            assert_eq!(order(&items, after), expected, "after {after:?}");
        }
        assert_eq!(order(&[], Some(1)), "");
    }

    proptest! {
        /// With one item served at a time, every tenant is served once before any is served twice.
        #[test]
        fn no_tenant_waits_longer_than_one_round(backlogs in proptest::collection::vec(1_usize..40, 1..12)) {
            let mut items: Vec<i32> = Vec::new();
            for (tenant, backlog) in (1..).zip(&backlogs) {
                items.extend(std::iter::repeat_n(tenant, *backlog));
            }
            let mut last = None;
            let mut served = Vec::new();
            for _ in 0..backlogs.len() {
                let next = in_turn(items.clone(), |tenant| TenantId::from_raw(*tenant), last)[0];
                items.remove(items.iter().position(|item| *item == next).unwrap());
                last = Some(TenantId::from_raw(next));
                served.push(next);
            }
            served.sort_unstable();
            prop_assert_eq!(served, (1..).take(backlogs.len()).collect::<Vec<i32>>());
        }
    }
}
