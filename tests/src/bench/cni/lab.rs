//! Machine of the lab for benchmarks of the CNI plugins.

use anyhow::{Context, Result};
use fixture_lab::{Job, Options, Vm};
use serde::de::DeserializeOwned;

use super::CniPrograms;
use super::lab_pairs::PairTimes;
use super::lab_turns::Turns;
use crate::bench::operator::median;
use crate::bench::report::{Figure, Limit, Row, Unit};

/// Attachments by each of both, three for each VF.
const ROUNDS: usize = 42;
/// Pods that are attached at the same time.
const PODS: usize = 32;
const PLUGIN: &str = "/opt/cni/bin/sriov";
/// Installs the plugin, and creates all VFs of both cards.
const PREPARE: &str = "set -e
    mkdir -p $(dirname $1)
    ln $0 $1
    for pf in enp1s0 enp2s0; do
        ip link set $pf up
        echo 7 >/sys/class/net/$pf/device/sriov_numvfs
    done
    udevadm settle";

pub(super) fn rows(programs: CniPrograms<'_>, log: impl Fn(&str)) -> Result<Vec<Row>> {
    let vm = Vm::boot(&Options::default())?;
    let (program, in_lab) = (vm.install(programs.vfleet_cni)?, vm.install(programs.in_lab)?);
    vm.run(&Job::shell(PREPARE).arg(program).arg(PLUGIN))?.success()?;
    let times: PairTimes = run(&vm, &in_lab, &["attach-in-pairs", "--rounds", &ROUNDS.to_string()])?;
    log("32 pods at the same time, with 14 VFs (usually 30 s)");
    let turns: Turns = run(&vm, &in_lab, &["attach-in-turns", "--pods", &PODS.to_string()])?;
    turns.failures.iter().for_each(|failure| log(failure));

    let row = |what, unit, bare: Option<f64>, vfleet| Row {
        what,
        nodes: 1,
        unit,
        bare,
        vfleet: Some(Figure::Is(vfleet)),
        go: None,
        limit: None,
    };
    let pair = |what, bare, vfleet| {
        let bare = median(bare);
        let limit = Limit { text: "1.3x bare requests".to_owned(), maximum: 1.3 * bare };
        Row { limit: Some(limit), ..row(what, Unit::Time, Some(bare), median(vfleet)) }
    };
    let failures = f64::from(u32::try_from(turns.failures.len())?);
    Ok(vec![
        pair("ADD of a VF with VLAN, spoofchk, trust", times.bare.add, times.vfleet.add),
        pair("DEL", times.bare.delete, times.vfleet.delete),
        row("  VERSION, of which start and exit", Unit::Time, None, median(times.version)),
        Row {
            limit: Some(Limit { text: "0".to_owned(), maximum: 0.0 }),
            ..row("32 pods at once, 14 VFs in turns: failures", Unit::Count, None, failures)
        },
        row("  all attached and released", Unit::Time, None, turns.seconds),
    ])
}

fn run<T: DeserializeOwned>(vm: &Vm, in_lab: &str, arguments: &[&str]) -> Result<T> {
    let job = Job::new(in_lab).args(arguments.iter().copied()).args(["--plugin", PLUGIN]);
    let output = vm.run(&job)?.success()?;
    serde_json::from_str(&output).with_context(|| output.clone())
}
