//! Pods of a test bed: network namespaces, and the settings of VFs that pods get.

use vfleet_api::VfRef;
use vfleet_plan::cni::facts::VfSettings;

use super::observed::ObservedLink;
use super::testbed::{CaseError, CaseResult};

/// Independent reader of network namespaces and of settings of VFs, which never uses the facts of a host.
pub trait PodObserver {
    /// Reads all interfaces in a namespace.
    fn links_in(&self, namespace: &str) -> Result<Vec<ObservedLink>, CaseError>;
    /// Reads the settings that a PF stores for its VF.
    fn vf_settings(&self, vf: VfRef) -> Result<VfSettings, CaseError>;
}

/// Administrator of network namespaces, as a container runtime is. No namespace exists when a case starts.
pub trait PodAdministrator {
    /// Creates a namespace. Returns its path.
    fn create_namespace(&self, name: &str) -> Result<String, CaseError>;
    /// Deletes a namespace. The kernel returns its interfaces some time later.
    fn delete_namespace(&self, name: &str) -> CaseResult;
    /// Creates a virtual interface in a namespace.
    fn add_virtual_link(&self, namespace: &str, link: &str) -> CaseResult;
    /// Adds an alternative name to the interface of a VF.
    fn add_vf_alt_name(&self, vf: VfRef, name: &str) -> CaseResult;
}
