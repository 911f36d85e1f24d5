//! Simulated machine as a whole: reboots, kernel arguments, modules, cards that hang, slow steps.

#![expect(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vfleet_api::pool_config::RdmaMode;
use vfleet_api::{PciAddress, VfRef};
use vfleet_host::sim::{CardFirmware, Machine};
use vfleet_host::{Host, HostError, SimHost};
use vfleet_plan::files::MODULE_OPTIONS;
use vfleet_plan::{
    BootLoader, DEFAULT_PROTECTION_TIME, EswitchMode, FirmwareSettings, HostFile, HostUse, LinkKind,
    ModuleState, Processor, Step, VfDriver, plan_node,
};

fn pf() -> PciAddress {
    Machine::lab().pfs[0].address
}

fn boot(machine: &Machine) -> SimHost {
    SimHost::new(machine, "machine").unwrap()
}

fn execute(host: &SimHost, steps: &[Step]) {
    for step in steps {
        host.execute(step).unwrap();
    }
}

fn bind(driver: &str) -> Step {
    Step::BindVf { vf: VfRef { pf: pf(), index: 0 }, driver: VfDriver::Named(driver.to_owned()) }
}

fn load(module: &str, options: &[&str]) -> Step {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Step::LoadModule { module: module.to_owned(), options }
}

/// Returns a machine with 4 of 64 VFs in its firmware settings, an eswitch, and loadable modules.
fn machine() -> Machine {
    let mut machine = Machine::lab();
    machine.pfs[0].eswitch = Some(EswitchMode::Legacy);
    machine.pfs[0].total_vfs = 64;
    machine.pfs[0].firmware = Some(CardFirmware {
        num_vfs: Some(4),
        link_types: vec!["ETH".to_owned()],
        ..CardFirmware::default()
    });
    machine.kernel.boot_loader = Some(BootLoader::Grubby);
    machine.kernel.modules = [("uio_pci_generic".to_owned(), ModuleState::Loadable)].into();
    machine
}

#[test]
fn a_reboot_keeps_only_what_is_on_a_disk() {
    let host = boot(&machine());
    let before = host.facts().unwrap();
    let file = HostFile { path: MODULE_OPTIONS.to_owned(), text: "\n".to_owned(), is_program: false };
    execute(
        &host,
        &[
            Step::SetLinkUp { pf: pf() },
            Step::SetPfMtu { pf: pf(), mtu: 9000 },
            Step::SetAutoprobe { pf: pf(), on: false },
            Step::SetEswitchMode { pf: pf(), mode: EswitchMode::Switchdev, trial: None },
            Step::SetNumVfs { pf: pf(), count: 2 },
            load("uio_pci_generic", &[]),
            Step::WriteFile { pf: None, file },
            Step::Reboot,
        ],
    );
    assert_eq!(host.facts().unwrap_err().reason(), "ProcessKilled", "the process ended with the reboot");
    assert_eq!(host.execute(&Step::SetLinkUp { pf: pf() }).unwrap_err().reason(), "ProcessKilled");
    host.restart_process();
    let after = host.facts().unwrap();
    assert_eq!(after.pfs, before.pfs);
    assert_eq!(after.kernel.modules, before.kernel.modules);
    assert_ne!(after.kernel.boot_id, before.kernel.boot_id);
    assert_eq!(after.files.len(), 1);
}

#[test]
fn every_process_ends_when_the_machine_reboots() {
    let host = boot(&machine());
    let other = host.new_process();
    host.modify_kernel(vfleet_host::sim::Kernel::reboot);
    assert!(host.facts().is_err() && other.facts().is_err());
    assert!(host.new_process().facts().is_ok());
}

#[test]
fn firmware_settings_take_effect_after_a_reboot() {
    let host = boot(&machine());
    let settings = FirmwareSettings {
        num_vfs: Some(32),
        link_types: [Some(vfleet_plan::FirmwareLinkType::Infiniband), None],
        ..FirmwareSettings::default()
    };
    execute(&host, &[Step::SetFirmware { pf: pf(), settings }]);
    assert_eq!(host.facts().unwrap().pf(pf()).unwrap().total_vfs, 4);
    execute(&host, &[Step::Reboot]);
    host.restart_process();
    let facts = host.facts().unwrap();
    let pf = facts.pf(pf()).unwrap();
    assert_eq!((pf.total_vfs, pf.link.as_ref().unwrap().kind), (32, LinkKind::Infiniband));
    let firmware = pf.firmware.as_ref().unwrap();
    assert_eq!(firmware.current, firmware.next_boot);
}

