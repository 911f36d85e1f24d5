//! Configuration of the webhook server.

use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::ByteString;
use rustls_pki_types::ServerName;
use serde_json::json;
use thiserror::Error;
use vfleet_api::keys::{WEBHOOK_SECRET, WEBHOOK_SERVICE};
use vfleet_cluster::server::BindAddress;

/// Configuration of the webhook server.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Address to listen at.
    pub bind_address: BindAddress,
    /// URL of the webhooks if the API server does not use the Service.
    pub url: Option<WebhookUrl>,
    /// Source of the certificate.
    pub certificates: CertificateSource,
    /// Lifetime of own certificates.
    pub lifetime: Duration,
    /// True if TLS 1.2 is refused.
    pub only_tls13: bool,
}

impl WebhookConfig {
    /// Returns the name of the Secret with the certificate.
    pub(crate) fn secret_name(&self) -> &str {
        match &self.certificates {
            CertificateSource::Own => WEBHOOK_SECRET,
            CertificateSource::Provided { secret, .. } | CertificateSource::CertManager { secret } => secret,
        }
    }

    /// Returns the name that the API server expects in the certificate.
    pub(crate) fn server_name(&self, namespace: &str) -> String {
        match &self.url {
            Some(url) => url.host.clone(),
            None => format!("{WEBHOOK_SERVICE}.{namespace}.svc"),
        }
    }

    /// Returns all names of own certificates.
    pub(crate) fn certificate_names(&self, namespace: &str) -> Vec<String> {
        let service = format!("{WEBHOOK_SERVICE}.{namespace}.svc");
        let mut names = vec![format!("{service}.cluster.local"), service];
        names.extend(self.url.as_ref().map(|url| url.host.clone()));
        names
    }
}

/// Source of the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CertificateSource {
    /// The operator issues and renews it.
    #[default]
    Own,
    /// An administrator provides it in a Secret.
    Provided {
        /// Name of the Secret in the operator's namespace.
        secret: String,
        /// CA certificate in PEM that is used if the Secret has no `ca.crt`.
        authority: Option<String>,
    },
    /// cert-manager provides it in a Secret, and sets `caBundle` of the webhooks.
    CertManager {
        /// Name of the Secret in the operator's namespace, and of the Certificate.
        secret: String,
    },
}

/// URL of the webhooks: `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    pub(crate) text: String,
    pub(crate) host: String,
}

/// Error of a webhook URL.
#[derive(Debug, Error)]
#[error("{0:?} is not of the form https://HOST:PORT")]
pub struct InvalidWebhookUrl(String);

impl FromStr for WebhookUrl {
    type Err = InvalidWebhookUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || InvalidWebhookUrl(text.to_owned());
        let address = text.strip_prefix("https://").ok_or_else(bad)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let host = match host.strip_prefix('[') {
            Some(address) => address.strip_suffix(']').ok_or_else(bad)?,
            None => host,
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        if !is_port || ServerName::try_from(host).is_err() {
            return Err(bad());
        }
        Ok(Self { text: text.to_owned(), host: host.to_owned() })
    }
}

/// Error of a CA certificate.
#[derive(Debug, Error)]
#[error("not a certificate in PEM or base64")]
pub struct InvalidCaCertificate;

/// Returns a CA certificate in PEM. The text may be encoded in base64 up to two times, as charts for the Go operator
/// do.
pub fn parse_ca_certificate(text: &str) -> Result<String, InvalidCaCertificate> {
    let mut text = text.to_owned();
    for _ in 0..3 {
        if text.contains("-----BEGIN CERTIFICATE-----") {
            return Ok(text.trim().to_owned());
        }
        let ByteString(bytes) =
            serde_json::from_value(json!(text.trim())).map_err(|_| InvalidCaCertificate)?;
        text = String::from_utf8(bytes).map_err(|_| InvalidCaCertificate)?;
    }
    Err(InvalidCaCertificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_a_port() {
        let host = |text: &str| text.parse::<WebhookUrl>().map(|url| url.host).ok();
        assert_eq!(host("https://127.0.0.1:9443").as_deref(), Some("127.0.0.1"));
        assert_eq!(host("https://[::1]:9443").as_deref(), Some("::1"));
        assert_eq!(host("https://operator.example:443").as_deref(), Some("operator.example"));
        for text in [
            "http://a:1",
            "https://a",
            "https://a:0",
            "https://a:x",
            "https://:1",
            "https://a:1/",
            "https://[::1:1",
            "https://a/b:1",
            "https://me@a:1",
            "",
        ] {
            assert_eq!(host(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_ca_certificate_is_read_from_pem_or_base64() {
        const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
        let base64 = |text: &str| {
            let text = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
            text.as_str().unwrap().to_owned()
        };
        assert_eq!(parse_ca_certificate(PEM).unwrap(), PEM);
        assert_eq!(parse_ca_certificate(&base64(PEM)).unwrap(), PEM);
        assert_eq!(parse_ca_certificate(&base64(&base64(PEM))).unwrap(), PEM);
        assert!(parse_ca_certificate(&base64(&base64(&base64(PEM)))).is_err());
        assert!(parse_ca_certificate("").is_err());
        assert!(parse_ca_certificate("not base64!").is_err());
    }
}
