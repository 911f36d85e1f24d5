//! stub
pub(crate) const GO_WEBHOOK_CONFIGURATIONS: &[&str] =
    &["sriov-operator-webhook-config", "network-resources-injector-config", "operator-webhook-config"];
