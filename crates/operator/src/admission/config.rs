//! How the operator is told to serve admission.

use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::ByteString;
use rustls_pki_types::ServerName;
use serde_json::json;
use thiserror::Error;
use vfleet_api::keys::{WEBHOOK_SECRET, WEBHOOK_SERVICE};
use vfleet_cluster::server::BindAddress;

/// How admission is served.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Where.
    pub at: BindAddress,
    /// Where the API server finds it, when not by the Service of the operator's namespace.
    pub url: Option<WebhookUrl>,
    /// Whose certificates are served.
    pub certificates: CertificateSource,
    /// How long own certificates are valid.
    pub lifetime: Duration,
    /// Whether nothing older than TLS 1.3 is spoken.
    pub only_tls13: bool,
}

impl WebhookConfig {
    /// The Secret with the certificate that is served.
    pub(crate) fn secret(&self) -> &str {
        match &self.certificates {
            CertificateSource::Own => WEBHOOK_SECRET,
            CertificateSource::Provided { secret, .. } | CertificateSource::CertManager { secret } => secret,
        }
    }

    /// What the API server expects a certificate to be valid for.
    pub(crate) fn server_name(&self, namespace: &str) -> String {
        match &self.url {
            Some(url) => url.host.clone(),
            None => format!("{WEBHOOK_SERVICE}.{namespace}.svc"),
        }
    }

    /// All that own certificates are valid for.
    pub(crate) fn names(&self, namespace: &str) -> Vec<String> {
        let service = format!("{WEBHOOK_SERVICE}.{namespace}.svc");
        let mut names = vec![format!("{service}.cluster.local"), service];
        names.extend(self.url.as_ref().map(|url| url.host.clone()));
        names
    }
}

/// Whose certificates are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CertificateSource {
    /// The operator makes them, and renews them.
    #[default]
    Own,
    /// Somebody puts them into a Secret.
    Provided {
        /// The Secret, of the operator's namespace.
        secret: String,
        /// Whom the API server shall trust, in PEM, where the Secret has no `ca.crt`.
        authority: Option<String>,
    },
    /// cert-manager puts them into a Secret, and tells the API server whom to trust.
    CertManager {
        /// The Secret, of the operator's namespace. The Certificate has the same name.
        secret: String,
    },
}

/// Where the API server finds the webhooks without a Service: `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    pub(crate) text: String,
    pub(crate) host: String,
}

/// Not a place that the API server could ask.
#[derive(Debug, Error)]
#[error("{0:?} is not https://HOST:PORT")]
pub struct BadUrl(String);

impl FromStr for WebhookUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadUrl(text.to_owned());
        let place = text.strip_prefix("https://").ok_or_else(bad)?;
        let (host, port) = place.rsplit_once(':').ok_or_else(bad)?;
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

/// Not the certificate of an authority.
#[derive(Debug, Error)]
#[error("this is neither a certificate in PEM nor one in base64")]
pub struct BadAuthority;

/// The certificate of an authority in PEM, from a text that may have been put into base64 up to two times: charts for
/// the Go operator do.
pub fn authority(text: &str) -> Result<String, BadAuthority> {
    let mut text = text.to_owned();
    for _ in 0..3 {
        if text.contains("-----BEGIN CERTIFICATE-----") {
            return Ok(text.trim().to_owned());
        }
        let ByteString(bytes) = serde_json::from_value(json!(text.trim())).map_err(|_| BadAuthority)?;
        text = String::from_utf8(bytes).map_err(|_| BadAuthority)?;
    }
    Err(BadAuthority)
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
    fn an_authority_is_read_as_it_is_or_from_base64() {
        const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
        let base64 = |text: &str| {
            let text = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
            text.as_str().unwrap().to_owned()
        };
        assert_eq!(authority(PEM).unwrap(), PEM);
        assert_eq!(authority(&base64(PEM)).unwrap(), PEM);
        assert_eq!(authority(&base64(&base64(PEM))).unwrap(), PEM);
        assert!(authority(&base64(&base64(&base64(PEM)))).is_err());
        assert!(authority("").is_err());
        assert!(authority("not base64!").is_err());
    }
}
