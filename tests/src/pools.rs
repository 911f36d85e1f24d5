//! Pools and their conditions.

use serde_json::Value;
use vfleet_api::SriovNetworkPoolConfig;

use crate::cluster::Cluster;
use crate::objects::condition;

impl Cluster {
    /// Applies a pool of this name.
    pub async fn apply_pool(&self, name: &str, spec: &Value) {
        self.apply("SriovNetworkPoolConfig", "sriovnetworkpoolconfigs", name, spec).await;
    }

    /// Waits until a condition of the pool has this status and reason; returns its message.
    pub async fn expect_pool(&self, pool: &str, type_: &str, status: &str, reason: &str) -> String {
        let find = |pool: &SriovNetworkPoolConfig| {
            condition(pool.status.as_ref().and_then(|status| status.conditions.as_ref()), type_)
        };
        let matches = |pool: &SriovNetworkPoolConfig| {
            let (found_status, found_reason, _) = find(pool);
            (found_status.as_str(), found_reason.as_str()) == (status, reason)
        };
        find(&self.wait_for(pool, &format!("{type_} {status} {reason}"), matches).await).2
    }
}
