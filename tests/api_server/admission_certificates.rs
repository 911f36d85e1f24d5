//! The certificates of the webhooks look after themselves: real operators, real TLS, a real API server.

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
use vfleet_tests::door::{Contents, Door, Load, Prober, Replica, SECRET, accepts, bundles, policy};
use vfleet_tests::plane::Plane;

const PROVIDED: &str = "operator-webhook-cert";
/// Generous: the machine that runs the tests may be busy.
const LONG: Duration = Duration::from_secs(30);
const EXPIRES: &str = "\nvfleet_webhook_certificate_expires_timestamp_seconds{} 1";

fn base64(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// Whether a write that the API server has to ask about goes through.
async fn write(door: &Door, vfs: usize) -> Result<(), kube::Error> {
    let policies: Api<vfleet_api::SriovNetworkNodePolicy> = door.cluster.api();
    let parameters = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
    policies.patch("p", &parameters, &Patch::Apply(policy("p", vfs))).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_renewed_under_load_and_no_request_fails() {
    let door = Door::new("rotation", Plane::Certificates).await;
    // The next one is trusted for 3 s before it is served: also a machine that is busy sees it in time.
    let lifetime = ["--webhook-certificate-lifetime", "36"];
    let replicas = ["first", "second"].map(|name| door.replica(name, &lifetime, &[]));
    door.open().await;
    for replica in &replicas {
        door.served_by(replica).await;
    }
    wait_for_write(&door, 0).await;
    let (load, prober) = (Load::start(&door), Prober::start(&door).await);

    let mut last = door.secret("made", |now| !now.text("tls.crt").is_empty()).await;
    for _ in 0..2 {
        let before = last.text("tls.crt");
        last = door.secret("another one", |now| now.text("tls.crt") != before).await;
    }
    // What was promoted last is served by both for a while.
    prober.more(80).await;
    let (handshakes, failed_handshakes) = prober.result();
    let (writes, failed_writes) = load.end().await;
    assert!(
        failed_writes.is_empty(),
        "{} of {writes}: {failed_writes:?}\n{}",
        failed_writes.len(),
        door.cluster.log()
    );
    assert!(
        failed_handshakes.is_empty(),
        "{} of {handshakes}: {failed_handshakes:?}",
        failed_handshakes.len()
    );
    assert!(writes > 500 && handshakes > 200, "{writes} writes, {handshakes} handshakes");
    let asked: Vec<_> = replicas.iter().map(|replica| replica.asked("validate")).collect();
    assert!(asked.iter().all(|asked| *asked > 0), "{asked:?}: both are asked");
    assert!(asked.iter().sum::<u64>() >= writes as u64, "{asked:?} of {writes}");
    let shown = |replica: &Replica| replica.metrics().contains(EXPIRES);
    assert!(replicas.iter().all(shown), "every replica shows when its certificate ends");
    // Two authorities at most are trusted at any time, and no key that could sign is kept.
    assert_eq!(last.text("ca.crt").matches("BEGIN CERTIFICATE").count(), 2);
    let log = door.cluster.log();
    assert!(!log.contains("PRIVATE KEY") && !log.contains("BEGIN CERTIFICATE"), "secrets are in the log");
}

#[tokio::test]
async fn what_somebody_breaks_in_the_secret_is_made_again() {
    let door = Door::new("healing", Plane::Certificates).await;
    let _operator = door.replica("operator", &[], &[]);
    door.open().await;
    wait_for_write(&door, 0).await;
    let load = Load::start(&door);
    let rubbish = base64("rubbish");
    let other = Authority::new();
    let (chain, key) = other.certificate(&["127.0.0.1"], 3600);
    let damages = [
        json!(null),
        json!({ "generations.json": null }),
        json!({ "tls.key": rubbish }),
        json!({ "ca.crt": rubbish }),
        json!({ "tls.crt": base64(&chain), "tls.key": base64(&key) }),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let before = door.secret("there", |now| !now.text("tls.crt").is_empty()).await;
        door.put(SECRET, damage.clone()).await;
        let is_new = |now: &Contents| {
            let chain = now.text("tls.crt");
            chain.contains("CERTIFICATE")
                && chain != before.text("tls.crt")
                && !now.text("generations.json").is_empty()
                && chain != self::chain(&damage)
        };
        let healed = door.secret("made again", is_new).await;
        let is_out = |now: &ValidatingWebhookConfiguration| {
            bundles(now).iter().all(|bundle| *bundle == healed.text("ca.crt"))
        };
        door.validating("the new bundle", is_out).await;
        door.admission("Serving").await;
        write(&door, number + 1).await.unwrap();
    }
    // What was served before was served and trusted until the next one was.
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), door.cluster.log());
    assert!(!door.cluster.log().contains("PRIVATE KEY"));
}

