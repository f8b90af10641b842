// The transactions of workers that are equal for both databases; see `both/mod.rs`.

mod claims;
mod open_claims;
mod store;
mod superseded;
