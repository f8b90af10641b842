//! The built binary from outside.

mod cron;
mod help;
mod settings;
mod support;
