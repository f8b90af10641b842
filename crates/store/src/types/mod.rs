//! The parameters and results of the store's transactions.

mod limits;
mod nodes;
mod queries;
mod requests;
mod runs;
mod ticks;

pub use limits::*;
pub use nodes::*;
pub use queries::*;
pub use requests::*;
pub use runs::*;
pub use ticks::*;