fn chain(damage: &Value) -> String {
    serde_json::from_value::<ByteString>(damage["tls.crt"].clone())
        .map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        .unwrap_or_default()
}

/// The API server sees a new configuration a moment after it was written, and no event says when.
async fn wait_for_write(door: &Door, vfs: usize) {
    let written = async { while write(door, vfs + 1).await.is_err() {} };
    tokio::time::timeout(LONG, written)
        .await
        .unwrap_or_else(|_| panic!("nothing can be written\n{}", door.cluster.log()));
}

#[tokio::test]
async fn without_the_secret_what_is_served_goes_on_and_somebody_is_told() {
    let door = Door::new("no-secret", Plane::Certificates).await;
    let _operator = door.replica("operator", &[], &[]);
    door.open().await;
    let secrets: Api<Secret> = door.cluster.api();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let message = door.admission("NoCertificateSecret").await;
    assert!(message.contains(SECRET) && message.contains("apply the manifests"), "{message}");
    write(&door, 3).await.unwrap();
    door.cluster.install().unwrap();
    door.admission("Serving").await;
    write(&door, 4).await.unwrap();
}

#[tokio::test]
async fn a_bundle_that_somebody_changes_is_put_right() {
    let door = Door::new("bundle", Plane::Certificates).await;
    let _operator = door.replica("operator", &[], &[]);
    door.open().await;
    let trusted = door.secret("there", |_| true).await.text("ca.crt");
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(door.cluster.administrator());
    let name = door.name("vfleet-admission");
    let mut changed = configurations.get(&name).await.unwrap();
    for webhook in changed.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(base64(&Authority::new().certificate));
    }
    let start = Instant::now();
    let changed = configurations.replace(&name, &PostParams::default(), &changed).await.unwrap();
    let is_right =
        |now: &ValidatingWebhookConfiguration| bundles(now).iter().all(|bundle| *bundle == trusted);
    let right = door.validating("the right bundle", is_right).await;
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    assert_ne!(right.resource_version(), changed.resource_version());
    // So is what somebody adds: a condition that never holds, and a webhook.
    let mut changed = right.clone();
    let webhooks = changed.webhooks.as_mut().unwrap();
    let never = json!({ "name": "never", "expression": "false" });
    webhooks[0].match_conditions.as_mut().unwrap().push(serde_json::from_value(never).unwrap());
    let more = ValidatingWebhook { name: "another.one.io".to_owned(), ..webhooks[0].clone() };
    webhooks.push(more);
    configurations.replace(&name, &PostParams::default(), &changed).await.unwrap();
    let is_right = |now: &ValidatingWebhookConfiguration| now.webhooks == right.webhooks;
    let right = door.validating("without what was added", is_right).await;
    door.admission("Serving").await;
    // The shipped manifest, applied again, changes nothing of it, and nothing is written over and over.
    door.cluster.install().unwrap();
    wait_for_write(&door, 2).await;
    let still = configurations.get(&name).await.unwrap();
    assert_eq!(still.webhooks, right.webhooks);
    assert_eq!(still.metadata.generation, right.metadata.generation);
}

