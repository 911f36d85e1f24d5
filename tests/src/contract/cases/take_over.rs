//! Records of the Go daemon: read when it was there first, and kept for the way back to it.

use vfleet_api::node_state::Interface;
use vfleet_plan::{FirstSeen, Record, Step};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{execute, same, there};
use crate::contract::specs::{group, interface, with_groups};

cases! {
    takes_over_a_record_of_the_go_daemon: NoVfs,
    keeps_what_was_first_seen_when_the_go_daemon_ran_last: NoVfs,
    writes_the_go_daemons_record_too: NoVfs,
    removes_the_go_daemons_record_too: NoVfs,
}

fn wanted(bench: &dyn Bench, num_vfs: i64) -> Interface {
    with_groups(bench.pf(), num_vfs, None, vec![group("netdevice", (0, 0), None)])
}

fn record(bench: &dyn Bench, num_vfs: i64) -> Record {
    Record {
        first_seen: FirstSeen { mtu: Some(1600), ..FirstSeen::default() },
        ..Record::taken_over(bench.pf(), wanted(bench, num_vfs))
    }
}

fn records(bench: &dyn Bench) -> Result<Vec<Record>, Stop> {
    Ok(bench.host().facts()?.records)
}

fn takes_over_a_record_of_the_go_daemon(bench: &dyn Bench) -> Shown {
    bench.outsider().write_go_record(&wanted(bench, 3))?;
    same("the records", &records(bench)?, &vec![Record::taken_over(bench.pf(), wanted(bench, 3))])?;
    same("the record of vfleet", &bench.witness().record(bench.pf())?, &None)
}

fn keeps_what_was_first_seen_when_the_go_daemon_ran_last(bench: &dyn Bench) -> Shown {
    let ours = record(bench, 4);
    execute(bench, &[Step::WriteRecord { record: ours.clone() }])?;
    bench.outsider().write_go_record(&wanted(bench, 2))?;
    same("the records", &records(bench)?, &vec![Record { interface: wanted(bench, 2), ..ours }])
}

fn writes_the_go_daemons_record_too(bench: &dyn Bench) -> Shown {
    execute(bench, &[Step::WriteRecord { record: record(bench, 4) }])?;
    let content = there("the Go daemon's record", bench.witness().go_record(bench.pf())?)?.content()?;
    same("its PF", &content["pciAddress"], &bench.pf().to_string().into())?;
    same("its number of VFs", &content["numVfs"], &4.into())?;
    same("the records", &records(bench)?, &vec![record(bench, 4)])
}

fn removes_the_go_daemons_record_too(bench: &dyn Bench) -> Shown {
    bench.outsider().write_go_record(&interface(bench.pf(), 3))?;
    execute(bench, &[Step::RemoveRecord { pf: bench.pf() }])?;
    same("the Go daemon's record", &bench.witness().go_record(bench.pf())?, &None)?;
    same("the records", &records(bench)?, &Vec::new())
}
