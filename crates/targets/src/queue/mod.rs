//! `queue`: workers claim the runs; no node delivers them.

pub(crate) mod validate;