#[tokio::test]
async fn a_certificate_that_somebody_provides_is_served_as_long_as_it_is_good() {
    let door = Door::new("provided", Plane::Certificates).await;
    let environment = [("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME", PROVIDED)];
    let operator = door.replica("operator", &[], &environment);
    door.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = door.admission("NoCertificateSecret").await;
    assert!(message.contains(PROVIDED) && message.contains("127.0.0.1"), "{message}");

    let authority = Authority::new();
    let secret = |chain: &str, key: &str, bundle: Option<&str>| json!({ "tls.crt": base64(chain), "tls.key": base64(key), "ca.crt": bundle.map(base64) });
    let secrets: Api<Secret> = door.cluster.api();
    let (chain, key) = authority.certificate(&["127.0.0.1"], 3600);
    let empty = Secret {
        metadata: kube::api::ObjectMeta { name: Some(PROVIDED.to_owned()), ..Default::default() },
        ..Default::default()
    };
    secrets.create(&PostParams::default(), &empty).await.unwrap();
    door.put(PROVIDED, secret(&chain, &key, None)).await;
    let message = door.admission("CertificateNotTrusted").await;
    assert!(message.contains("ca.crt"), "{message}");
    door.put(PROVIDED, secret(&chain, &key, Some(&authority.certificate))).await;
    door.admission("Serving").await;
    wait_for_write(&door, 1).await;

    for (names, seconds, word) in [(["127.0.0.1"], -5, "xpired"), (["10.1.2.3"], 3600, "not valid for")] {
        let (chain, key) = authority.certificate(&names, seconds);
        door.put(PROVIDED, secret(&chain, &key, Some(&authority.certificate))).await;
        let message = door.admission("CertificateNotTrusted").await;
        assert!(message.contains(word) && message.contains(PROVIDED), "{word}: {message}");
        let (chain, key) = authority.certificate(&["127.0.0.1"], 3600);
        door.put(PROVIDED, secret(&chain, &key, Some(&authority.certificate))).await;
        door.admission("Serving").await;
        accepts(door.service.port(), &authority.certificate).await.unwrap();
        wait_for_write(&door, 2).await;
    }
    assert!(operator.metrics().contains(EXPIRES));
    let message = door.admission("Serving").await;
    assert!(message.contains("soon: put another one"), "it ends within an hour: {message}");
    operator.program.kill();

    // Whom to trust can also come by the environment, in base64 twice as charts do it.
    door.put(PROVIDED, json!({ "ca.crt": null })).await;
    let twice = encoded(&encoded(&authority.certificate));
    let more = [environment[0], ("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_CA_CRT", &twice)];
    let _operator = door.replica("operator", &[], &more);
    wait_for_write(&door, 3).await;
    door.configure(json!({ "enableOperatorWebhook": true, "enableInjector": true })).await;
    door.injector("filled", |now| now.webhooks.iter().flatten().count() == 1).await;
    door.admission("Serving").await;

    // What is switched off goes also while the certificate is in trouble.
    secrets.delete(PROVIDED, &DeleteParams::default()).await.unwrap();
    door.admission("NoCertificateSecret").await;
    door.configure(json!({ "enableOperatorWebhook": true, "enableInjector": false })).await;
    door.injector("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    door.admission("NoCertificateSecret").await;
}

fn provided(authority: &Authority, seconds: i64) -> Value {
    let (chain, key) = authority.certificate(&["127.0.0.1"], seconds);
    json!({ "tls.crt": base64(&chain), "tls.key": base64(&key), "ca.crt": base64(&authority.certificate) })
}

/// With operators that serve a provided certificate, which ends in so many seconds.
async fn with_provided(door: &Door, names: &[&str], authority: &Authority, seconds: i64) -> Vec<Replica> {
    let secret = json!({ "metadata": { "name": PROVIDED }, "data": provided(authority, seconds) });
    let secrets: Api<Secret> = door.cluster.api();
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let environment = [("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME", PROVIDED)];
    let replicas = names.iter().map(|name| door.replica(name, &[], &environment)).collect();
    door.configure(json!({ "enableOperatorWebhook": true })).await;
    door.validating("refusing", can_refuse).await;
    door.admission("Serving").await;
    replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provided_certificate_of_another_authority_comes_without_a_gap() {
    let door = Door::new("provided-next", Plane::Certificates).await;
    let [old, new] = [Authority::new(), Authority::new()];
    let _replicas = with_provided(&door, &["first", "second"], &old, 3600).await;
    wait_for_write(&door, 1).await;
    let load = Load::start(&door);
    door.put(PROVIDED, provided(&new, 3600)).await;
    let trusts = |now: &ValidatingWebhookConfiguration, authority: &Authority| {
        bundles(now).iter().all(|bundle| bundle.contains(authority.certificate.trim()))
    };
    door.validating("both are trusted", |now| trusts(now, &old) && trusts(now, &new)).await;
    let is_served = async { while accepts(door.service.port(), &new.certificate).await.is_err() {} };
    tokio::time::timeout(LONG * 2, is_served).await.expect("the next one is served");

    // Renewed by somebody who forgets whom to trust for it: it is not taken.
    let mut forgotten = provided(&Authority::new(), 3600);
    forgotten["ca.crt"] = json!(null);
    door.put(PROVIDED, forgotten).await;
    let message = door.admission("CertificateNotTrusted").await;
    assert!(message.contains("ca.crt"), "{message}");
    accepts(door.service.port(), &new.certificate).await.unwrap();
    door.validating("still refusing", can_refuse).await;
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), door.cluster.log());
}

