//! File with keys of the plugins of Open vSwitch that all networks of a node share.

use crate::cni::config::network::NetworkConfig;
use crate::cni::facts::FileFacts;
use crate::cni::protocol::json::{Json, KeyFault, Section};
use crate::cni::protocol::{CniError, ErrorCode};
use crate::prelude::*;

/// Paths of the file, of which the first that exists counts, after the one that the network names.
const PATHS: [&str; 2] = ["/etc/kubernetes/cni/net.d/ovs.d/ovs.conf", "/etc/cni/net.d/ovs.d/ovs.conf"];

/// File with keys of the plugins of Open vSwitch.
#[derive(Clone, Debug, PartialEq)]
pub struct OvsFlatFile {
    path: String,
    document: Json,
}

/// Returns the paths of the file for a network. The first that exists is read.
pub fn flat_file_paths(network: &NetworkConfig) -> Result<Vec<String>, CniError> {
    let first = network.root().text("configuration_path")?;
    if let Some(path) = first.filter(|path| !path.starts_with('/')) {
        return Err(CniError::invalid_config(
            "configuration_path",
            format!("{path:?} is not an absolute path"),
        ));
    }
    Ok(first.into_iter().chain(PATHS).map(ToOwned::to_owned).collect())
}

impl OvsFlatFile {
    /// Parses the file; `None` if it does not exist.
    pub fn parse(file: &FileFacts) -> Result<Option<Self>, CniError> {
        let (path, content) = match file {
            FileFacts::Missing { .. } => return Ok(None),
            FileFacts::Unreadable { path, reason } => {
                return Err(CniError::new(ErrorCode::Io, format!("cannot read {path}: {reason}")));
            }
            FileFacts::Present { path, content } => (path, content),
        };
        let invalid = |problem: String| CniError::invalid_config("configuration_path", problem);
        let document: Json =
            serde_json::from_str(content).map_err(|error| invalid(format!("{path} is not JSON: {error}")))?;
        if Section::new("", &document).is_none() {
            return Err(invalid(format!("{path} is not a JSON object")));
        }
        Ok(Some(Self { path: path.clone(), document }))
    }

    /// Reads a value. Its fault names the file.
    pub(super) fn read<T>(
        &self,
        read: impl Fn(&Section<'_>) -> Result<Option<T>, KeyFault>,
    ) -> Result<Option<T>, KeyFault> {
        let root = Section::new("", &self.document).unwrap_or_default();
        read(&root)
            .map_err(|KeyFault { key, problem }| KeyFault::new(key, format!("{problem} (in {})", self.path)))
    }
}
