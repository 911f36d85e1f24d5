//! Webhook certificates with real operators, real TLS and a real API server.

use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use time::OffsetDateTime;
use vfleet_tests::admission::{
    AdmissionCluster, Replica, SECRET, SecretData, TlsProber, WriteLoad, ca_bundles, check_certificate,
    policy,
};
use vfleet_tests::plane::Plane;

/// Secret of a provided certificate.
const PROVIDED: &str = "operator-webhook-cert";
/// Environment variable that names the Secret.
const SECRET_NAME: (&str, &str) = ("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME", PROVIDED);
/// Generous: the machine that runs the tests may be busy.
const LONG: Duration = Duration::from_secs(30);
const EXPIRES: &str = "\nvfleet_webhook_certificate_expires_timestamp_seconds{} 1";

fn base64(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// Sends a write for which the API server calls the webhook.
async fn write(admission: &AdmissionCluster, vfs: usize) -> Result<(), kube::Error> {
    let policies: Api<vfleet_api::SriovNetworkNodePolicy> = admission.cluster.api();
    let parameters = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
    policies.patch("p", &parameters, &Patch::Apply(policy("p", vfs))).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_renewed_under_load_and_no_request_fails() {
    let admission = AdmissionCluster::new("rotation", Plane::Certificates).await;
    // The next certificate is trusted for 3 s before it is served, which is enough even on a busy machine.
    let lifetime = ["--webhook-certificate-lifetime", "36"];
    let replicas = ["first", "second"].map(|name| admission.start_replica(name, &lifetime, &[]));
    admission.enable().await;
    for replica in &replicas {
        admission.wait_until_serving(replica).await;
    }
    wait_for_write(&admission, 0).await;
    let (load, prober) = (WriteLoad::start(&admission), TlsProber::start(&admission).await);

    let mut last = admission.wait_for_secret("made", |now| !now.text("tls.crt").is_empty()).await;
    for _ in 0..2 {
        let before = last.text("tls.crt");
        last = admission.wait_for_secret("another one", |now| now.text("tls.crt") != before).await;
    }
    // Both replicas serve the last certificate for a while.
    prober.wait_for_more(80).await;
    let (handshakes, failed_handshakes) = prober.result();
    let (writes, failed_writes) = load.end().await;
    assert!(
        failed_writes.is_empty(),
        "{} of {writes}: {failed_writes:?}\n{}",
        failed_writes.len(),
        admission.cluster.log()
    );
    assert!(
        failed_handshakes.is_empty(),
        "{} of {handshakes}: {failed_handshakes:?}",
        failed_handshakes.len()
    );
    assert!(writes > 500 && handshakes > 200, "{writes} writes, {handshakes} handshakes");
    let counts: Vec<_> = replicas.iter().map(|replica| replica.count_requests("validate")).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}: both are called");
    assert!(counts.iter().sum::<u64>() >= writes as u64, "{counts:?} of {writes}");
    let shown = |replica: &Replica| replica.metrics().contains(EXPIRES);
    assert!(replicas.iter().all(shown), "every replica has the expiry metric");
    // At most two CAs are trusted, and no key that could sign is stored.
    assert_eq!(last.text("ca.crt").matches("BEGIN CERTIFICATE").count(), 2);
    let log = admission.cluster.log();
    assert!(!log.contains("PRIVATE KEY") && !log.contains("BEGIN CERTIFICATE"), "secrets are in the log");
}

#[tokio::test]
async fn a_damaged_secret_is_repaired() {
    let admission = AdmissionCluster::new("healing", Plane::Certificates).await;
    let _operator = admission.start_replica("operator", &[], &[]);
    admission.enable().await;
    wait_for_write(&admission, 0).await;
    let load = WriteLoad::start(&admission);
    let garbage = base64("garbage");
    let other = Authority::new();
    let (chain, key) = other.certificate(&["127.0.0.1"], 3600);
    let damages = [
        json!(null),
        json!({ "generations.json": null }),
        json!({ "tls.key": garbage }),
        json!({ "ca.crt": garbage }),
        json!({ "tls.crt": base64(&chain), "tls.key": base64(&key) }),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let before = admission.wait_for_secret("there", |now| !now.text("tls.crt").is_empty()).await;
        admission.patch_secret(SECRET, damage.clone()).await;
        let is_new = |now: &SecretData| {
            let chain = now.text("tls.crt");
            chain.contains("CERTIFICATE")
                && chain != before.text("tls.crt")
                && !now.text("generations.json").is_empty()
                && chain != self::chain(&damage)
        };
        let repaired = admission.wait_for_secret("made again", is_new).await;
        let is_published = |now: &ValidatingWebhookConfiguration| {
            ca_bundles(now).iter().all(|bundle| *bundle == repaired.text("ca.crt"))
        };
        admission.wait_for_validating("the new bundle", is_published).await;
        admission.expect_condition("Serving").await;
        write(&admission, number + 1).await.unwrap();
    }
    // The previous certificate was served and trusted until the new one was.
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), admission.cluster.log());
    assert!(!admission.cluster.log().contains("PRIVATE KEY"));
}

