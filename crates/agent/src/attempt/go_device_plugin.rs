//! Holding the external Go device plugin back while VFs come and go.

use kube::runtime::events::EventType;
use vfleet_api::SriovNetworkNodeState;
use vfleet_host::with_causes;
use vfleet_plan::{Plan, holds_plugin_back};

use super::Agent;

impl Agent {
    /// Ends the plugin before devices come and go. Not for another try of what failed: a plugin that ends every minute is
    /// of no use, and the operator lets it start again when the VFs are others in the end.
    pub(super) async fn hold_go_plugin_back(&mut self, state: &SriovNetworkNodeState, plan: &Plan) {
        let Some(plugin) = &self.go_plugin else { return };
        if self.failures > 0 || !holds_plugin_back(plan) {
            return;
        }
        self.go_plugin_may_start = false;
        if let Err(error) = plugin.hold_back().await {
            let note =
                format!("the device plugin is not held back while VFs change: {}", with_causes(&error));
            tracing::warn!(node = self.config.node, error = note, "going on without");
            self.speaker.event(state, EventType::Warning, "DevicePluginNotHeldBack", &note).await;
        }
    }

    /// Waits until the plugin waits for a release that it may have; for ever where there is none.
    pub(crate) async fn go_plugin_waits(&self) {
        match &self.go_plugin {
            Some(plugin) if self.go_plugin_may_start => plugin.waits().await,
            _ => std::future::pending().await,
        }
    }

    /// Releases the plugin.
    pub(crate) async fn release_go_plugin(&mut self) {
        if let Some(plugin) = &mut self.go_plugin
            && let Err(error) = plugin.release().await
        {
            let error = with_causes(&error);
            tracing::warn!(node = self.config.node, error, "the device plugin still waits, will try again");
        }
    }
}
