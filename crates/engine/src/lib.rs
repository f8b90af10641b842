//! Load, decide, commit. [`loops`] do what time asks, [`commands`] what people and workers ask; both meet in the tables and
//! nowhere else. Signals between them only shorten a wait.

pub mod commands;
mod hints;
pub mod live;

pub use everytick_store as store;
pub use hints::Hints;
