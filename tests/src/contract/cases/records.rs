//! Records of PFs.

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{CardIdentity, Fact, OriginalState, Record, Step};

use super::cases;
use crate::contract::check::{ensure, execute, expect_eq, expect_some};
use crate::contract::specs;
use crate::contract::testbed::{CaseError, CaseResult, TestBed};

cases! {
    writes_a_record: NoVfs,
    a_record_is_accessible_only_by_root: NoVfs,
    replaces_a_record: NoVfs,
    removes_a_record: NoVfs,
    a_record_is_read_by_the_next_process: NoVfs,
    keeps_the_record_of_a_removed_card: NoVfs,
    the_copy_is_read_instead_of_a_damaged_record: NoVfs,
    a_card_with_a_damaged_record_and_copy_is_unreadable: NoVfs,
}

fn record(pf: PciAddress, num_vfs: i64) -> Record {
    Record {
        original: OriginalState { mtu: Some(1500), ..Default::default() },
        vf_macs: [(1, MacAddr([2, 0, 0, 0, 0, 1]))].into(),
        mtu_changes: [1].into(),
        representors_replayed: true,
        identity: CardIdentity {
            alt_names: Fact::Value(vec!["enp1s0f0".to_owned()]),
            net_filter: Fact::None,
            ..Default::default()
        },
        ..Record::taken_over(pf, specs::interface(pf, num_vfs))
    }
}

fn write_step(record: &Record) -> Step {
    Step::WriteRecord { record: record.clone() }
}

fn read_record(testbed: &dyn TestBed, pf: PciAddress) -> Result<serde_json::Value, CaseError> {
    expect_some("the record", testbed.observer().record(pf)?)?.parse_json()
}

fn writes_a_record(testbed: &dyn TestBed) -> CaseResult {
    let record = record(testbed.pf(), 4);
    execute(testbed, &[write_step(&record)])?;
    let content = read_record(testbed, testbed.pf())?;
    expect_eq("the PF in the record", &content["pf"], &testbed.pf().to_string().into())?;
    expect_eq("the number of VFs in the record", &content["interface"]["numVfs"], &4.into())?;
    expect_eq("the original MTU", &content["firstSeen"]["mtu"], &1500.into())?;
    expect_eq("the records", &testbed.host().facts()?.records, &vec![record])
}

fn a_record_is_accessible_only_by_root(testbed: &dyn TestBed) -> CaseResult {
    execute(testbed, &[write_step(&record(testbed.pf(), 4))])?;
    let no_file = || CaseError::Unsupported("records of the test bed have no permissions".to_owned());
    let mode =
        expect_some("the record", testbed.observer().record(testbed.pf())?)?.mode.ok_or_else(no_file)?;
    ensure(mode == 0o600, format!("permissions {mode:o}"))
}

fn replaces_a_record(testbed: &dyn TestBed) -> CaseResult {
    let making = Record { creating_vfs: true, ..record(testbed.pf(), 4) };
    let created = record(testbed.pf(), 2);
    execute(testbed, &[write_step(&making), write_step(&making), write_step(&created)])?;
    expect_eq(
        "whether VFs are being created",
        &read_record(testbed, testbed.pf())?["making"],
        &false.into(),
    )?;
    expect_eq("the records", &testbed.host().facts()?.records, &vec![created])
}

fn removes_a_record(testbed: &dyn TestBed) -> CaseResult {
    let (pf, other) = (testbed.pf(), record(testbed.other_pf(), 1));
    execute(testbed, &[write_step(&record(pf, 4)), write_step(&other)])?;
    execute(testbed, &[Step::RemoveRecord { pf }, Step::RemoveRecord { pf }])?;
    expect_eq("the record", &testbed.observer().record(pf)?, &None)?;
    expect_eq("the records", &testbed.host().facts()?.records, &vec![other])
}

fn a_record_is_read_by_the_next_process(testbed: &dyn TestBed) -> CaseResult {
    let record = record(testbed.pf(), 4);
    execute(testbed, &[write_step(&record)])?;
    expect_eq("the records", &testbed.new_host().facts()?.records, &vec![record])
}

fn keeps_the_record_of_a_removed_card(testbed: &dyn TestBed) -> CaseResult {
    let Some(gone) = PciAddress::new(0, 0xfe, 0, 0) else { return Ok(()) };
    let (first, last) = (record(testbed.pf(), 4), record(gone, 1));
    execute(testbed, &[write_step(&last), write_step(&first)])?;
    expect_eq("the records", &testbed.host().facts()?.records, &vec![first, last])?;
    execute(testbed, &[Step::RemoveRecord { pf: gone }])
}

fn the_copy_is_read_instead_of_a_damaged_record(testbed: &dyn TestBed) -> CaseResult {
    let pf = testbed.pf();
    execute(testbed, &[write_step(&record(pf, 4))])?;
    testbed.admin().truncate_record(pf, false)?;
    let facts = testbed.host().facts()?;
    expect_eq("the records", &facts.records, &vec![Record::taken_over(pf, record(pf, 4).interface)])?;
    expect_eq("the unreadable cards", &facts.unreadable, &Vec::new())?;
    execute(testbed, &[write_step(&record(pf, 2))])?;
    expect_eq("the records", &testbed.host().facts()?.records, &vec![record(pf, 2)])
}

fn a_card_with_a_damaged_record_and_copy_is_unreadable(testbed: &dyn TestBed) -> CaseResult {
    let (pf, other) = (testbed.pf(), record(testbed.other_pf(), 1));
    execute(testbed, &[write_step(&record(pf, 4)), write_step(&other)])?;
    testbed.admin().truncate_record(pf, true)?;
    let facts = testbed.host().facts()?;
    expect_eq("the records", &facts.records, &vec![other])?;
    expect_eq("the unreadable records", &facts.unreadable_records, &[pf].into())?;
    expect_eq("whether facts of the card are reported", &facts.pf(pf).is_some(), &false)?;
    let unread = expect_some("the reason", facts.unreadable(pf))?;
    expect_eq("the reason", unread.reason, "RecordDamaged")?;
    ensure(unread.error.contains("remove it"), unread.error.clone())?;
    execute(testbed, &[Step::RemoveRecord { pf }])?;
    expect_eq("the unreadable records", &testbed.host().facts()?.unreadable_records, &[].into())
}
