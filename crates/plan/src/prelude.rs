//! Names that `std` would provide in every file: the crate is `no_std`.

pub(crate) use alloc::borrow::ToOwned;
pub(crate) use alloc::collections::{BTreeMap, BTreeSet};
pub(crate) use alloc::format;
pub(crate) use alloc::string::{String, ToString};
pub(crate) use alloc::vec;
pub(crate) use alloc::vec::Vec;
