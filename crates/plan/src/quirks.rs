//! Differences between drivers in the order of steps.

use crate::facts::ModeOrder;

/// Differences of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverQuirks {
    /// Order of creating VFs and setting the eswitch mode.
    pub(crate) order: ModeOrder,
    /// Software steering must be set before switchdev mode.
    pub(crate) software_steering: bool,
}

const DEFAULT: DriverQuirks = DriverQuirks { order: ModeOrder::VfsFirst, software_steering: false };

const BY_DRIVER: [(&str, DriverQuirks); 2] = [
    ("mlx5_core", DriverQuirks { order: ModeOrder::VfsFirst, software_steering: true }),
    ("ice", DriverQuirks { order: ModeOrder::ModeFirst, software_steering: false }),
];

/// Returns the differences of `driver`.
pub(crate) fn driver_quirks(driver: Option<&str>) -> DriverQuirks {
    BY_DRIVER.iter().find(|(name, _)| Some(*name) == driver).map_or(DEFAULT, |(_, quirks)| *quirks)
}
