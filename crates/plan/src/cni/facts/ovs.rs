//! Facts of Open vSwitch, as its database describes it to an attachment.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use vfleet_api::ParseError;

use super::HolderNamespace;
use crate::prelude::*;

/// Owner in the `external_ids` of ports and mirrors: the same as that of the Go plugin, so that each of them can remove the
/// ports of the other.
pub const OVS_OWNER: &str = "ovs-cni.network.kubevirt.io";
/// Key of the owner in `external_ids`.
pub const OWNER_KEY: &str = "owner";
/// Key of the path of the pod's namespace in the `external_ids` of a port.
pub const NAMESPACE_KEY: &str = "contNetns";
/// Key of the name of the interface in the pod in the `external_ids` of a port.
pub const INTERFACE_KEY: &str = "contIface";
/// Key of the pod's UID in the `external_ids` of a port.
pub const POD_UID_KEY: &str = "contPodUid";

/// Socket of the database of Open vSwitch. Text: `unix:PATH`, `tcp:HOST:PORT` or `tcp:[ADDRESS]:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum OvsSocket {
    /// Path of a UNIX socket of the host.
    Unix(String),
    /// Name or address of a server, and its port.
    Tcp(String, u16),
}

impl OvsSocket {
    /// Path of the socket of a usual installation.
    pub const DEFAULT_PATH: &str = "/var/run/openvswitch/db.sock";
}

impl Default for OvsSocket {
    fn default() -> Self {
        Self::Unix(Self::DEFAULT_PATH.to_owned())
    }
}

impl fmt::Display for OvsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl FromStr for OvsSocket {
    type Err = ParseError;

    /// Parses `PATH`, `unix:PATH`, `unix://PATH` or `tcp:HOST:PORT`. The path is absolute.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parsed = match text.strip_prefix("tcp:") {
            Some(server) => parse_server(server),
            None => parse_path(text),
        };
        parsed.ok_or_else(|| ParseError::new(text, "unix:PATH with an absolute path, or tcp:HOST:PORT"))
    }
}

fn parse_path(text: &str) -> Option<OvsSocket> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
    let is_valid = path.starts_with('/')
        && !path.starts_with("//")
        && !path.ends_with('/')
        && !path.contains(char::is_control);
    is_valid.then(|| OvsSocket::Unix(path.to_owned()))
}

fn parse_server(text: &str) -> Option<OvsSocket> {
    let (host, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| is_number && *port > 0)?;
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(OvsSocket::Tcp(address.to_string(), port));
    }
    let is_name = host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    is_name.then(|| OvsSocket::Tcp(host.to_owned(), port))
}

impl From<OvsSocket> for String {
    fn from(socket: OvsSocket) -> Self {
        socket.to_string()
    }
}

impl TryFrom<String> for OvsSocket {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

/// Open vSwitch on one socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum OvsSwitchFacts {
    /// The database does not answer.
    Down {
        /// Reason.
        reason: String,
    },
    /// The database answers.
    Running {
        /// Bridges, by name.
        bridges: Vec<OvsSwitchBridge>,
    },
}

/// Bridge of Open vSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvsSwitchBridge {
    /// Name.
    pub name: String,
    /// Ports, by name.
    pub ports: Vec<OvsSwitchPort>,
    /// Mirrors, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<OvsSwitchMirror>,
}

/// Port of a bridge of Open vSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvsSwitchPort {
    /// Name.
    pub name: String,
    /// Column external_ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub external_ids: BTreeMap<String, String>,
    /// Column vlan_mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_mode: Option<String>,
    /// Column tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<u16>,
    /// Column trunks.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub trunks: BTreeSet<u16>,
    /// Interfaces, by name. A port with several of them is a bond.
    pub interfaces: Vec<OvsSwitchInterface>,
    /// State of the namespace whose path is in `external_ids`. Read only if an interface of the port has an error, or is the
    /// representor that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<HolderNamespace>,
}

impl OvsSwitchPort {
    /// Returns whether a CNI plugin created the port.
    pub fn is_owned(&self) -> bool {
        self.external_ids.get(OWNER_KEY).is_some_and(|owner| owner == OVS_OWNER)
    }

    /// Returns whether `external_ids` has all these entries.
    pub fn has_ids(&self, ids: &BTreeMap<String, String>) -> bool {
        ids.iter().all(|(key, value)| self.external_ids.get(key) == Some(value))
    }
}

/// Interface of a port of Open vSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvsSwitchInterface {
    /// Name.
    pub name: String,
    /// Type; empty for `system`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// Number of the OpenFlow port; -1 after an error, `None` while ovs-vswitchd has not configured the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ofport: Option<i64>,
    /// Error that ovs-vswitchd reports for the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Observed state of the link: `up` or `down`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<String>,
}

/// Mirror of a bridge of Open vSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OvsSwitchMirror {
    /// Name.
    pub name: String,
    /// Column external_ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub external_ids: BTreeMap<String, String>,
    /// Names of the ports whose received frames are mirrored (`select_src_port`).
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub sources: BTreeSet<String>,
    /// Names of the ports whose sent frames are mirrored (`select_dst_port`).
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub destinations: BTreeSet<String>,
    /// Name of the port that gets the mirrored frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The mirror has other selections or another output: `select_all`, `select_vlan`, `output_vlan`.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub has_other_use: bool,
}

impl OvsSwitchMirror {
    /// Returns whether a CNI plugin created the mirror.
    pub fn is_owned(&self) -> bool {
        self.external_ids.get(OWNER_KEY).is_some_and(|owner| owner == OVS_OWNER)
    }

    /// Returns whether nothing uses the mirror.
    pub fn is_unused(&self) -> bool {
        self.sources.is_empty()
            && self.destinations.is_empty()
            && self.output.is_none()
            && !self.has_other_use
    }
}
