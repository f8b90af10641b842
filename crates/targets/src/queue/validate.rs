//! Checks the name of a queue. Pure.

use everytick_domain::{invalid::Invalid, queue::check_queue, target::QueueTarget};

pub(crate) fn validate_queue(queue: &QueueTarget) -> Vec<Invalid> {
    check_queue(&queue.name).err().map(|message| Invalid::new("name", message)).into_iter().collect()
}
