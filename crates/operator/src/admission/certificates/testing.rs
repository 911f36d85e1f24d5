//! Certificates for tests.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::make::{Made, make};
use super::pem;

/// One that was just made.
pub(in crate::admission) struct Generation {
    /// It, and its authority.
    pub(in crate::admission) chain: String,
    key: String,
}

impl Generation {
    /// To be served.
    pub(in crate::admission) fn pair(&self) -> rustls::sign::CertifiedKey {
        pem::pair(self.chain.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

/// Makes one.
pub(in crate::admission) fn generation(names: &[&str]) -> Generation {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let Made { chain, key, .. } = make(&names, Timestamp::now(), Duration::from_mins(10)).unwrap();
    Generation { chain, key }
}
