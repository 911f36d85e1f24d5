//! How admission is served, by the Go operator's names of environment variables where it has them.

use std::time::Duration;

use vfleet_cluster::server::BindAddress;
use vfleet_operator::{CertificateSource, WebhookConfig, WebhookUrl};

/// Shorter ones would be renewed all the time.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(12);
const LONGEST_LIFETIME: Duration = Duration::from_hours(24 * 365 * 10);

/// Admission. An empty value is the same as none.
#[derive(clap::Args)]
#[command(next_help_heading = "Admission")]
pub(super) struct Admission {
    /// Where webhooks are served; 0 is nowhere, and then the API server asks nobody.
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":9443")]
    webhook_bind_address: BindAddress,
    /// Where the API server finds them, when not by the Service vfleet-webhook: for an operator outside of the cluster.
    #[arg(long, value_name = "https://HOST:PORT")]
    webhook_url: Option<WebhookUrl>,
    /// How long the operator's own certificates are valid: a number of seconds, or of days as in 90d.
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = lifetime)]
    webhook_certificate_lifetime: Duration,
    /// Secret with a certificate to be used instead of the operator's own: tls.crt, tls.key and ca.crt.
    #[arg(long, value_name = "NAME", env = "ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_SECRET_NAME")]
    webhook_secret: Option<String>,
    /// Whom the API server shall trust when that Secret has no ca.crt: PEM, also in base64 (once or twice).
    #[arg(
        long,
        value_name = "CERTIFICATE",
        env = "ADMISSION_CONTROLLERS_CERTIFICATES_OPERATOR_CA_CRT",
        value_parser = authority
    )]
    webhook_ca: Option<Authority>,
    /// true when cert-manager keeps that Secret, from a Certificate of the same name, and tells the API server whom to
    /// trust.
    #[arg(
        long,
        value_name = "true",
        env = "ADMISSION_CONTROLLERS_CERTIFICATES_CERT_MANAGER_ENABLED",
        default_value = ""
    )]
    cert_manager_enabled: String,
    /// VersionTLS13 when nothing older is to be spoken. TLS 1.2 is the oldest in any case.
    #[arg(long, value_name = "VERSION", env = "TLS_MIN_VERSION", default_value = "")]
    tls_min_version: String,
}

/// A certificate, or an empty text.
#[derive(Clone)]
struct Authority(Option<String>);

fn authority(text: &str) -> Result<Authority, String> {
    if text.trim().is_empty() {
        return Ok(Authority(None));
    }
    vfleet_operator::authority(text).map(|pem| Authority(Some(pem))).map_err(|error| error.to_string())
}

pub(crate) fn lifetime(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.strip_suffix('d').map_or((text, 1), |number| (number, 24 * 60 * 60));
    let time =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).map(Duration::from_secs);
    time.filter(|time| (SHORTEST_LIFETIME..=LONGEST_LIFETIME).contains(time)).ok_or_else(|| {
        "a number of seconds from 12 on is meant, or of days as in 90d, up to 3650d".to_owned()
    })
}

impl Admission {
    /// As the operator wants it.
    pub(super) fn into_config(self) -> WebhookConfig {
        let secret = self.webhook_secret.filter(|name| !name.is_empty());
        let is_managed = self.cert_manager_enabled.eq_ignore_ascii_case("true");
        WebhookConfig {
            at: self.webhook_bind_address,
            url: self.webhook_url,
            lifetime: self.webhook_certificate_lifetime,
            only_tls13: self.tls_min_version == "VersionTLS13",
            certificates: match secret {
                None => CertificateSource::Own,
                Some(secret) if is_managed => CertificateSource::CertManager { secret },
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
    fn lifetimes_are_read() {
        let seconds = |text| lifetime(text).ok().map(|time| time.as_secs());
        assert_eq!(["12", "36", "1d", "90d"].map(seconds), [12, 36, 86_400, 7_776_000].map(Some));
        for text in ["", "11", "0", "-1", "d", "1h", "3651d", "99999999999999999999d"] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }
}
