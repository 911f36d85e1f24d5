//! Checks and observations that many cases share.

pub mod bridges;

use std::fmt::Debug;

use vfleet_api::VfRef;
use vfleet_host::{HostError, format_error_chain};
use vfleet_plan::{FirmwareFacts, PfFacts, Step, VdpaKind, VfDriver};

use super::observed::{ObservedEswitch, ObservedGuids, ObservedLink, ObservedPf, ObservedVf};
use super::testbed::{CaseError, CaseResult, TestBed};

/// Fails the case unless `condition` holds.
pub fn ensure(condition: bool, what: impl Into<String>) -> CaseResult {
    if condition { Ok(()) } else { Err(CaseError::Failed(what.into())) }
}

/// Fails the case unless both values are equal.
pub fn expect_eq<T: PartialEq + Debug + ?Sized>(what: &str, found: &T, expected: &T) -> CaseResult {
    ensure(found == expected, format!("{what}: expected {expected:?}, found {found:?}"))
}

/// Returns the value, or fails the case if there is none.
pub fn expect_some<T>(what: &str, value: Option<T>) -> Result<T, CaseError> {
    value.ok_or_else(|| CaseError::Failed(format!("{what} is missing")))
}

/// Executes a step that must be refused for this reason; returns the text of the error.
pub fn expect_refusal(testbed: &dyn TestBed, step: &Step, reason: &str) -> Result<String, CaseError> {
    match testbed.host().execute(step) {
        Ok(()) => Err(CaseError::Failed(format!("`{step}` succeeded, expected {reason}"))),
        Err(error) if error.reason() == reason => Ok(format_error_chain(&error)),
        Err(error) => {
            Err(CaseError::Failed(format!("`{step}`: expected {reason}, got {}", describe(&error))))
        }
    }
}

fn describe(error: &HostError) -> String {
    format!("{}: {}", error.reason(), format_error_chain(error))
}

/// Executes steps one after the other.
pub fn execute(testbed: &dyn TestBed, steps: &[Step]) -> CaseResult {
    steps.iter().try_for_each(|step| {
        testbed
            .host()
            .execute(step)
            .map_err(|error| CaseError::Failed(format!("`{step}`: {}", describe(&error))))
    })
}

/// Observes the card after udev has settled.
pub fn observe_pf(testbed: &dyn TestBed) -> Result<ObservedPf, CaseError> {
    testbed.admin().settle()?;
    testbed.observer().pf(testbed.pf())
}

/// Observes one VF of the card.
pub fn observe_vf(testbed: &dyn TestBed, index: u16) -> Result<ObservedVf, CaseError> {
    let vfs = observe_pf(testbed)?.vfs;
    expect_some(&format!("VF {index}"), vfs.into_iter().nth(index.into()))
}

/// Observes the interface of one VF of the card.
pub fn observe_vf_link(testbed: &dyn TestBed, index: u16) -> Result<ObservedLink, CaseError> {
    expect_some(&format!("the interface of VF {index}"), observe_vf(testbed, index)?.link)
}

/// Reads the facts of the card from the host.
pub fn read_pf_facts(testbed: &dyn TestBed) -> Result<PfFacts, CaseError> {
    let facts = testbed.host().facts()?;
    expect_some("the PF among the facts", facts.pf(testbed.pf()).cloned())
}

/// Compares the facts of the host with the observed card; returns the observed card.
pub fn compare_pf(testbed: &dyn TestBed) -> Result<ObservedPf, CaseError> {
    let observed = observe_pf(testbed)?;
    expect_eq(
        "the facts",
        &ObservedPf::from_facts(&read_pf_facts(testbed)?),
        &observed.clone().as_in_facts(),
    )?;
    Ok(observed)
}

/// Compares the facts of the host with the observed embedded switch; returns the observed one.
pub fn compare_eswitch(testbed: &dyn TestBed) -> Result<ObservedEswitch, CaseError> {
    testbed.admin().settle()?;
    let observed = testbed.observer().eswitch(testbed.pf())?;
    expect_eq(
        "the eswitch in the facts",
        &ObservedEswitch::from_facts(&read_pf_facts(testbed)?),
        &observed.clone().as_in_facts(),
    )?;
    Ok(observed)
}

/// Compares the facts of the host with the observed GUIDs; returns the observed ones.
pub fn compare_guids(testbed: &dyn TestBed) -> Result<ObservedGuids, CaseError> {
    let observed = testbed.observer().guids(testbed.pf())?;
    expect_eq("the GUIDs in the facts", &ObservedGuids::from_facts(&read_pf_facts(testbed)?), &observed)?;
    Ok(observed)
}

/// Compares the facts of the host with the observed vDPA devices, by VF; returns the observed ones.
pub fn compare_vdpa(testbed: &dyn TestBed) -> Result<Vec<Option<VdpaKind>>, CaseError> {
    let observed = testbed.observer().vdpa(testbed.pf())?;
    let reported: Vec<_> = read_pf_facts(testbed)?.vfs.into_iter().map(|vf| vf.vdpa).collect();
    expect_eq("the vDPA devices in the facts", &reported, &observed)?;
    Ok(observed)
}

/// Compares the facts of the host with the observed firmware settings; returns the observed ones.
pub fn compare_firmware(testbed: &dyn TestBed) -> Result<Option<FirmwareFacts>, CaseError> {
    let observed = testbed.observer().firmware(testbed.pf())?;
    expect_eq("the firmware in the facts", &read_pf_facts(testbed)?.firmware, &observed)?;
    Ok(observed)
}

/// Returns a reference to a VF of the card.
pub fn vf_ref(testbed: &dyn TestBed, index: u16) -> VfRef {
    VfRef { pf: testbed.pf(), index }
}

/// Returns the step that binds a VF of the card to the named driver, or to the kernel's driver if `driver` is `None`.
pub fn bind_step(testbed: &dyn TestBed, index: u16, driver: Option<&str>) -> Step {
    let driver = driver.map_or(VfDriver::Kernel, |name| VfDriver::Named(name.to_owned()));
    Step::BindVf { vf: vf_ref(testbed, index), driver }
}
