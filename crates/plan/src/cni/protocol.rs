//! Protocol of CNI: errors, commands and the environment of a plugin.

mod error;

pub use error::{CniError, ErrorCode};
