//! Injected faults, watches and hooks of a simulated machine. The contract suite tests its steps.

#![expect(clippy::unwrap_used, reason = "in a test a failed expectation is the point")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use vfleet_api::{MacAddr, PciAddress};
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::Step;

fn host() -> SimHost {
    SimHost::new(&Machine::lab(), "sim").unwrap()
}

fn pf() -> PciAddress {
    Machine::lab().pfs[0].address
}

fn set_mtu(mtu: u32) -> Step {
    Step::SetPfMtu { pf: pf(), mtu }
}

fn mtu(host: &SimHost) -> u32 {
    host.kernel().pf(pf()).unwrap().link.as_ref().unwrap().mtu
}

/// Returns the outcomes of steps that set these MTUs.
fn try_mtus(host: &SimHost, mtus: &[u32]) -> Vec<&'static str> {
    let outcome = |mtu: &u32| host.execute(&set_mtu(*mtu)).map_or_else(|error| error.reason(), |()| "Ok");
    mtus.iter().map(outcome).collect()
}

#[test]
fn a_step_can_fail() {
    let host = host();
    host.fail_at(1);
    assert_eq!(try_mtus(&host, &[2000, 3000, 4000]), ["Ok", "InjectedFault", "Ok"]);
    assert_eq!(host.executed_steps(), ["set 0000:01:00.0 mtu 2000", "set 0000:01:00.0 mtu 4000"]);
}

#[test]
fn a_step_can_hang() {
    let host = host();
    host.hang_at(0);
    assert_eq!(try_mtus(&host, &[2000]), ["DeadlineExceeded"]);
    assert_eq!(mtu(&host), 1500);
}

#[test]
fn a_process_can_be_killed_and_the_machine_stays() {
    let host = host();
    host.kill_at(1);
    assert_eq!(try_mtus(&host, &[2000, 3000, 4000]), ["Ok", "ProcessKilled", "ProcessKilled"]);
    assert_eq!(host.facts().unwrap_err().reason(), "ProcessKilled");
    assert!(host.on_change(Box::new(|| {})).is_err());
    assert_eq!(mtu(&host), 2000);
    assert_eq!(host.new_process().facts().unwrap().pfs.len(), 2, "only this process is dead");

    host.restart_process();
    assert_eq!(try_mtus(&host, &[3000]), ["Ok"]);
}

#[test]
fn a_refused_step_counts_as_executed() {
    let host = host();
    assert_eq!(try_mtus(&host, &[10_000]), ["NetlinkRefused"]);
    assert_eq!(host.executed_steps(), ["set 0000:01:00.0 mtu 10000"]);
    assert!(host.new_process().executed_steps().is_empty(), "only the steps of this process");
}

#[test]
fn every_watch_is_notified_unless_the_change_causes_no_event() {
    let host = host();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let watch = host
        .new_process()
        .on_change(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }))
        .unwrap();
    host.execute(&set_mtu(2000)).unwrap();
    host.execute(&Step::SetAutoprobe { pf: pf(), on: false }).unwrap();
    host.modify_kernel(|kernel| kernel.set_link_up(pf(), true)).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    drop(watch);
    host.execute(&set_mtu(3000)).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn a_callback_may_read_the_facts() {
    let host = Arc::new(host());
    let (sender, received) = mpsc::channel();
    let reader = host.new_process();
    let _watch = host
        .on_change(Box::new(move || {
            let _ = sender.send(reader.facts().map(|facts| facts.pfs.len()).map_err(|error| error.reason()));
        }))
        .unwrap();
    host.execute(&set_mtu(2000)).unwrap();
    assert_eq!(received.try_recv(), Ok(Ok(2)));
}

#[test]
fn a_hook_can_delay_a_step() {
    let host = Arc::new(host());
    let (release, wait) = mpsc::sync_channel::<()>(0);
    let wait = std::sync::Mutex::new(wait);
    host.set_step_hook(move |_| {
        let _ = wait.lock().unwrap().recv();
    });
    let slow = Arc::clone(&host);
    let step = thread::spawn(move || slow.execute(&set_mtu(2000)).is_ok());
    assert_eq!(host.facts().unwrap().pfs.len(), 2, "reads do not wait");
    assert_eq!(mtu(&host), 1500);
    release.send(()).unwrap();
    assert!(step.join().unwrap());
    assert_eq!(mtu(&host), 2000);
}

#[test]
fn nodes_have_different_generated_addresses() {
    let mut machine = Machine::lab();
    machine.pfs[0].mac = None;
    let mac = |seed| -> MacAddr {
        SimHost::new(&machine, seed).unwrap().kernel().pf(pf()).unwrap().link.as_ref().unwrap().mac
    };
    assert_eq!(mac("node-1"), mac("node-1"));
    assert_ne!(mac("node-1"), mac("node-2"));
}
