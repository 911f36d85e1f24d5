//! Options of the admission webhooks. Environment variables have the names of the Go operator where it has them.

use std::time::Duration;

use vfleet_cluster::server::BindAddress;
use vfleet_operator::{CertificateSource, WebhookConfig, WebhookUrl};

/// Shortest lifetime: shorter ones would be renewed all the time.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(12);
const LONGEST_LIFETIME: Duration = Duration::from_hours(24 * 365 * 10);

/// Options of the admission webhooks. An empty value counts as unset.
#[derive(clap::Args)]
#[command(next_help_heading = "Admission webhooks")]
pub(super) struct AdmissionArguments {
    /// Address of the webhook server; 0 disables the server and the webhooks
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":9443")]
    webhook_bind_address: BindAddress,
    /// URL of the webhooks, for an operator outside of the cluster [default: the Service vfleet-webhook]
    #[arg(long, value_name = "https://HOST:PORT")]
    webhook_url: Option<WebhookUrl>,
    /// Lifetime of the certificates that the operator issues: seconds, or days as in 90d
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_lifetime)]
    webhook_certificate_lifetime: Duration,
    /// Secret with the certificate to use (tls.crt, tls.key, ca.crt) [default: the operator issues its own]
    #[arg(long, value_name = "NAME", env = "ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME")]
    webhook_secret: Option<String>,
    /// CA certificate for the API server, if the Secret has no ca.crt: PEM, plain or base64-encoded
    #[arg(
        long,
        value_name = "CERTIFICATE",
        env = "ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_CA_CRT",
        value_parser = parse_authority
    )]
    webhook_ca: Option<Authority>,
    /// cert-manager maintains the Secret, from a Certificate of the same name, and injects the CA certificate
    #[arg(
        long,
        value_name = "BOOL",
        env = "ADMISSION_CONTROLLERS_CERTIFICATES_CERT_MANAGER_ENABLED",
        default_value = "false"
    )]
    cert_manager_enabled: String,
    /// Lowest TLS version: VersionTLS12 or VersionTLS13 [default: VersionTLS12]
    #[arg(
        long,
        value_name = "VERSION",
        env = "TLS_MIN_VERSION",
        default_value = "",
        hide_default_value = true
    )]
    tls_min_version: String,
}

/// CA certificate; `None` for an empty value.
#[derive(Clone)]
struct Authority(Option<String>);

fn parse_authority(text: &str) -> Result<Authority, String> {
    if text.trim().is_empty() {
        return Ok(Authority(None));
    }
    vfleet_operator::parse_ca_certificate(text)
        .map(|pem| Authority(Some(pem)))
        .map_err(|error| error.to_string())
}

/// Parses a number of seconds, or of days as in `90d`.
pub(crate) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.strip_suffix('d').map_or((text, 1), |number| (number, 24 * 60 * 60));
    let time =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).map(Duration::from_secs);
    time.filter(|time| (SHORTEST_LIFETIME..=LONGEST_LIFETIME).contains(time)).ok_or_else(|| {
        "expected a number of seconds (at least 12), or of days as in 90d (at most 3650d)".to_owned()
    })
}

impl AdmissionArguments {
    /// Returns the configuration of the operator's webhooks.
    pub(super) fn into_config(self) -> WebhookConfig {
        let secret = self.webhook_secret.filter(|name| !name.is_empty());
        let uses_cert_manager = self.cert_manager_enabled.eq_ignore_ascii_case("true");
        WebhookConfig {
            bind_address: self.webhook_bind_address,
            url: self.webhook_url,
            lifetime: self.webhook_certificate_lifetime,
            only_tls13: self.tls_min_version == "VersionTLS13",
            certificates: match secret {
                None => CertificateSource::Own,
                Some(secret) if uses_cert_manager => CertificateSource::CertManager { secret },
                Some(secret) => {
                    let authority = self.webhook_ca.and_then(|Authority(pem)| pem);
                    CertificateSource::Provided { secret, authority }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_parsed() {
        let seconds = |text| parse_lifetime(text).ok().map(|time| time.as_secs());
        assert_eq!(["12", "36", "1d", "90d"].map(seconds), [12, 36, 86_400, 7_776_000].map(Some));
        for text in ["", "11", "0", "-1", "d", "1h", "3651d", "99999999999999999999d"] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }
}
