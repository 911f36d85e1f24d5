//! The Kubernetes client on a machine without a CA bundle. Nobody listens at the server's address: a client that could be
//! built says that it cannot connect.

#![allow(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::ffi::OsString;
use std::net::TcpListener;
use std::process::Command;

/// A self-signed certificate.
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

/// Returns what is said when a cluster with these settings is asked, without any CA bundle.
fn said(cluster: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.crt"), CA).unwrap();
    // Free again at once, and not given to anybody else soon.
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
fn an_authority_of_the_cluster_is_enough() {
    let said = said(", certificate-authority: ca.crt");
    assert!(said.contains("Connection refused"), "{said}");
}

#[test]
fn a_cluster_that_is_not_verified_needs_no_authority() {
    let said = said(", insecure-skip-tls-verify: true");
    assert!(said.contains("Connection refused"), "{said}");
}

#[test]
fn without_any_authority_it_is_said_what_to_do() {
    let said = said("");
    assert!(said.contains("certificate-authority") && said.contains("ca-certificates"), "{said}");
}
