//! Requests to the API server, by user.

use std::collections::BTreeMap;

use anyhow::Result;
use fixture_kube::{ControlPlane, Requests};

/// Counter of requests since its creation.
pub(super) struct RequestCounter(Requests);

impl RequestCounter {
    pub(super) fn start(plane: &ControlPlane) -> Result<Self> {
        let mut requests = plane.requests();
        requests.read()?;
        Ok(Self(requests))
    }

    /// Prints the number of requests per node, for each user, verb and resource.
    pub(super) fn print(&mut self, subject: &str, nodes: usize) -> Result<()> {
        let mut counts: BTreeMap<(String, String, String), u32> = BTreeMap::new();
        for request in self.0.read()? {
            let user = request.user().rsplit(':').next().unwrap_or_default().to_owned();
            *counts.entry((user, request.verb.clone(), request.resource().to_owned())).or_default() += 1;
        }
        let nodes = f64::from(u32::try_from(nodes)?);
        let frequent = counts.into_iter().filter(|(_, count)| f64::from(*count) > nodes / 100.0);
        for ((user, verb, resource), count) in frequent {
            eprintln!(
                "bench:   {subject}: {:.2} requests of {user} per node: {verb} {resource}",
                f64::from(count) / nodes
            );
        }
        Ok(())
    }
}
