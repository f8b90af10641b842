//! Sentences for wrong input. An error names the value and what would be right. The texts of serde, clap and the operating
//! system are replaced, because they name types and numbers that a user does not know.

mod json;
mod nearest;
mod os;
mod value;

pub(crate) use self::nearest::distance;
pub use self::{
    json::json_syntax,
    nearest::nearest,
    os::{os_error, without_number},
    value::{Accepts, ReadError, wrong_value},
};
