//! What was asked of the API server, by whom.

use std::collections::BTreeMap;

use anyhow::Result;
use fixture_kube::{ControlPlane, Requests};

/// Requests since a moment.
pub(super) struct Asked(Requests);

impl Asked {
    pub(super) fn from_now(plane: &ControlPlane) -> Result<Self> {
        let mut requests = plane.requests();
        requests.read()?;
        Ok(Self(requests))
    }

    /// Says how many there were for each node, of each kind.
    pub(super) fn tell(&mut self, who: &str, nodes: usize) -> Result<()> {
        let mut counts: BTreeMap<(String, String, String), u32> = BTreeMap::new();
        for request in self.0.read()? {
            let user = request.user().rsplit(':').next().unwrap_or_default().to_owned();
            *counts.entry((user, request.verb.clone(), request.resource().to_owned())).or_default() += 1;
        }
        let nodes = f64::from(u32::try_from(nodes)?);
        let often = counts.into_iter().filter(|(_, count)| f64::from(*count) > nodes / 100.0);
        for ((user, verb, resource), count) in often {
            eprintln!(
                "bench:   {who}: {:.2} of {user} for each node: {verb} {resource}",
                f64::from(count) / nodes
            );
        }
        Ok(())
    }
}