fn add(argument: &str) -> Step {
    Step::SetKernelArguments {
        loader: BootLoader::Grubby,
        add: vec![argument.to_owned()],
        remove: vec!["quiet".to_owned()],
    }
}

#[test]
fn arguments_take_effect_after_a_reboot_and_enable_the_iommu() {
    let mut machine = machine();
    machine.kernel.processor = Processor::Intel;
    machine.kernel.iommu = false;
    "quiet splash".clone_into(&mut machine.kernel.command_line);
    for (keeps, expected) in [(true, ("splash intel_iommu=on", true)), (false, ("quiet splash", false))] {
        machine.kernel.keeps_arguments = keeps;
        let host = boot(&machine);
        execute(&host, &[add("intel_iommu=on")]);
        assert_eq!(host.facts().unwrap().kernel.command_line, "quiet splash");
        execute(&host, &[Step::Reboot]);
        host.restart_process();
        let kernel = host.facts().unwrap().kernel;
        assert_eq!((kernel.command_line.as_str(), kernel.has_iommu), expected);
    }
}

#[test]
fn the_rdma_mode_of_a_file_takes_effect_after_a_reboot() {
    let mut machine = machine();
    machine.pfs[0].rdma = true;
    let host = boot(&machine);
    assert_eq!(host.facts().unwrap().kernel.rdma_mode, Some(RdmaMode::Shared));
    let text = "options ib_core netns_mode=0\n".to_owned();
    let file = HostFile { path: MODULE_OPTIONS.to_owned(), text, is_program: false };
    execute(&host, &[Step::WriteFile { pf: None, file }]);
    assert_eq!(host.facts().unwrap().kernel.rdma_mode, Some(RdmaMode::Shared));
    execute(&host, &[Step::Reboot]);
    host.restart_process();
    assert_eq!(host.facts().unwrap().kernel.rdma_mode, Some(RdmaMode::Exclusive));
}

#[test]
fn vfio_needs_an_iommu_unless_it_is_configured_otherwise() {
    let mut machine = machine();
    machine.kernel.iommu = false;
    machine.pfs[0].num_vfs = 1;
    let host = boot(&machine);
    assert_eq!(host.execute(&bind("vfio-pci")).unwrap_err().reason(), "NoIommu");
    execute(&host, &[load("vfio", &["enable_unsafe_noiommu_mode=1"]), bind("vfio-pci")]);
}

#[test]
fn a_card_that_hangs_does_not_affect_others() {
    let host = boot(&Machine::lab());
    let other = Machine::lab().pfs[1].address;
    host.hang_card(pf());
    let facts = host.facts().unwrap();
    assert_eq!(facts.pfs.iter().map(|pf| pf.address).collect::<Vec<_>>(), [other]);
    assert_eq!((facts.unreadable[0].pf, facts.unreadable[0].reason), (pf(), "DeadlineExceeded"));
    let refused = host.execute(&Step::SetLinkUp { pf: pf() }).unwrap_err();
    assert!(matches!(refused, HostError::DeadlineExceeded { .. }), "{refused}");
    execute(&host, &[Step::SetLinkUp { pf: other }, Step::RemoveRecord { pf: pf() }]);
    host.resume_card(pf());
    assert_eq!(host.facts().unwrap().pfs.len(), 2);
}

#[test]
fn slow_steps_run_in_parallel() {
    let host = boot(&Machine::lab());
    host.set_step_delay(|_| Duration::from_millis(200));
    let start = Instant::now();
    thread::scope(|scope| {
        for pf in Machine::lab().pfs {
            let host = &host;
            scope.spawn(move || host.execute(&Step::SetLinkUp { pf: pf.address }).unwrap());
        }
        assert_eq!(host.facts().unwrap().pfs.len(), 2, "reads do not wait");
        assert!(start.elapsed() < Duration::from_millis(200));
    });
    let took = start.elapsed();
    assert!((200..400).contains(&took.as_millis()), "{took:?}");
}

