//! What cases say often.

use std::fmt::Debug;

use vfleet_api::VfRef;
use vfleet_host::{HostError, with_causes};
use vfleet_plan::{FirmwareFacts, PfFacts, Step, VdpaKind, VfDriver};

use super::bench::{Bench, Shown, Stop};
use super::seen::{SeenGuids, SeenLink, SeenPf, SeenSwitch, SeenVf};

/// The case has failed unless `condition` holds.
pub fn ensure(condition: bool, what: impl Into<String>) -> Shown {
    if condition { Ok(()) } else { Err(Stop::Failed(what.into())) }
}

/// The case has failed unless both are the same.
pub fn same<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Shown {
    ensure(found == expected, format!("{what}: expected {expected:?}, found {found:?}"))
}

/// What must be there, or the case has failed.
pub fn there<T>(what: &str, value: Option<T>) -> Result<T, Stop> {
    value.ok_or_else(|| Stop::Failed(format!("{what} is not there")))
}

/// The step is refused for this reason; gives the text.
pub fn refused(bench: &dyn Bench, step: &Step, reason: &str) -> Result<String, Stop> {
    match bench.host().execute(step) {
        Ok(()) => Err(Stop::Failed(format!("`{step}` succeeded, expected {reason}"))),
        Err(error) if error.reason() == reason => Ok(with_causes(&error)),
        Err(error) => Err(Stop::Failed(format!("`{step}`: expected {reason}, got {}", describe(&error)))),
    }
}

fn describe(error: &HostError) -> String {
    format!("{}: {}", error.reason(), with_causes(error))
}

/// Executes steps one after the other.
pub fn execute(bench: &dyn Bench, steps: &[Step]) -> Shown {
    steps.iter().try_for_each(|step| {
        bench.host().execute(step).map_err(|error| Stop::Failed(format!("`{step}`: {}", describe(&error))))
    })
}

/// The card as the witness sees it, once all is quiet.
pub fn look(bench: &dyn Bench) -> Result<SeenPf, Stop> {
    bench.outsider().settle()?;
    bench.witness().pf(bench.pf())
}

/// One VF of the card as the witness sees it.
pub fn look_at_vf(bench: &dyn Bench, index: u16) -> Result<SeenVf, Stop> {
    let vfs = look(bench)?.vfs;
    there(&format!("VF {index}"), vfs.into_iter().nth(index.into()))
}

/// The interface of one VF of the card as the witness sees it.
pub fn look_at_vf_link(bench: &dyn Bench, index: u16) -> Result<SeenLink, Stop> {
    there(&format!("the interface of VF {index}"), look_at_vf(bench, index)?.link)
}

/// The facts of the card.
pub fn facts(bench: &dyn Bench) -> Result<PfFacts, Stop> {
    let facts = bench.host().facts()?;
    there("the PF among the facts", facts.pf(bench.pf()).cloned())
}

/// The host tells what the witness sees. Gives what both agree on.
pub fn agree(bench: &dyn Bench) -> Result<SeenPf, Stop> {
    let seen = look(bench)?;
    same("the facts", &SeenPf::told(&facts(bench)?), &seen.clone().as_told())?;
    Ok(seen)
}

/// The host tells the switch that the witness sees. Gives what the witness sees.
pub fn agree_on_switch(bench: &dyn Bench) -> Result<SeenSwitch, Stop> {
    bench.outsider().settle()?;
    let seen = bench.witness().switch(bench.pf())?;
    same("the switch in the facts", &SeenSwitch::told(&facts(bench)?), &seen.clone().as_told())?;
    Ok(seen)
}

/// The host tells the GUIDs that the witness sees. Gives what both agree on.
pub fn agree_on_guids(bench: &dyn Bench) -> Result<SeenGuids, Stop> {
    let seen = bench.witness().guids(bench.pf())?;
    same("the GUIDs in the facts", &SeenGuids::told(&facts(bench)?), &seen)?;
    Ok(seen)
}

/// The host tells the vDPA devices that the witness sees, by VF. Gives what both agree on.
pub fn agree_on_vdpa(bench: &dyn Bench) -> Result<Vec<Option<VdpaKind>>, Stop> {
    let seen = bench.witness().vdpa(bench.pf())?;
    let told: Vec<_> = facts(bench)?.vfs.into_iter().map(|vf| vf.vdpa).collect();
    same("the vDPA devices in the facts", &told, &seen)?;
    Ok(seen)
}

/// The host tells the firmware settings that the witness sees. Gives what both agree on.
pub fn agree_on_firmware(bench: &dyn Bench) -> Result<Option<FirmwareFacts>, Stop> {
    let seen = bench.witness().firmware(bench.pf())?;
    same("the firmware in the facts", &facts(bench)?.firmware, &seen)?;
    Ok(seen)
}

/// A VF of the card.
pub fn vf(bench: &dyn Bench, index: u16) -> VfRef {
    VfRef { pf: bench.pf(), index }
}

/// The step that binds a VF of the card to the driver of this name, or to the kernel's.
pub fn bind(bench: &dyn Bench, index: u16, driver: Option<&str>) -> Step {
    let driver = driver.map_or(VfDriver::Kernel, |name| VfDriver::Named(name.to_owned()));
    Step::BindVf { vf: vf(bench, index), driver }
}
