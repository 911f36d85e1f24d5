//! Addresses that somebody else gave to VFs are kept when the VFs are made anew, whatever happens on the way.

use vfleet_api::{MacAddr, PciAddress, SriovNetworkNodeStateSpec, VfRef};
use vfleet_host::sim::{Kernel, Machine};
use vfleet_host::{Host, SimHost};
use vfleet_plan::plan_node;

const GIVEN: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn pf() -> PciAddress {
    "0000:01:00.0".parse().unwrap()
}

fn vfs(count: u16) -> SriovNetworkNodeStateSpec {
    let last = count - 1;
    serde_saphyr::from_str(&format!(
        "interfaces: [{{pciAddress: '{}', numVfs: {count}, name: enp1s0,
           vfGroups: [{{deviceType: netdevice, vfRange: 0-{last}, policyName: p}}]}}]",
        pf()
    ))
    .unwrap()
}

/// Four VFs that the Go daemon made. One of them was then given another address by hand.
fn taken_over() -> SimHost {
    let machine = Machine { go_records: vfs(4).interfaces.unwrap(), ..Machine::lab() };
    let host = SimHost::new(&machine, "kept").unwrap();
    host.behind_its_back(|kernel| {
        kernel.set_up(pf(), true).unwrap();
        kernel.set_num_vfs(pf(), 4).unwrap();
        kernel.set_vf_mac(VfRef { pf: pf(), index: 1 }, GIVEN).unwrap();
    });
    host
}

fn macs(host: &SimHost) -> Vec<MacAddr> {
    host.facts().unwrap().pf(pf()).unwrap().vfs.iter().map(|vf| vf.admin_mac.unwrap()).collect()
}

/// Follows plans until there is nothing left to do, or the process is cut off.
fn follow(host: &SimHost, spec: &SriovNetworkNodeStateSpec) {
    while let Ok(facts) = host.facts() {
        let plan = plan_node(spec, &facts);
        assert!(plan.problems.is_empty(), "{plan:?}");
        if plan.steps.is_empty() || plan.steps.iter().any(|planned| host.execute(&planned.step).is_err()) {
            return;
        }
    }
}

#[test]
fn cut_off_anywhere_vfs_keep_the_addresses_that_they_had() {
    let (before, all) = {
        let host = taken_over();
        let before = macs(&host);
        assert!(before[1] == GIVEN && before.iter().all(|mac| mac.is_usable()), "{before:?}");
        follow(&host, &vfs(6));
        (before, macs(&host))
    };
    assert_eq!((all.len(), &all[..4]), (6, &before[..]));
    let steps = {
        let host = taken_over();
        follow(&host, &vfs(6));
        host.executed().len()
    };
    for cut in 0..steps {
        let host = taken_over();
        host.cut_at(cut);
        follow(&host, &vfs(6));
        host.restart();
        follow(&host, &vfs(6));
        assert_eq!(macs(&host), all, "cut at step {cut}");
    }
}

#[test]
fn they_come_again_after_a_restart_of_the_machine_and_after_fewer_vfs() {
    let host = taken_over();
    let before = macs(&host);
    follow(&host, &vfs(6));
    host.behind_its_back(Kernel::reboot);
    host.restart();
    follow(&host, &vfs(4));
    assert_eq!(macs(&host), before);
    follow(&host, &vfs(1));
    follow(&host, &vfs(4));
    assert_eq!(macs(&host), before);
}

#[test]
fn what_was_given_last_counts() {
    let host = taken_over();
    follow(&host, &vfs(6));
    let other = MacAddr([2, 0, 0, 0, 0, 10]);
    host.behind_its_back(|kernel| kernel.set_vf_mac(VfRef { pf: pf(), index: 1 }, other)).unwrap();
    follow(&host, &vfs(5));
    assert_eq!(macs(&host)[1], other);
}
