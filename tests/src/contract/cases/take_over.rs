//! Records of the Go daemon, which are read at take-over and kept up to date for the way back.

use vfleet_api::node_state::Interface;
use vfleet_plan::{OriginalState, Record, Step};

use super::cases;
use crate::contract::check::{execute, expect_eq, expect_some};
use crate::contract::specs::{group, interface, with_groups};
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    takes_over_a_record_of_the_go_daemon: NoVfs,
    keeps_the_original_state_when_the_go_daemon_ran_last: NoVfs,
    also_writes_the_record_of_the_go_daemon: NoVfs,
    also_removes_the_record_of_the_go_daemon: NoVfs,
}

fn desired(testbed: &dyn TestBed, num_vfs: i64) -> Interface {
    with_groups(testbed.pf(), num_vfs, None, vec![group("netdevice", (0, 0), None)])
}

fn record(testbed: &dyn TestBed, num_vfs: i64) -> Record {
    Record {
        original: OriginalState { mtu: Some(1600), ..OriginalState::default() },
        ..Record::taken_over(testbed.pf(), desired(testbed, num_vfs))
    }
}

fn records(testbed: &dyn TestBed) -> Result<Vec<Record>, CaseError> {
    Ok(testbed.host().facts()?.records)
}

fn takes_over_a_record_of_the_go_daemon(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().write_go_record(&desired(testbed, 3))?;
    expect_eq(
        "the records",
        &records(testbed)?,
        &vec![Record::taken_over(testbed.pf(), desired(testbed, 3))],
    )?;
    expect_eq("the record of vfleet", &testbed.observer().record(testbed.pf())?, &None)
}

fn keeps_the_original_state_when_the_go_daemon_ran_last(testbed: &dyn TestBed) -> CaseResult {
    let own = record(testbed, 4);
    execute(testbed, &[Step::WriteRecord { record: own.clone() }])?;
    testbed.admin().write_go_record(&desired(testbed, 2))?;
    expect_eq("the records", &records(testbed)?, &vec![Record { interface: desired(testbed, 2), ..own }])
}

fn also_writes_the_record_of_the_go_daemon(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[Step::WriteRecord { record: record(testbed, 4) }])?;
    let content = expect_some("the record of the Go daemon", testbed.observer().go_record(testbed.pf())?)?
        .parse_json()?;
    expect_eq("the PF in the record", &content["pciAddress"], &testbed.pf().to_string().into())?;
    expect_eq("the number of VFs in the record", &content["numVfs"], &4.into())?;
    expect_eq("the records", &records(testbed)?, &vec![record(testbed, 4)])
}

fn also_removes_the_record_of_the_go_daemon(testbed: &dyn TestBed) -> CaseResult {
    testbed.admin().write_go_record(&interface(testbed.pf(), 3))?;
    execute(testbed, &[Step::RemoveRecord { pf: testbed.pf() }])?;
    expect_eq("the record of the Go daemon", &testbed.observer().go_record(testbed.pf())?, &None)?;
    expect_eq("the records", &records(testbed)?, &Vec::new())
}
