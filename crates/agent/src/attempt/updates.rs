//! Updates of the node state, of the Node object and of the filter for reported cards.

use std::sync::Arc;

use kube::runtime::watcher::Event;
use vfleet_api::{SriovNetworkNodeState, SriovNetworkNodeStateSpec};
use vfleet_host::NodeContext;
use vfleet_plan::bridge_resources::BridgeResourceMode;
use vfleet_plan::{NicIds, needs_ovs};

use super::digest::NodeStateDigest;
use super::{Agent, RepairCounter};
use crate::node_object::NodeContextState;
use crate::single_object::is_older;

impl Agent {
    /// Handles a watch event of the node state. Returns whether it calls for an attempt.
    pub(crate) fn handle_event(&mut self, event: Event<SriovNetworkNodeState>) -> bool {
        match event {
            Event::Init => {
                self.is_listed = false;
                false
            }
            Event::InitApply(state) => {
                self.is_listed = true;
                self.replace_state(state)
            }
            // Older than the response to one of our own writes, which contained all of it.
            Event::Apply(state) if self.is_outdated(&state) => false,
            Event::Apply(state) => self.replace_state(state),
            Event::InitDone if self.is_listed => false,
            Event::InitDone | Event::Delete(_) => {
                let node = &self.config.node;
                tracing::info!(node, "no node state: waiting for the operator to create it");
                (self.state, self.digest) = (None, None);
                // The machine is not read without a node state.
                self.publish_unreadable();
                false
            }
        }
    }

    fn is_outdated(&self, state: &SriovNetworkNodeState) -> bool {
        let version = |state: &SriovNetworkNodeState| state.metadata.resource_version.clone();
        let stored = self.state.as_deref().and_then(version);
        is_older(version(state).as_deref(), stored.as_deref())
    }

    /// Stores the node state, and returns whether it calls for an attempt. Our own writes do not, since the digest
    /// contains them; nor does a drain that progresses, before it is complete.
    fn replace_state(&mut self, state: SriovNetworkNodeState) -> bool {
        let new = NodeStateDigest::of(&state);
        let previous = self.digest.as_ref();
        let is_relevant = previous.is_none_or(|previous| !self.is_still_waiting(previous, &new, &state));
        if previous.map(|previous| &previous.spec) != Some(&new.spec) {
            self.failures = 0;
            self.repairs = RepairCounter::default();
            self.failed_optional_steps.clear();
        }
        self.store_state(state);
        is_relevant
    }

    /// Stores the node state without its managed fields, which are not used here and are as large as the rest.
    pub(super) fn store_state(&mut self, mut state: SriovNetworkNodeState) {
        state.metadata.managed_fields = None;
        self.state = Some(Arc::new(state));
    }

    /// Stores the platform and the addresses of the node, or the reason why they are not known yet.
    pub(crate) fn set_node_context(&mut self, context: &NodeContextState) {
        match context {
            Ok(context) => {
                let addresses: Vec<_> = context.addresses.iter().map(ToString::to_string).collect();
                tracing::debug!(
                    node = self.config.node,
                    has_lone_vfs = context.platform.has_lone_vfs(),
                    addresses = addresses.join(","),
                    "read the Node object"
                );
                self.node_context = Some(context.clone());
                let settings = &mut self.config.settings;
                settings.has_lone_vfs = context.platform.has_lone_vfs();
                settings.node_addresses.clone_from(&context.addresses);
                self.node_unknown_reason = None;
            }
            Err(reason) => self.node_unknown_reason = Some(reason.clone()),
        }
    }

    /// Tells the host what the cluster knows about the node, and whether Open vSwitch is read: the plan for `spec`
    /// depends on it, or its bridges are reported.
    pub(super) fn pass_node_context(&self, spec: &SriovNetworkNodeStateSpec) {
        if let Some(context) = &self.node_context {
            let reports_bridges = self.config.bridge_resources == BridgeResourceMode::Reported;
            let reads_ovs = reports_bridges || needs_ovs(spec, &self.config.settings.options);
            self.config.host.set_node_context(&NodeContext { reads_ovs, ..context.clone() });
        }
    }

    /// Stores the kinds of cards that are reported. Returns whether they changed.
    pub(crate) fn set_nic_filter(&mut self, nic_filter: Option<NicIds>) -> bool {
        let has_changed = !self.nic_filter_known || self.nic_filter != nic_filter;
        (self.nic_filter, self.nic_filter_known) = (nic_filter, true);
        has_changed
    }
}
