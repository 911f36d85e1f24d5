//! Devices on a bus (`pci`, `vdpa`), and their drivers.

use std::path::PathBuf;

use super::{parse, sysfs};
use crate::HostError;

/// Device on a bus.
#[derive(Clone, Debug)]
pub(super) struct BusDevice {
    /// Directory of the bus.
    bus: PathBuf,
    name: String,
}

impl BusDevice {
    pub(super) fn new(bus: PathBuf, name: String) -> Self {
        Self { bus, name }
    }

    /// Returns the directory of the device, which need not exist.
    pub(super) fn path(&self) -> PathBuf {
        self.bus.join("devices").join(&self.name)
    }

    /// Reads the driver of the device.
    pub(super) fn driver(&self) -> Result<Option<String>, HostError> {
        sysfs::target_name(&self.path().join("driver"))
    }

    /// Binds the device to a driver. Always resets `driver_override`, which would restrict the device permanently. The
    /// kernel does not report that a driver rejects the device: the caller has to verify the binding.
    pub(super) fn bind_to(&self, driver: &str) -> Result<(), HostError> {
        if !self.bus.join("drivers").join(driver).exists() {
            return Err(HostError::DriverNotLoaded { driver: driver.to_owned() });
        }
        if self.driver()?.as_deref() == Some(driver) {
            return self.set_override(None);
        }
        let bind = || {
            self.set_override(Some(driver))?;
            self.unbind()?;
            self.probe()
        };
        let result = bind();
        self.set_override(None).and(result)
    }

    /// Binds the device to its driver again, or without a driver to the one that the kernel chooses. The caller has to
    /// verify the binding.
    pub(super) fn rebind(&self) -> Result<(), HostError> {
        let Some(driver) = self.driver()? else { return self.probe() };
        let bind = || {
            // The kernel would not bind VFs while sriov_drivers_autoprobe is 0.
            self.set_override(Some(&driver))?;
            self.unbind()?;
            self.probe()
        };
        let result = bind();
        self.set_override(None).and(result)
    }

    /// Unbinds the device from its driver, if it has one.
    pub(super) fn unbind(&self) -> Result<(), HostError> {
        let Some(driver) = self.driver()? else { return Ok(()) };
        let path = self.bus.join("drivers").join(&driver).join("unbind");
        let result = sysfs::write(&path, &self.name);
        match self.driver()? {
            // Also after an error: another process may have unbound the device.
            None => Ok(()),
            Some(found) => result.and(Err(HostError::NotVerified {
                attempt: format!("unbind {}", self.name),
                expected: "no driver".to_owned(),
                found,
            })),
        }
    }

    /// Makes the kernel bind the device to a matching driver. The kernel reports no failure: the caller has to verify
    /// the binding.
    pub(super) fn probe(&self) -> Result<(), HostError> {
        sysfs::write(&self.bus.join("drivers_probe"), &self.name)
    }

    /// Sets or resets `driver_override`, the only driver that the kernel may bind. Without the file, any driver may be
    /// bound.
    pub(super) fn set_override(&self, driver: Option<&str>) -> Result<(), HostError> {
        let path = self.path().join("driver_override");
        let read = || {
            sysfs::read_if_exists(&path, "the name of a driver", |text| {
                Some(parse::driver_override(text).map(str::to_owned))
            })
        };
        if read()?.flatten().as_deref() == driver {
            return Ok(());
        }
        // An empty line removes the old name.
        sysfs::write(&path, driver.unwrap_or("\n"))?;
        match read()?.flatten() {
            found if found.as_deref() == driver => Ok(()),
            found => Err(HostError::NotVerified {
                attempt: format!("set driver_override of {}", self.name),
                expected: driver.unwrap_or("none").to_owned(),
                found: found.unwrap_or_else(|| "none".to_owned()),
            }),
        }
    }
}
