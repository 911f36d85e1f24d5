//! Kernel module of the lab that adds an embedded switch to a card.

use std::path::Path;

use vfleet_api::PciAddress;

use super::tools::run;
use crate::contract::testbed::CaseResult;

const MODULE: &str = "labswitch";

/// Adds an embedded switch in legacy mode to a card. `rule` is a parameter of the module that restricts mode changes.
pub(super) fn load(pf: PciAddress, rule: &str) -> CaseResult {
    run("modprobe", &[MODULE, &format!("only={pf}"), rule])?;
    run("udevadm", &["settle"]).map(drop)
}

/// Removes the embedded switch, if there is one.
pub(super) fn unload() -> CaseResult {
    if Path::new("/sys/module").join(MODULE).exists() {
        run("modprobe", &["-r", MODULE])?;
    }
    Ok(())
}