fn chain(damage: &Value) -> String {
    serde_json::from_value::<ByteString>(damage["tls.crt"].clone())
        .map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        .unwrap_or_default()
}

/// Waits until the API server has loaded a new configuration, for which there is no event.
async fn wait_for_write(admission: &AdmissionCluster, vfs: usize) {
    let written = async { while write(admission, vfs + 1).await.is_err() {} };
    tokio::time::timeout(LONG, written)
        .await
        .unwrap_or_else(|_| panic!("writes still fail\n{}", admission.cluster.log()));
}

#[tokio::test]
async fn without_the_secret_the_last_certificate_stays_in_use() {
    let admission = AdmissionCluster::new("no-secret", Plane::Certificates).await;
    let _operator = admission.start_replica("operator", &[], &[]);
    admission.enable().await;
    let secrets: Api<Secret> = admission.cluster.api();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let message = admission.expect_condition("NoCertificateSecret").await;
    assert!(message.contains(SECRET) && message.contains("apply the manifests"), "{message}");
    write(&admission, 3).await.unwrap();
    admission.cluster.install().unwrap();
    admission.expect_condition("Serving").await;
    write(&admission, 4).await.unwrap();
}

#[tokio::test]
async fn foreign_changes_of_a_configuration_are_reverted() {
    let admission = AdmissionCluster::new("bundle", Plane::Certificates).await;
    let _operator = admission.start_replica("operator", &[], &[]);
    admission.enable().await;
    let trusted = admission.wait_for_secret("there", |_| true).await.text("ca.crt");
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(admission.cluster.admin_client());
    let name = admission.configuration_name("vfleet-admission");
    let mut changed = configurations.get(&name).await.unwrap();
    for webhook in changed.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(base64(&Authority::new().certificate));
    }
    let start = Instant::now();
    let changed = configurations.replace(&name, &PostParams::default(), &changed).await.unwrap();
    let is_right =
        |now: &ValidatingWebhookConfiguration| ca_bundles(now).iter().all(|bundle| *bundle == trusted);
    let right = admission.wait_for_validating("the right bundle", is_right).await;
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    assert_ne!(right.resource_version(), changed.resource_version());
    // Also an added condition that never matches, and an added webhook.
    let mut changed = right.clone();
    let webhooks = changed.webhooks.as_mut().unwrap();
    let never = json!({ "name": "never", "expression": "false" });
    webhooks[0].match_conditions.as_mut().unwrap().push(serde_json::from_value(never).unwrap());
    let more = ValidatingWebhook { name: "another.one.io".to_owned(), ..webhooks[0].clone() };
    webhooks.push(more);
    configurations.replace(&name, &PostParams::default(), &changed).await.unwrap();
    let is_right = |now: &ValidatingWebhookConfiguration| now.webhooks == right.webhooks;
    let right = admission.wait_for_validating("without what was added", is_right).await;
    admission.expect_condition("Serving").await;
    // Applying the manifests again changes nothing, and the operator does not write again and again.
    admission.cluster.install().unwrap();
    wait_for_write(&admission, 2).await;
    let still = configurations.get(&name).await.unwrap();
    assert_eq!(still.webhooks, right.webhooks);
    assert_eq!(still.metadata.generation, right.metadata.generation);
}

