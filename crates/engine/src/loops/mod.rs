//! The loops of a node. Each loop waits, makes one pass, and waits again; a test can make a single pass. A crash between two
//! passes, or inside one, leaves rows that the next pass reads.

pub(crate) mod accept;
pub(crate) mod backfill;
pub(crate) mod backlog;
pub(crate) mod cancel;
pub(crate) mod claim;
pub(crate) mod compare;
pub(crate) mod deliver;
pub(crate) mod detect;
pub(crate) mod expire;
pub(crate) mod flows;
pub(crate) mod hold;
pub(crate) mod load;
pub(crate) mod prune;
pub(crate) mod raise;
pub(crate) mod renew;
pub(crate) mod settle;
pub(crate) mod tick;
mod unsettled;
pub(crate) mod unsure;
pub(crate) mod watchdog;