#[test]
fn a_card_with_disabled_sriov_is_listed_without_vfs() {
    let mut machine = machine();
    machine.pfs[0].firmware.as_mut().unwrap().sriov = Some(false);
    let host = boot(&machine);
    let facts = host.facts().unwrap();
    assert_eq!((facts.pfs[0].address, facts.pfs[0].total_vfs), (pf(), 0));
    execute(&host, &[Step::SetNumVfs { pf: pf(), count: 0 }]);
    let refused = host.execute(&Step::SetNumVfs { pf: pf(), count: 1 }).unwrap_err();
    assert_eq!(refused.reason(), "TooManyVfs");
}

#[test]
fn a_lone_vf_has_no_autoprobe_file_and_can_always_be_bound() {
    let mut machine = Machine::lab();
    (machine.pfs[0].lone_vf, machine.pfs[0].num_vfs) = (true, 0);
    let host = boot(&machine);
    assert!(host.kernel().set_autoprobe(pf(), false).is_err());
    let bind_to_kernel_driver = Step::BindVf { vf: VfRef { pf: pf(), index: 0 }, driver: VfDriver::Kernel };
    execute(&host, &[bind("vfio-pci"), bind_to_kernel_driver]);
}

#[test]
fn a_vf_with_the_address_of_the_node_is_never_removed() {
    let mut machine = Machine::lab();
    machine.pfs[0].num_vfs = 2;
    let host = boot(&machine);
    let desired = serde_json::json!({"interfaces": [{"pciAddress": pf(), "name": "x", "numVfs": 3}]});
    let desired = serde_json::from_value(desired).unwrap();
    let removes_vfs = || {
        let plan = plan_node(&desired, &host.facts().unwrap());
        plan.steps.iter().any(|planned| planned.step == Step::SetNumVfs { pf: pf(), count: 0 })
    };
    let vf = VfRef { pf: pf(), index: 1 };
    for (host_use, expected) in [(None, true), (Some(HostUse::NodeAddress), false), (None, false)] {
        host.modify_kernel(|kernel| kernel.set_vf_host_use(vf, host_use)).unwrap();
        assert_eq!(removes_vfs(), expected, "{host_use:?}");
    }
    host.advance_clock(DEFAULT_PROTECTION_TIME / 2);
    assert!(!removes_vfs(), "still protected");
    host.advance_clock(DEFAULT_PROTECTION_TIME / 2);
    assert!(removes_vfs(), "protection has ended");
}

const DESCRIPTION: &str = r#"
pfs:
  - {address: "0000:3b:00.0", name: ens1f0, vendor: "15b3", device: "101d", vfDevice: "101e", driver: mlx5_core,
     vfDriver: mlx5_core, totalVfs: 64, vfOffset: 16, vfStride: 1, numVfs: 2, eswitch: legacy, linkKind: ETH,
     firmware: {sriov: true, numVfs: 16, linkTypes: [ETH]}, hostUse: nodeAddress}
userspaceDrivers: [vfio-pci]
kernel: {commandLine: "quiet", bootLoader: grubby, processor: intel, iommu: false, modules: {vhost_vdpa: loadable}}
enabledUnits: []
reboots: {needs: {x: {count: 1, bootId: y}}}
"#;

proptest! {
    /// A damaged description is an error, or a valid machine.
    #[test]
    fn accepts_damaged_descriptions(at in 0..DESCRIPTION.len(), byte in 0x20..0x7f_u8, length in 0..2 * DESCRIPTION.len()) {
        let mut bytes = DESCRIPTION.as_bytes().to_vec();
        bytes[at] = byte;
        bytes.truncate(length);
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(host) = SimHost::from_yaml(&text, "damaged") {
            prop_assert!(host.facts().is_ok());
        }
    }
}

#[test]
fn the_description_is_valid() {
    assert_eq!(SimHost::from_yaml(DESCRIPTION, "whole").unwrap().facts().unwrap().pfs[0].vfs.len(), 2);
}