#[tokio::test]
async fn a_provided_certificate_is_served_while_it_is_valid() {
    let admission = AdmissionCluster::new("provided", Plane::Certificates).await;
    let operator = admission.start_replica("operator", &[], &[SECRET_NAME]);
    admission.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = admission.expect_condition("NoCertificateSecret").await;
    assert!(message.contains(PROVIDED) && message.contains("127.0.0.1"), "{message}");

    let authority = Authority::new();
    let secret = |chain: &str, key: &str, bundle: Option<&str>| json!({ "tls.crt": base64(chain), "tls.key": base64(key), "ca.crt": bundle.map(base64) });
    let secrets: Api<Secret> = admission.cluster.api();
    let (chain, key) = authority.certificate(&["127.0.0.1"], 3600);
    create_provided(&admission, json!({})).await;
    admission.patch_secret(PROVIDED, secret(&chain, &key, None)).await;
    let message = admission.expect_condition("CertificateNotTrusted").await;
    assert!(message.contains("ca.crt"), "{message}");
    admission.patch_secret(PROVIDED, secret(&chain, &key, Some(&authority.certificate))).await;
    admission.expect_condition("Serving").await;
    wait_for_write(&admission, 1).await;

    for (names, seconds, word) in [(["127.0.0.1"], -5, "xpired"), (["10.1.2.3"], 3600, "not valid for")] {
        let (chain, key) = authority.certificate(&names, seconds);
        admission.patch_secret(PROVIDED, secret(&chain, &key, Some(&authority.certificate))).await;
        let message = admission.expect_condition("CertificateNotTrusted").await;
        assert!(message.contains(word) && message.contains(PROVIDED), "{word}: {message}");
        let (chain, key) = authority.certificate(&["127.0.0.1"], 3600);
        admission.patch_secret(PROVIDED, secret(&chain, &key, Some(&authority.certificate))).await;
        admission.expect_condition("Serving").await;
        check_certificate(admission.service.port(), &authority.certificate).await.unwrap();
        wait_for_write(&admission, 2).await;
    }
    assert!(operator.metrics().contains(EXPIRES));
    let message = admission.expect_condition("Serving").await;
    assert!(message.contains("soon: put a new one"), "it expires within an hour: {message}");
    operator.program.kill();

    // The CA can also be set in the environment, encoded twice in base64 as charts do.
    admission.patch_secret(PROVIDED, json!({ "ca.crt": null })).await;
    let twice = encoded(&encoded(&authority.certificate));
    let more = [SECRET_NAME, ("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_CA_CRT", &twice)];
    let _operator = admission.start_replica("operator", &[], &more);
    wait_for_write(&admission, 3).await;
    admission.configure(json!({ "enableOperatorWebhook": true, "enableInjector": true })).await;
    admission.wait_for_injector("filled", |now| now.webhooks.iter().flatten().count() == 1).await;
    admission.expect_condition("Serving").await;

    // Disabled webhooks are removed even while the certificate is missing.
    secrets.delete(PROVIDED, &DeleteParams::default()).await.unwrap();
    admission.expect_condition("NoCertificateSecret").await;
    admission.configure(json!({ "enableOperatorWebhook": true, "enableInjector": false })).await;
    admission.wait_for_injector("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    admission.expect_condition("NoCertificateSecret").await;
}

/// Creates the Secret of a provided certificate.
async fn create_provided(admission: &AdmissionCluster, data: Value) {
    let secret = json!({ "metadata": { "name": PROVIDED }, "data": data });
    let secrets: Api<Secret> = admission.cluster.api();
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

fn provided(authority: &Authority, seconds: i64) -> Value {
    let (chain, key) = authority.certificate(&["127.0.0.1"], seconds);
    json!({ "tls.crt": base64(&chain), "tls.key": base64(&key), "ca.crt": base64(&authority.certificate) })
}

/// Starts operators with a provided certificate that expires in this number of seconds.
async fn start_with_provided(
    admission: &AdmissionCluster,
    names: &[&str],
    authority: &Authority,
    seconds: i64,
) -> Vec<Replica> {
    create_provided(admission, provided(authority, seconds)).await;
    let replicas = names.iter().map(|name| admission.start_replica(name, &[], &[SECRET_NAME])).collect();
    admission.configure(json!({ "enableOperatorWebhook": true })).await;
    admission.wait_for_validating("refusing", can_refuse).await;
    admission.expect_condition("Serving").await;
    replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provided_certificate_of_another_ca_is_served_without_a_gap() {
    let admission = AdmissionCluster::new("provided-next", Plane::Certificates).await;
    let [old, new] = [Authority::new(), Authority::new()];
    let _replicas = start_with_provided(&admission, &["first", "second"], &old, 3600).await;
    wait_for_write(&admission, 1).await;
    let load = WriteLoad::start(&admission);
    admission.patch_secret(PROVIDED, provided(&new, 3600)).await;
    let trusts = |now: &ValidatingWebhookConfiguration, authority: &Authority| {
        ca_bundles(now).iter().all(|bundle| bundle.contains(authority.certificate.trim()))
    };
    admission.wait_for_validating("both are trusted", |now| trusts(now, &old) && trusts(now, &new)).await;
    let is_served =
        async { while check_certificate(admission.service.port(), &new.certificate).await.is_err() {} };
    tokio::time::timeout(LONG * 2, is_served).await.expect("the new certificate is served");

    // A new certificate without its CA is not used.
    let mut without_ca = provided(&Authority::new(), 3600);
    without_ca["ca.crt"] = json!(null);
    admission.patch_secret(PROVIDED, without_ca).await;
    let message = admission.expect_condition("CertificateNotTrusted").await;
    assert!(message.contains("ca.crt"), "{message}");
    check_certificate(admission.service.port(), &new.certificate).await.unwrap();
    admission.wait_for_validating("still refusing", can_refuse).await;
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), admission.cluster.log());
}

#[tokio::test]
async fn an_expired_provided_certificate_blocks_no_writes() {
    let admission = AdmissionCluster::new("provided-end", Plane::Certificates).await;
    let authority = Authority::new();
    let _replicas = start_with_provided(&admission, &["operator"], &authority, 20).await;
    admission.wait_for_validating("letting through", |now| !can_refuse(now)).await;
    let message = admission.expect_condition("CertificateNotTrusted").await;
    assert!(message.contains("xpired"), "{message}");
    wait_for_write(&admission, 1).await;
    admission.patch_secret(PROVIDED, provided(&authority, 3600)).await;
    admission.wait_for_validating("refusing again", can_refuse).await;
    admission.expect_condition("Serving").await;
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_is_served_later() {
    let admission = AdmissionCluster::new("early", Plane::Certificates).await;
    let authority = Authority::new();
    let (chain, key) = authority.certificate_from(&["127.0.0.1"], 8, 3600);
    let data = json!({
        "tls.crt": base64(&chain), "tls.key": base64(&key), "ca.crt": base64(&authority.certificate),
    });
    create_provided(&admission, data).await;
    let _operator = admission.start_replica("operator", &[], &[SECRET_NAME]);
    admission.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = admission.expect_condition("CertificateNotTrusted").await;
    assert!(message.contains("not valid yet"), "{message}");
    admission.expect_condition("Serving").await;
    wait_for_write(&admission, 1).await;
}

/// The API server cannot reach the operator, so writes in its namespace are refused.
#[tokio::test]
async fn unreachable_webhooks_can_be_disabled() {
    let admission = AdmissionCluster::new("exit", Plane::Certificates).await;
    let operator = admission.start_replica("operator", &[], &[]);
    admission.remove_endpoint(&operator);
    admission.enable().await;
    let refused = async { while write(&admission, 2).await.is_ok() {} };
    tokio::time::timeout(LONG, refused).await.expect("a write without a response is refused");
    admission.configure(json!({ "enableOperatorWebhook": false, "enableInjector": true })).await;
    admission.wait_for_validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    admission.configure(json!({ "enableOperatorWebhook": true, "enableInjector": true })).await;
    admission.wait_for_validating("filled", can_refuse).await;

    // The same without an operator.
    operator.program.kill();
    let name = admission.configuration_name("vfleet-admission");
    let patch =
        ["patch", "validatingwebhookconfiguration", &name, "--type=merge", "-p", r#"{"webhooks":null}"#];
    let output = admission.cluster.plane().kubectl(&patch).unwrap();
    assert!(output.status.success(), "{}", output.stderr);
    wait_for_write(&admission, 3).await;
}

/// One configuration was deleted: the others are still updated, also in a renewal.
#[tokio::test]
async fn a_missing_configuration_does_not_block_the_others() {
    let admission = AdmissionCluster::new("missing", Plane::Certificates).await;
    let _operator = admission.start_replica("operator", &["--webhook-certificate-lifetime", "24"], &[]);
    admission.enable().await;
    wait_for_write(&admission, 0).await;
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(admission.cluster.admin_client());
    injectors
        .delete(&admission.configuration_name("vfleet-injector"), &DeleteParams::default())
        .await
        .unwrap();
    let message = admission.expect_condition("NoConfiguration").await;
    assert!(message.contains("vfleet-injector") && message.contains("apply the manifests"), "{message}");
    let load = WriteLoad::start(&admission);
    let before = admission.wait_for_secret("there", |_| true).await.text("tls.crt");
    let renewed = admission.wait_for_secret("another one", |now| now.text("tls.crt") != before).await;
    let is_published = |now: &ValidatingWebhookConfiguration| {
        ca_bundles(now).iter().all(|bundle| *bundle == renewed.text("ca.crt"))
    };
    admission.wait_for_validating("the new bundle", is_published).await;
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), admission.cluster.log());
    admission.cluster.install().unwrap();
    admission.expect_condition("Serving").await;
}

/// Returns whether writes are refused if no operator answers.
fn can_refuse(configuration: &ValidatingWebhookConfiguration) -> bool {
    configuration.webhooks.iter().flatten().any(|webhook| webhook.failure_policy.as_deref() == Some("Fail"))
}

fn encoded(text: &str) -> String {
    json!(base64(text)).as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_ca_bundle_of_cert_manager_is_kept() {
    let admission = AdmissionCluster::new("cert-manager", Plane::Certificates).await;
    let environment = [SECRET_NAME, ("ADMISSION_CONTROLLERS_CERTIFICATES_CERT_MANAGER_ENABLED", "true")];
    let authority = Authority::new();
    let (chain, key) = authority.certificate(&["127.0.0.1"], 3600);
    let data = json!({ "tls.crt": base64(&chain), "tls.key": base64(&key) });
    create_provided(&admission, data).await;
    let _operator = admission.start_replica("operator", &[], &environment);
    admission.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = admission.expect_condition("CertificateNotTrusted").await;
    assert!(message.contains("cert-manager"), "{message}");

    // Like cert-manager: an update of all configurations with its annotation.
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(admission.cluster.admin_client());
    let as_injector = PostParams { field_manager: Some("cainjector".to_owned()), ..Default::default() };
    let name = admission.configuration_name("vfleet-admission");
    let mut found = configurations.get(&name).await.unwrap();
    let from = format!("{}/{PROVIDED}", admission.cluster.namespace());
    assert_eq!(found.annotations().get("cert-manager.io/inject-ca-from"), Some(&from));
    assert!(!can_refuse(&found), "no CA is trusted yet");
    write(&admission, 1).await.unwrap();
    for webhook in found.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(base64(&authority.certificate));
    }
    configurations.replace(&name, &as_injector, &found).await.unwrap();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(admission.cluster.admin_client());
    let mut found = mutating.get(&name).await.unwrap();
    for webhook in found.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(base64(&authority.certificate));
    }
    mutating.replace(&name, &as_injector, &found).await.unwrap();
    admission.expect_condition("Serving").await;
    admission.wait_for_validating("refusing", can_refuse).await;
    wait_for_write(&admission, 1).await;

    // A foreign change is reverted, and the bundle of cert-manager stays.
    let patch = json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30 }]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    configurations.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    let is_right = |now: &ValidatingWebhookConfiguration| {
        now.webhooks.iter().flatten().all(|webhook| webhook.timeout_seconds != Some(30))
    };
    let right = admission.wait_for_validating("the right time", is_right).await;
    assert!(ca_bundles(&right).iter().all(|bundle| *bundle == authority.certificate));

    // With a certificate of an untrusted CA no write is refused.
    let (chain, key) = Authority::new().certificate(&["127.0.0.1"], 3600);
    admission.patch_secret(PROVIDED, json!({ "tls.crt": base64(&chain), "tls.key": base64(&key) })).await;
    admission.wait_for_validating("letting through", |now| !can_refuse(now)).await;
    admission.expect_condition("CertificateNotTrusted").await;

    // The webhooks can be removed, although cert-manager owns a part of them.
    admission.configure(json!({ "enableOperatorWebhook": false })).await;
    admission.wait_for_validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    admission.expect_condition("Disabled").await;
}

/// CA that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Returns a certificate that expires in this number of seconds, and its key.
    fn certificate(&self, names: &[&str], seconds: i64) -> (String, String) {
        self.certificate_from(names, -3600, seconds)
    }

    /// Returns a certificate that is valid from and until these seconds from now.
    fn certificate_from(&self, names: &[&str], from: i64, seconds: i64) -> (String, String) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = OffsetDateTime::now_utc() + time::Duration::seconds(from);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
