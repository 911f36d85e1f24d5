//! Kubernetes client on a machine without a CA bundle. No server listens on the address: a client that could be built
//! reports that it cannot connect.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::Command;

/// Self-signed certificate.
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBmjCCAT+gAwIBAgIUAZMaBXY0Det4a5f+yP1/aWgw5pUwCgYIKoZIzj0EAwIw
ITEfMB0GA1UEAwwWYW4gYXV0aG9yaXR5IG9mIGEgdGVzdDAgFw0yNjExMTgwNDMy
NTNaGA8yMTI2MTAyNTA0MzI1M1owITEfMB0GA1UEAwwWYW4gYXV0aG9yaXR5IG9m
IGEgdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNhOHNNZxlYukkSS0TWS
AnmLN12cc/7H/VmopbCd0grW0/bwaKddzBUMdPFWi6kd636sqyoPBtBhAypqtHTs
XmKjUzBRMB0GA1UdDgQWBBTvPViK1Bl3JMaxRGbYdoXgu0FVNzAfBgNVHSMEGDAW
gBTvPViK1Bl3JMaxRGbYdoXgu0FVNzAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49
BAMCA0kAMEYCIQDyTEzSRbNCREIWJGdrz4WIouQV2Q532usw281fa8uvSgIhAOJs
eQLO3FwZbH/15fqFWj4R8y0lEnwHyhFMJIXbFQeD
-----END CERTIFICATE-----
";

fn vfleet() -> OsString {
    std::env::var_os("VFLEET_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_vfleet").into())
}

/// Returns the error message of a client for a cluster with these settings, without a CA bundle.
fn error_message(cluster: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.crt"), CA).unwrap();
    // Free again at once, and not reused soon.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         users: [{{name: a, user: {{token: x}}}}]\nclusters: [{{name: a, cluster: {{server: 'https://{address}'{cluster}}}}}]\n"
    );
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    let output = Command::new(vfleet())
        .args(["wait-for-config", "--pod-name", "a", "--pod-namespace", "b"])
        .env("KUBECONFIG", file)
        .env("SSL_CERT_FILE", directory.path().join("none"))
        .env("SSL_CERT_DIR", directory.path().join("none"))
        .env_remove("HTTPS_PROXY")
        .env_remove("https_proxy")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_authority_of_the_kubeconfig_is_enough() {
    let stderr = error_message(", certificate-authority: ca.crt");
    assert!(
        stderr.contains("cannot connect to the API server at https://127.0.0.1")
            && stderr.contains("Connection refused"),
        "{stderr}"
    );
}

#[test]
fn insecure_skip_tls_verify_needs_no_authority() {
    let stderr = error_message(", insecure-skip-tls-verify: true");
    assert!(
        stderr.contains("cannot connect to the API server at https://127.0.0.1")
            && stderr.contains("Connection refused"),
        "{stderr}"
    );
}

#[test]
fn without_any_authority_the_message_has_a_remedy() {
    let stderr = error_message("");
    assert!(stderr.contains("certificate-authority") && stderr.contains("ca-certificates"), "{stderr}");
}
