//! Code of named mutants ([`Mutant`]). The simulator must detect each of them. Without the feature `mutants` of the domain none
//! is on, and nothing here is executed.

use std::sync::Arc;

use everytick_domain::mutant::Mutant;
use everytick_store::JobTicks;

use crate::{dispatch::deliver, shared::Shared};

/// `DispatchBeforeCommit`: sends runs before the commit that records and claims them.
pub(crate) fn send_early(shared: &Arc<Shared>, batch: &[JobTicks]) {
    if !Mutant::DispatchBeforeCommit.is_on() {
        return;
    }
    let now = shared.clock.now();
    let claimed: Vec<_> = {
        let mut memory = shared.memory();
        let rows = batch.iter().flat_map(|ticks| ticks.rows.iter().map(|row| (ticks.job, row)));
        rows.filter(|(_, row)| row.born_claimed)
            .filter_map(|(job, row)| memory.claim_tick(job, &row.tick, now))
            .collect()
    };
    for claimed in claimed {
        deliver::start(shared, claimed);
    }
}
