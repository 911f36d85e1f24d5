//! Being told of changes.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use vfleet_api::MacAddr;
use vfleet_host::Watch;
use vfleet_plan::Step;
use vfleet_plan::files::GUIDS;

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{ensure, execute, vf};

const DEADLINE: Duration = Duration::from_secs(10);

cases! {
    wakes_when_others_make_and_remove_vfs: NoVfs,
    wakes_when_others_change_an_mtu: NoVfs,
    wakes_when_others_set_it_up: NoVfs,
    wakes_when_others_change_a_vf: VfsMadeUp,
    wakes_when_the_file_of_guids_changes: NoVfs,
    wakes_when_a_module_is_installed: NoVfs,
    wakes_every_watcher: NoVfs,
    wakes_after_its_own_steps: NoVfs,
    a_dropped_watch_lets_go: NoVfs,
}

pub(super) fn watch(bench: &dyn Bench) -> Result<(Watch, Receiver<()>), Stop> {
    let (sender, woken) = mpsc::channel();
    let watch = bench.host().on_change(Box::new(move || {
        let _ = sender.send(());
    }))?;
    Ok((watch, woken))
}

/// `change` wakes. What came before it does not count.
pub(super) fn wakes(
    bench: &dyn Bench,
    woken: &Receiver<()>,
    what: &str,
    change: impl FnOnce() -> Shown,
) -> Shown {
    bench.outsider().settle()?;
    while woken.try_recv().is_ok() {}
    change()?;
    ensure(woken.recv_timeout(DEADLINE).is_ok(), format!("{what}: nobody was woken"))
}

fn wakes_when_others_make_and_remove_vfs(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    for count in [1, 0] {
        let change = || bench.outsider().set_num_vfs(bench.pf(), count);
        wakes(bench, &woken, &format!("{count} VFs"), change)?;
    }
    Ok(())
}

fn wakes_when_others_change_an_mtu(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    wakes(bench, &woken, "another MTU", || bench.outsider().set_mtu(bench.pf(), 3000))
}

fn wakes_when_others_set_it_up(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    wakes(bench, &woken, "up", || bench.outsider().set_up(bench.pf(), true))
}

fn wakes_when_others_change_a_vf(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    let mac = MacAddr([2, 0, 0, 0, 0xcc, 1]);
    wakes(bench, &woken, "another address", || bench.outsider().set_vf_mac(vf(bench, 0), mac))?;
    wakes(bench, &woken, "another name", || bench.outsider().rename(vf(bench, 0), "contract0"))?;
    wakes(bench, &woken, "no driver", || bench.outsider().unbind(vf(bench, 0)))
}

fn wakes_when_the_file_of_guids_changes(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    for text in [Some("[]\n"), Some("[{}]\n"), None, Some("[]\n"), None] {
        let change = || bench.outsider().write_file(GUIDS, text);
        wakes(bench, &woken, &format!("the file of GUIDs is {text:?}"), change)?;
    }
    Ok(())
}

fn wakes_when_a_module_is_installed(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    for _ in 0..2 {
        wakes(bench, &woken, "another list of modules", || bench.outsider().list_modules_anew())?;
    }
    Ok(())
}

fn wakes_every_watcher(bench: &dyn Bench) -> Shown {
    let (_first, first_woken) = watch(bench)?;
    let (_second, second_woken) = watch(bench)?;
    wakes(bench, &first_woken, "the first", || bench.outsider().set_mtu(bench.pf(), 3000))?;
    ensure(second_woken.recv_timeout(DEADLINE).is_ok(), "the second was not woken")
}

fn wakes_after_its_own_steps(bench: &dyn Bench) -> Shown {
    let (_watch, woken) = watch(bench)?;
    let step = Step::SetPfMtu { pf: bench.pf(), mtu: 3000 };
    wakes(bench, &woken, "its own step", || execute(bench, &[step]))
}

fn a_dropped_watch_lets_go(bench: &dyn Bench) -> Shown {
    let (watch, woken) = watch(bench)?;
    drop(watch);
    // The wake is gone when its sender is: what is received until then was on its way.
    while woken.recv_timeout(DEADLINE).is_ok() {}
    let is_gone = woken.try_recv() == Err(mpsc::TryRecvError::Disconnected);
    ensure(is_gone, "the wake is still there")
}
