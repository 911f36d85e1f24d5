//! The lab's kernel module that gives a card an embedded switch.

use std::path::Path;

use vfleet_api::PciAddress;

use super::tools::run;
use crate::contract::bench::Shown;

const MODULE: &str = "labswitch";

/// Gives a card an embedded switch in legacy mode that follows `rule`, a parameter of the module.
pub(super) fn load(pf: PciAddress, rule: &str) -> Shown {
    run("modprobe", &[MODULE, &format!("only={pf}"), rule])?;
    run("udevadm", &["settle"]).map(drop)
}

/// Takes it away again, if it is there.
pub(super) fn unload() -> Shown {
    if Path::new("/sys/module").join(MODULE).exists() {
        run("modprobe", &["-r", MODULE])?;
    }
    Ok(())
}
