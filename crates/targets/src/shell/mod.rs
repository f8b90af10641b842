//! `shell`: runs a command on the node.

mod deliver;
mod orphans;
pub(crate) mod validate;

pub use deliver::{Shell, TERM_GRACE};
pub use orphans::end_orphans;
