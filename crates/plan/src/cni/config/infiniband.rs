//! Configuration of the plugin `ib-sriov`.

use vfleet_api::{Guid, PciAddress};

use super::fields::{read_device, read_link_state};
use super::log::{LogSettings, read_log};
use super::network::NetworkConfig;
use crate::cni::facts::LinkState;
use crate::cni::protocol::json::{KeyFault, Section};
use crate::cni::protocol::{CniArgs, CniError};
use crate::prelude::*;

/// Argument of the pod that the daemon ib-kubernetes sets.
const IB_KUBERNETES: &str = "mellanox.infiniband.app";
/// Its value when the daemon has configured the subnet manager.
const CONFIGURED: &str = "configured";
/// Length of a GUID in pairs of digits with colons.
const GUID_LENGTH: usize = 23;

/// Configuration of the plugin `ib-sriov`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfinibandConfig {
    /// PCI address of the VF, or of a PF for userspace, `deviceID`.
    pub device: PciAddress,
    /// GUID: `runtimeConfig.infinibandGUID`, else `args.cni.guid`, else `guid`, which the Go plugin documents but does not
    /// read.
    pub guid: Option<Guid>,
    /// Partition key, which the daemon ib-kubernetes reads.
    pub pkey: Option<String>,
    /// State that the PF forces on the link.
    pub link_state: Option<LinkState>,
    /// The RDMA device is moved to the pod: needs the exclusive mode of the RDMA subsystem.
    pub rdma_isolation: bool,
    /// The daemon ib-kubernetes assigns the GUID: a VF without one is an error.
    pub ib_kubernetes: bool,
    /// The device must be bound to `vfio-pci`. Otherwise this is detected.
    pub vfio: bool,
    /// Log.
    pub log: LogSettings,
}

impl InfinibandConfig {
    /// Parses the keys of the plugin.
    pub fn parse(network: &NetworkConfig, _args: &CniArgs) -> Result<Self, CniError> {
        Self::check_ipam(network)?;
        let root = network.root();
        let config = Self {
            device: read_device(&root)?,
            guid: read_guid(&root)?,
            pkey: root.text("pkey")?.map(ToOwned::to_owned),
            link_state: read_link_state(&root)?,
            rdma_isolation: root.flag("rdmaIsolation")?.unwrap_or_default(),
            ib_kubernetes: root.flag("ibKubernetesEnabled")?.unwrap_or_default(),
            vfio: root.flag("vfioPciMode")?.unwrap_or_default(),
            log: read_log(&root)?,
        };
        if config.ib_kubernetes {
            check_ib_kubernetes(&root)?;
        }
        Ok(config)
    }

    /// Checks the IPAM plugin, for ADD and DEL: there is no DHCP on InfiniBand.
    pub fn check_ipam(network: &NetworkConfig) -> Result<(), CniError> {
        match &network.ipam {
            Some(ipam) if ipam.plugin == "dhcp" => {
                Err(CniError::invalid_config("ipam.type", "dhcp is not supported on InfiniBand")
                    .with_details("use another IPAM plugin, for example whereabouts"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the arguments of the pod, `args.cni`, whose keys are case sensitive and whose values may be of any type.
fn pod_args<'a>(root: &Section<'a>) -> Result<Option<Section<'a>>, KeyFault> {
    root.section("args")?.map_or(Ok(None), |args| args.section("cni"))
}

/// Reads the GUID from the first source that has one.
fn read_guid(root: &Section<'_>) -> Result<Option<Guid>, KeyFault> {
    let parse = |key, text: Option<&str>| text.map(|text| parse_guid(key, text)).transpose();
    let runtime = root.section("runtimeConfig")?;
    let by_runtime = runtime.as_ref().map(|section| section.text("infinibandGUID")).transpose()?.flatten();
    if by_runtime.is_some() {
        return parse("runtimeConfig.infinibandGUID", by_runtime);
    }
    let by_pod = pod_args(root)?.map(|args| args.exact_text("guid")).transpose()?.flatten();
    if by_pod.is_some() {
        return parse("args.cni.guid", by_pod);
    }
    parse("guid", root.text("guid")?)
}

/// Parses eight pairs of digits with colons that are not all zero.
fn parse_guid(key: &str, text: &str) -> Result<Guid, KeyFault> {
    let guid = Some(text).filter(|text| text.len() == GUID_LENGTH).and_then(|text| text.parse::<Guid>().ok());
    match guid {
        Some(Guid(bytes)) if bytes == [0; 8] => Err(KeyFault::new(key, "a GUID must not be zero")),
        Some(guid) => Ok(guid),
        None => Err(KeyFault::new(key, format!("{text:?} is not a GUID such as 02:00:00:00:00:aa:00:02"))),
    }
}

/// Checks that the daemon has configured the pod.
fn check_ib_kubernetes(root: &Section<'_>) -> Result<(), CniError> {
    let value = pod_args(root)?.map(|args| args.exact_text(IB_KUBERNETES)).transpose()?.flatten();
    if value == Some(CONFIGURED) {
        return Ok(());
    }
    let problem =
        value.map_or_else(|| "is missing".to_owned(), |value| format!("{value:?} is not {CONFIGURED:?}"));
    Err(CniError::invalid_config(&format!("args.cni.{IB_KUBERNETES}"), problem).with_details(
        "ibKubernetesEnabled needs the daemon ib-kubernetes, which sets this argument of the pod",
    ))
}

#[cfg(test)]
mod tests;
