//! Order of creating VFs and setting the eswitch mode: that of the driver, or the opposite one if the kernel refused
//! that (decision 17).

use super::desired::DesiredPf;
use crate::facts::{HostFacts, ModeOrder, PfFacts, Record, RefusedOrder};
use crate::prelude::*;
use crate::quirks;

/// Orders that may be tried on a PF.
#[derive(Debug)]
pub(super) struct ModeOrders {
    preferred: ModeOrder,
    /// Refusals that count. A single refusal is kept forever, since the opposite order works.
    pub(super) refused: Vec<RefusedOrder>,
}

impl ModeOrders {
    /// Returns the orders for a PF with this record. If both were refused, that counts until the desired state of the
    /// PF changes or the machine reboots, since another kernel or firmware may accept the mode.
    pub(super) fn for_pf(
        desired: &DesiredPf,
        observed: &PfFacts,
        previous: Option<&Record>,
        facts: &HostFacts,
    ) -> Self {
        let preferred = quirks::driver_quirks(observed.driver.as_deref()).order;
        let refused = previous.map(|record| record.refused_orders.clone()).unwrap_or_default();
        let orders = Self { preferred, refused };
        let is_same_boot = |refused: &RefusedOrder| refused.trial.boot_id == facts.kernel.boot_id;
        let counts = orders.refused.iter().all(is_same_boot)
            && previous.is_some_and(|record| record.interface == desired.interface);
        if orders.next().is_none() && !counts { Self { preferred, refused: Vec::new() } } else { orders }
    }

    /// Returns the order to use; `None` if the kernel refused both.
    pub(super) fn next(&self) -> Option<ModeOrder> {
        let is_refused = |order: &ModeOrder| self.refused.iter().any(|refused| refused.trial.order == *order);
        [self.preferred, self.preferred.other()].into_iter().find(|order| !is_refused(order))
    }
}
