//! The node in its cluster: its lease, its partitions, statements with an unknown outcome, and the comparison of its claims
//! with the database.

pub(crate) mod assign;
pub(crate) mod compare;
pub(crate) mod join;
pub(crate) mod lease;
pub(crate) mod partitions;
pub(crate) mod unsure;
