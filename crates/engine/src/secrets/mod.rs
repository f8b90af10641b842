//! Secrets: their encryption, and the commands of operators on a database without a server.

mod import;
mod rekey;
mod vault;

pub use import::{Imported, import_inline};
pub use rekey::{Rekeyed, rekey};
pub use vault::{Sealed, Vault, check_keys};