#[tokio::test]
async fn a_provided_certificate_that_ends_holds_up_nobody() {
    let door = Door::new("provided-end", Plane::Certificates).await;
    let authority = Authority::new();
    let _replicas = with_provided(&door, &["operator"], &authority, 20).await;
    door.validating("letting through", |now| !can_refuse(now)).await;
    let message = door.admission("CertificateNotTrusted").await;
    assert!(message.contains("xpired"), "{message}");
    wait_for_write(&door, 1).await;
    door.put(PROVIDED, provided(&authority, 3600)).await;
    door.validating("refusing again", can_refuse).await;
    door.admission("Serving").await;
}

#[tokio::test]
async fn one_whose_time_has_not_come_is_served_when_it_has() {
    let door = Door::new("early", Plane::Certificates).await;
    let authority = Authority::new();
    let (chain, key) = authority.certificate_from(&["127.0.0.1"], 8, 3600);
    let data = json!({
        "tls.crt": base64(&chain), "tls.key": base64(&key), "ca.crt": base64(&authority.certificate),
    });
    let secret = json!({ "metadata": { "name": PROVIDED }, "data": data });
    let secrets: Api<Secret> = door.cluster.api();
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let environment = [("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME", PROVIDED)];
    let _operator = door.replica("operator", &[], &environment);
    door.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = door.admission("CertificateNotTrusted").await;
    assert!(message.contains("not valid yet"), "{message}");
    door.admission("Serving").await;
    wait_for_write(&door, 1).await;
}

