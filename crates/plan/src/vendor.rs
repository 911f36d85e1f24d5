//! What drivers want done in another order.

use crate::facts::ModeOrder;

/// What is particular about the cards of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vendor {
    /// When VFs are made, and when the mode of the embedded switch changes.
    pub(crate) order: ModeOrder,
    /// Whether flows are to be steered by software before its switch goes into switchdev mode.
    pub(crate) software_steering: bool,
}

const UNKNOWN: Vendor = Vendor { order: ModeOrder::VfsFirst, software_steering: false };

const KNOWN: [(&str, Vendor); 2] = [
    ("mlx5_core", Vendor { order: ModeOrder::VfsFirst, software_steering: true }),
    ("ice", Vendor { order: ModeOrder::ModeFirst, software_steering: false }),
];

/// What is particular about the cards of `driver`.
pub(crate) fn of_driver(driver: Option<&str>) -> Vendor {
    KNOWN.iter().find(|(known, _)| Some(*known) == driver).map_or(UNKNOWN, |(_, vendor)| *vendor)
}
