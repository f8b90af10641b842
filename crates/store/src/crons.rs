//! The compiled cron expressions of this process. A job is compiled when it is created or edited and each time its row is read.
//! All stores share one cache, so that jobs with the same expression share its compiled form.

use std::sync::LazyLock;

use everytick_domain::schedule::CronCache;

pub static CRONS: LazyLock<CronCache> = LazyLock::new(CronCache::default);
