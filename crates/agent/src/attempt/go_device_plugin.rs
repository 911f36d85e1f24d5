//! Holding back the external Go device plugin while VFs are created and removed.

use kube::runtime::events::EventType;
use vfleet_api::SriovNetworkNodeState;
use vfleet_host::format_error_chain;
use vfleet_plan::{Plan, blocks_plugin_start};

use super::Agent;

impl Agent {
    /// Ends the plugin before devices change. Not for a retry: a plugin that ends every minute is of no use, and the
    /// operator restarts it if the VFs differ in the end.
    pub(super) async fn hold_go_plugin_back(&mut self, state: &SriovNetworkNodeState, plan: &Plan) {
        let Some(plugin) = &self.go_plugin else { return };
        if self.failures > 0 || !blocks_plugin_start(plan) {
            return;
        }
        self.go_plugin_may_start = false;
        if let Err(error) = plugin.hold_back().await {
            let error = format_error_chain(&error);
            tracing::warn!(
                node = self.config.node,
                error,
                "cannot end the device plugin before VFs change; going on"
            );
            let note = format!(
                "cannot end the device plugin before VFs change: {error}; it may offer devices that do not exist until \
                 it restarts"
            );
            self.writer.emit_event(state, EventType::Warning, "DevicePluginNotStopped", &note).await;
        }
    }

    /// Waits until the plugin waits for a release that it may get; forever if the agent does not hold it back.
    pub(crate) async fn wait_for_go_plugin(&self) {
        match &self.go_plugin {
            Some(plugin) if self.go_plugin_may_start => plugin.wait_for_waiting_pod().await,
            _ => std::future::pending().await,
        }
    }

    /// Releases the plugin.
    pub(crate) async fn release_go_plugin(&mut self) {
        if let Some(plugin) = &mut self.go_plugin
            && let Err(error) = plugin.release().await
        {
            let error = format_error_chain(&error);
            tracing::warn!(
                node = self.config.node,
                error,
                "cannot release the device plugin, will be retried"
            );
        }
    }
}
