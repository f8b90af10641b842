//! The engine from outside, on the simulated store.

mod sim;
