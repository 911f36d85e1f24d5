//! MACs that something else gave to VFs are kept when the VFs are created again, also after interruptions.

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

/// Returns a host with four VFs of the Go daemon, one of them with a manually set MAC.
fn taken_over() -> SimHost {
    let machine = Machine { go_records: vfs(4).interfaces.unwrap(), ..Machine::lab() };
    let host = SimHost::new(&machine, "kept").unwrap();
    host.modify_kernel(|kernel| {
        kernel.set_link_up(pf(), true).unwrap();
        kernel.set_num_vfs(pf(), 4).unwrap();
        kernel.set_vf_mac(VfRef { pf: pf(), index: 1 }, GIVEN).unwrap();
    });
    host
}

fn macs(host: &SimHost) -> Vec<MacAddr> {
    host.facts().unwrap().pf(pf()).unwrap().vfs.iter().map(|vf| vf.admin_mac.unwrap()).collect()
}

/// Executes plans until no steps are left, or the process is interrupted.
fn settle(host: &SimHost, spec: &SriovNetworkNodeStateSpec) {
    while let Ok(facts) = host.facts() {
        let plan = plan_node(spec, &facts);
        assert!(plan.problems.is_empty(), "{plan:?}");
        if plan.steps.is_empty() || plan.steps.iter().any(|planned| host.execute(&planned.step).is_err()) {
            return;
        }
    }
}

#[test]
fn vfs_keep_their_macs_after_an_interruption_at_any_step() {
    let (before, all) = {
        let host = taken_over();
        let before = macs(&host);
        assert!(before[1] == GIVEN && before.iter().all(|mac| mac.is_usable()), "{before:?}");
        settle(&host, &vfs(6));
        (before, macs(&host))
    };
    assert_eq!((all.len(), &all[..4]), (6, &before[..]));
    let steps = {
        let host = taken_over();
        settle(&host, &vfs(6));
        host.executed_steps().len()
    };
    for cut in 0..steps {
        let host = taken_over();
        host.kill_at(cut);
        settle(&host, &vfs(6));
        host.restart_process();
        settle(&host, &vfs(6));
        assert_eq!(macs(&host), all, "cut at step {cut}");
    }
}

#[test]
fn macs_return_after_a_reboot_and_after_fewer_vfs() {
    let host = taken_over();
    let before = macs(&host);
    settle(&host, &vfs(6));
    host.modify_kernel(Kernel::reboot);
    host.restart_process();
    settle(&host, &vfs(4));
    assert_eq!(macs(&host), before);
    settle(&host, &vfs(1));
    settle(&host, &vfs(4));
    assert_eq!(macs(&host), before);
}

#[test]
fn the_last_mac_counts() {
    let host = taken_over();
    settle(&host, &vfs(6));
    let other = MacAddr([2, 0, 0, 0, 0, 10]);
    host.modify_kernel(|kernel| kernel.set_vf_mac(VfRef { pf: pf(), index: 1 }, other)).unwrap();
    settle(&host, &vfs(5));
    assert_eq!(macs(&host)[1], other);
}
