//! What can be wrong with a network.

use thiserror::Error;

use super::decide::reasons;
use crate::prelude::*;

/// Why no NAD can be made of a network. Each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkFault {
    /// Only networks beside the operator may reach into other namespaces.
    #[error(
        "networkNamespace may only be set on networks in {operator_namespace}, the operator's namespace; remove it, or \
         create the network there"
    )]
    NamespaceNotAllowed {
        /// The operator's namespace.
        operator_namespace: String,
    },
    /// A text is not the JSON that it should be.
    #[error("{field} must be {wanted}, but at line {line}, column {column}: {problem}")]
    Json {
        /// The field, as the API calls it.
        field: &'static str,
        /// What it should be, with an example.
        wanted: &'static str,
        /// What is wrong.
        problem: String,
        /// Where, from 1.
        line: usize,
        /// Where in that line, from 1.
        column: usize,
    },
    /// It would not fit into one object of the API.
    #[error(
        "its configuration would be longer than {limit} bytes; shorten ipam, capabilities or metaPlugins"
    )]
    TooLong {
        /// The most that is possible.
        limit: usize,
    },
    /// Another version of the API wrote it.
    #[error("it cannot be read: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
}

impl NetworkFault {
    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        reasons::INVALID
    }
}
