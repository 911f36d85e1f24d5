//! What can be made to go wrong with a simulated machine. That it obeys its steps as a kernel does is the business of
//! the contract suite.

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

/// The outcomes of steps that set these MTUs.
fn try_mtus(host: &SimHost, mtus: &[u32]) -> Vec<&'static str> {
    let outcome = |mtu: &u32| host.execute(&set_mtu(*mtu)).map_or_else(|error| error.reason(), |()| "Ok");
    mtus.iter().map(outcome).collect()
}

#[test]
fn a_step_can_fail() {
    let host = host();
    host.fail_at(1);
    assert_eq!(try_mtus(&host, &[2000, 3000, 4000]), ["Ok", "Injected", "Ok"]);
    assert_eq!(host.executed(), ["set 0000:01:00.0 mtu 2000", "set 0000:01:00.0 mtu 4000"]);
}

#[test]
fn a_step_can_hang() {
    let host = host();
    host.hang_at(0);
    assert_eq!(try_mtus(&host, &[2000]), ["DeadlineExceeded"]);
    assert_eq!(mtu(&host), 1500);
}

#[test]
fn a_process_can_die_and_the_machine_stays() {
    let host = host();
    host.cut_at(1);
    assert_eq!(try_mtus(&host, &[2000, 3000, 4000]), ["Ok", "CutOff", "CutOff"]);
    assert_eq!(host.facts().unwrap_err().reason(), "CutOff");
    assert!(host.on_change(Box::new(|| {})).is_err());
    assert_eq!(mtu(&host), 2000);
    assert_eq!(host.another().facts().unwrap().pfs.len(), 2, "only this process is dead");

    host.restart();
    assert_eq!(try_mtus(&host, &[3000]), ["Ok"]);
}

#[test]
fn what_the_kernel_refuses_was_tried() {
    let host = host();
    assert_eq!(try_mtus(&host, &[10_000]), ["NetlinkRefused"]);
    assert_eq!(host.executed(), ["set 0000:01:00.0 mtu 10000"]);
    assert!(host.another().executed().is_empty(), "by this process");
}

#[test]
fn every_process_is_woken_unless_nothing_is_announced() {
    let host = host();
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let watch = host
        .another()
        .on_change(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }))
        .unwrap();
    host.execute(&set_mtu(2000)).unwrap();
    host.execute(&Step::SetAutoprobe { pf: pf(), on: false }).unwrap();
    host.behind_its_back(|kernel| kernel.set_up(pf(), true)).unwrap();
    assert_eq!(woken.load(Ordering::Relaxed), 2);
    drop(watch);
    host.execute(&set_mtu(3000)).unwrap();
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}

#[test]
fn who_is_woken_may_look_at_once() {
    let host = Arc::new(host());
    let (sender, seen) = mpsc::channel();
    let looking = host.another();
    let _watch = host
        .on_change(Box::new(move || {
            let _ = sender.send(looking.facts().map(|facts| facts.pfs.len()).map_err(|error| error.reason()));
        }))
        .unwrap();
    host.execute(&set_mtu(2000)).unwrap();
    assert_eq!(seen.try_recv(), Ok(Ok(2)));
}

#[test]
fn a_step_can_be_made_to_wait() {
    let host = Arc::new(host());
    let (let_go, wait) = mpsc::sync_channel::<()>(0);
    let wait = std::sync::Mutex::new(wait);
    host.before_each_step(move |_| {
        let _ = wait.lock().unwrap().recv();
    });
    let slow = Arc::clone(&host);
    let step = thread::spawn(move || slow.execute(&set_mtu(2000)).is_ok());
    assert_eq!(host.facts().unwrap().pfs.len(), 2, "others go on meanwhile");
    assert_eq!(mtu(&host), 1500);
    let_go.send(()).unwrap();
    assert!(step.join().unwrap());
    assert_eq!(mtu(&host), 2000);
}

#[test]
fn nodes_have_addresses_of_their_own() {
    let mut machine = Machine::lab();
    machine.pfs[0].mac = None;
    let mac = |seed| -> MacAddr {
        SimHost::new(&machine, seed).unwrap().kernel().pf(pf()).unwrap().link.as_ref().unwrap().mac
    };
    assert_eq!(mac("node-1"), mac("node-1"));
    assert_ne!(mac("node-1"), mac("node-2"));
}
