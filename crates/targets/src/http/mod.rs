//! `http`: delivers runs to a webhook.

mod deliver;
mod dns;
mod own;
pub(crate) mod validate;

pub(crate) use deliver::is_out_of_descriptors;
pub use deliver::{RESPONSE_BYTES_MAX, RETRY_AFTER_MAX, Webhook};
pub use own::{OwnAddresses, OwnApi};
