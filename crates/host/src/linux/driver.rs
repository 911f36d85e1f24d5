//! A device on a bus of the kernel (`pci`, `vdpa`), and the driver that it is bound to.

use std::path::PathBuf;

use super::{parse, sysfs};
use crate::HostError;

/// A device on a bus.
#[derive(Clone, Debug)]
pub(super) struct BusDevice {
    /// The bus's directory.
    bus: PathBuf,
    name: String,
}

impl BusDevice {
    pub(super) fn new(bus: PathBuf, name: String) -> Self {
        Self { bus, name }
    }

    /// Its directory, whether it is there or not.
    pub(super) fn path(&self) -> PathBuf {
        self.bus.join("devices").join(&self.name)
    }

    /// The driver that it is bound to.
    pub(super) fn driver(&self) -> Result<Option<String>, HostError> {
        sysfs::target_name(&self.path().join("driver"))
    }

    /// Binds it to this driver, and leaves no `driver_override` behind in any case: it would decide over the device
    /// for good. The kernel does not tell why a driver refuses a device: the caller looks whether it is bound.
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
        let bound = bind();
        self.set_override(None).and(bound)
    }

    /// Takes it from its driver, if it has one.
    pub(super) fn unbind(&self) -> Result<(), HostError> {
        let Some(driver) = self.driver()? else { return Ok(()) };
        let path = self.bus.join("drivers").join(&driver).join("unbind");
        let unbound = sysfs::write(&path, &self.name);
        match self.driver()? {
            // Whatever was answered: somebody else may have been faster.
            None => Ok(()),
            Some(found) => unbound.and(Err(HostError::Unverified {
                attempt: format!("unbind {}", self.name),
                expected: "no driver".to_owned(),
                found,
            })),
        }
    }

    /// Lets the kernel look for a driver. It reports no failure of a driver here: the caller looks itself.
    pub(super) fn probe(&self) -> Result<(), HostError> {
        sysfs::write(&self.bus.join("drivers_probe"), &self.name)
    }

    /// Names the one driver that the kernel may bind it to, or leaves it free. A bus that has no such file leaves all free.
    pub(super) fn set_override(&self, driver: Option<&str>) -> Result<(), HostError> {
        let path = self.path().join("driver_override");
        let read = || {
            sysfs::read_if_there(&path, "a driver's name", |text| {
                Some(parse::driver_override(text).map(str::to_owned))
            })
        };
        if read()?.flatten().as_deref() == driver {
            return Ok(());
        }
        // An empty line takes the old name away.
        sysfs::write(&path, driver.unwrap_or("\n"))?;
        match read()?.flatten() {
            found if found.as_deref() == driver => Ok(()),
            found => Err(HostError::Unverified {
                attempt: format!("set driver_override of {}", self.name),
                expected: format!("{driver:?}"),
                found: format!("{found:?}"),
            }),
        }
    }
}