/// Where the API server cannot reach us, and everything at home is refused, there are two ways out.
#[tokio::test]
async fn whoever_switched_it_on_can_switch_it_off_when_nobody_answers() {
    let door = Door::new("exit", Plane::Certificates).await;
    let operator = door.replica("operator", &[], &[]);
    door.take_out(&operator);
    door.open().await;
    let refused = async { while write(&door, 2).await.is_ok() {} };
    tokio::time::timeout(LONG, refused).await.expect("a write that nobody judges is refused");
    door.configure(json!({ "enableOperatorWebhook": false, "enableInjector": true })).await;
    door.validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    door.configure(json!({ "enableOperatorWebhook": true, "enableInjector": true })).await;
    door.validating("filled", can_refuse).await;

    // Without the operator.
    operator.program.kill();
    let name = door.name("vfleet-admission");
    let patch =
        ["patch", "validatingwebhookconfiguration", &name, "--type=merge", "-p", r#"{"webhooks":null}"#];
    let output = door.cluster.plane().kubectl(&patch).unwrap();
    assert!(output.status.success(), "{}", output.stderr);
    wait_for_write(&door, 3).await;
}

/// A configuration that somebody deleted: the others are kept right, also over a renewal.
#[tokio::test]
async fn a_configuration_that_is_missing_does_not_hold_up_the_others() {
    let door = Door::new("missing", Plane::Certificates).await;
    let _operator = door.replica("operator", &["--webhook-certificate-lifetime", "24"], &[]);
    door.open().await;
    wait_for_write(&door, 0).await;
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(door.cluster.administrator());
    injectors.delete(&door.name("vfleet-injector"), &DeleteParams::default()).await.unwrap();
    let message = door.admission("NoConfiguration").await;
    assert!(message.contains("vfleet-injector") && message.contains("apply the manifests"), "{message}");
    let load = Load::start(&door);
    let before = door.secret("there", |_| true).await.text("tls.crt");
    let renewed = door.secret("another one", |now| now.text("tls.crt") != before).await;
    let is_out = |now: &ValidatingWebhookConfiguration| {
        bundles(now).iter().all(|bundle| *bundle == renewed.text("ca.crt"))
    };
    door.validating("the new bundle", is_out).await;
    let (writes, failed) = load.end().await;
    assert!(failed.is_empty(), "{} of {writes}: {failed:?}\n{}", failed.len(), door.cluster.log());
    door.cluster.install().unwrap();
    door.admission("Serving").await;
}

/// Whether a write is refused when nobody answers.
fn can_refuse(configuration: &ValidatingWebhookConfiguration) -> bool {
    configuration.webhooks.iter().flatten().any(|webhook| webhook.failure_policy.as_deref() == Some("Fail"))
}

fn encoded(text: &str) -> String {
    json!(base64(text)).as_str().unwrap().to_owned()
}

#[tokio::test]
async fn with_cert_manager_the_bundle_is_left_to_it() {
    let door = Door::new("cert-manager", Plane::Certificates).await;
    let environment = [
        ("ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME", PROVIDED),
        ("ADMISSION_CONTROLLERS_CERTIFICATES_CERT_MANAGER_ENABLED", "true"),
    ];
    let authority = Authority::new();
    let (chain, key) = authority.certificate(&["127.0.0.1"], 3600);
    let data = json!({ "tls.crt": base64(&chain), "tls.key": base64(&key) });
    let secret = json!({ "metadata": { "name": PROVIDED }, "data": data });
    let secrets: Api<Secret> = door.cluster.api();
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let _operator = door.replica("operator", &[], &environment);
    door.configure(json!({ "enableOperatorWebhook": true })).await;
    let message = door.admission("CertificateNotTrusted").await;
    assert!(message.contains("cert-manager"), "{message}");

    // As cert-manager does it: an update, of all configurations with its annotation.
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(door.cluster.administrator());
    let as_injector = PostParams { field_manager: Some("cainjector".to_owned()), ..Default::default() };
    let name = door.name("vfleet-admission");
    let mut found = configurations.get(&name).await.unwrap();
    let from = format!("{}/{PROVIDED}", door.cluster.namespace());
    assert_eq!(found.annotations().get("cert-manager.io/inject-ca-from"), Some(&from));
    assert!(!can_refuse(&found), "nobody is trusted yet");
    write(&door, 1).await.unwrap();
    for webhook in found.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(base64(&authority.certificate));
    }
    configurations.replace(&name, &as_injector, &found).await.unwrap();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(door.cluster.administrator());
    let mut found = mutating.get(&name).await.unwrap();
    for webhook in found.webhooks.iter_mut().flatten() {
        webhook.client_config.ca_bundle = Some(base64(&authority.certificate));
    }
    mutating.replace(&name, &as_injector, &found).await.unwrap();
    door.admission("Serving").await;
    door.validating("refusing", can_refuse).await;
    wait_for_write(&door, 1).await;

    // Something of ours is put right, and what is cert-manager's stays.
    let patch = json!([{ "op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30 }]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    configurations.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    let is_right = |now: &ValidatingWebhookConfiguration| {
        now.webhooks.iter().flatten().all(|webhook| webhook.timeout_seconds != Some(30))
    };
    let right = door.validating("the right time", is_right).await;
    assert!(bundles(&right).iter().all(|bundle| *bundle == authority.certificate));

    // A certificate of somebody whom the API server does not trust: nothing is refused for want of an answer.
    let (chain, key) = Authority::new().certificate(&["127.0.0.1"], 3600);
    door.put(PROVIDED, json!({ "tls.crt": base64(&chain), "tls.key": base64(&key) })).await;
    door.validating("letting through", |now| !can_refuse(now)).await;
    door.admission("CertificateNotTrusted").await;

    // And it can be emptied, although a part of it is somebody else's.
    door.configure(json!({ "enableOperatorWebhook": false })).await;
    door.validating("empty", |now| now.webhooks.iter().flatten().count() == 0).await;
    door.admission("Disabled").await;
}

/// Somebody who signs certificates.
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

    /// A certificate that ends in so many seconds, and its key.
    fn certificate(&self, names: &[&str], seconds: i64) -> (String, String) {
        self.certificate_from(names, -3600, seconds)
    }

    /// The same for one that also begins in so many seconds.
    fn certificate_from(&self, names: &[&str], from: i64, seconds: i64) -> (String, String) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = OffsetDateTime::now_utc() + time::Duration::seconds(from);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
