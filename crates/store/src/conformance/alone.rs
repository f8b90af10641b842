//! Rules only for a store that one process uses alone.

use super::{Bench, nodes::lives};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_alone {
    ($open:path) => {
        $crate::conformance_group! { $open, alone:
            joining_ends_the_leases_of_other_nodes,
        }
    };
}

pub async fn joining_ends_the_leases_of_other_nodes(bench: &Bench) {
    let old = bench.join("a", 1).await;
    let new = bench.join("b", 2).await;
    assert!(!lives(bench, &old).await);
    assert!(lives(bench, &new).await);
}
