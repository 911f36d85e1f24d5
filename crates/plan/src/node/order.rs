//! Order of creating VFs and of changing the mode of the switch: the vendor's, or the other one where the kernel refused
//! that (decision 17).

use super::wanted::WantedPf;
use crate::facts::{HostFacts, ModeOrder, PfFacts, Record, RefusedOrder};
use crate::prelude::*;
use crate::vendor;

/// Orders that may be tried on a PF.
#[derive(Debug)]
pub(super) struct Orders {
    vendor: ModeOrder,
    /// Refusals that count. One of them is remembered for good: the other order is the one that works.
    pub(super) refused: Vec<RefusedOrder>,
}

impl Orders {
    /// Returns the orders for a PF with this record. When both were refused, that counts until something else is wanted of
    /// the PF or the machine has restarted: another kernel or firmware may take what this one refuses.
    pub(super) fn of(wanted: &WantedPf, found: &PfFacts, old: Option<&Record>, facts: &HostFacts) -> Self {
        let vendor = vendor::of_driver(found.driver.as_deref()).order;
        let refused = old.map(|record| record.refused_orders.clone()).unwrap_or_default();
        let orders = Self { vendor, refused };
        let is_same_boot = |refused: &RefusedOrder| refused.trial.boot_id == facts.kernel.boot_id;
        let counts = orders.refused.iter().all(is_same_boot)
            && old.is_some_and(|record| record.interface == wanted.interface);
        if orders.next().is_none() && !counts { Self { vendor, refused: Vec::new() } } else { orders }
    }

    /// Returns the order to use; `None` when the kernel refused both.
    pub(super) fn next(&self) -> Option<ModeOrder> {
        let is_refused = |order: &ModeOrder| self.refused.iter().any(|refused| refused.trial.order == *order);
        [self.vendor, self.vendor.other()].into_iter().find(|order| !is_refused(order))
    }
}
