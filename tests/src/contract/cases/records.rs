//! What is written down about PFs.

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{CardIdentity, Fact, FirstSeen, Record, Step};

use super::cases;
use crate::contract::bench::{Bench, Shown, Stop};
use crate::contract::check::{ensure, execute, same, there};
use crate::contract::specs;

cases! {
    writes_a_record: NoVfs,
    a_record_is_for_root_alone: NoVfs,
    replaces_a_record: NoVfs,
    removes_a_record: NoVfs,
    a_record_is_there_for_the_next_process: NoVfs,
    keeps_the_record_of_a_card_that_is_gone: NoVfs,
    a_copy_stands_for_a_torn_record: NoVfs,
    a_card_whose_record_and_copy_are_torn_cannot_be_read: NoVfs,
}

fn record(pf: PciAddress, num_vfs: i64) -> Record {
    Record {
        first_seen: FirstSeen { mtu: Some(1500), ..Default::default() },
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

fn write(record: &Record) -> Step {
    Step::WriteRecord { record: record.clone() }
}

fn kept(bench: &dyn Bench, pf: PciAddress) -> Result<serde_json::Value, Stop> {
    there("the record", bench.witness().record(pf)?)?.content()
}

fn writes_a_record(bench: &dyn Bench) -> Shown {
    let record = record(bench.pf(), 4);
    execute(bench, &[write(&record)])?;
    let content = kept(bench, bench.pf())?;
    same("its PF", &content["pf"], &bench.pf().to_string().into())?;
    same("its number of VFs", &content["interface"]["numVfs"], &4.into())?;
    same("the MTU before", &content["firstSeen"]["mtu"], &1500.into())?;
    same("the records", &bench.host().facts()?.records, &vec![record])
}

fn a_record_is_for_root_alone(bench: &dyn Bench) -> Shown {
    execute(bench, &[write(&record(bench.pf(), 4))])?;
    let no_file = || Stop::CannotShow("its records are no files, and have no permissions".to_owned());
    let mode = there("the record", bench.witness().record(bench.pf())?)?.mode.ok_or_else(no_file)?;
    ensure(mode == 0o600, format!("permissions {mode:o}"))
}

fn replaces_a_record(bench: &dyn Bench) -> Shown {
    let making = Record { making: true, ..record(bench.pf(), 4) };
    let made = record(bench.pf(), 2);
    execute(bench, &[write(&making), write(&making), write(&made)])?;
    same("whether VFs are being made", &kept(bench, bench.pf())?["making"], &false.into())?;
    same("the records", &bench.host().facts()?.records, &vec![made])
}

fn removes_a_record(bench: &dyn Bench) -> Shown {
    let (pf, other) = (bench.pf(), record(bench.other_pf(), 1));
    execute(bench, &[write(&record(pf, 4)), write(&other)])?;
    execute(bench, &[Step::RemoveRecord { pf }, Step::RemoveRecord { pf }])?;
    same("the record", &bench.witness().record(pf)?, &None)?;
    same("the records", &bench.host().facts()?.records, &vec![other])
}

fn a_record_is_there_for_the_next_process(bench: &dyn Bench) -> Shown {
    let record = record(bench.pf(), 4);
    execute(bench, &[write(&record)])?;
    same("the records", &bench.new_host().facts()?.records, &vec![record])
}

fn keeps_the_record_of_a_card_that_is_gone(bench: &dyn Bench) -> Shown {
    let Some(gone) = PciAddress::new(0, 0xfe, 0, 0) else { return Ok(()) };
    let (first, last) = (record(bench.pf(), 4), record(gone, 1));
    execute(bench, &[write(&last), write(&first)])?;
    same("the records", &bench.host().facts()?.records, &vec![first, last])?;
    execute(bench, &[Step::RemoveRecord { pf: gone }])
}

fn a_copy_stands_for_a_torn_record(bench: &dyn Bench) -> Shown {
    let pf = bench.pf();
    execute(bench, &[write(&record(pf, 4))])?;
    bench.outsider().tear_record(pf, false)?;
    let facts = bench.host().facts()?;
    same("the records", &facts.records, &vec![Record::taken_over(pf, record(pf, 4).interface)])?;
    same("the cards that cannot be read", &facts.unread, &Vec::new())?;
    execute(bench, &[write(&record(pf, 2))])?;
    same("the records", &bench.host().facts()?.records, &vec![record(pf, 2)])
}

fn a_card_whose_record_and_copy_are_torn_cannot_be_read(bench: &dyn Bench) -> Shown {
    let (pf, other) = (bench.pf(), record(bench.other_pf(), 1));
    execute(bench, &[write(&record(pf, 4)), write(&other)])?;
    bench.outsider().tear_record(pf, true)?;
    let facts = bench.host().facts()?;
    same("the records", &facts.records, &vec![other])?;
    same("the records that cannot be read", &facts.unread_records, &[pf].into())?;
    same("whether the card is read", &facts.pf(pf).is_some(), &false)?;
    let unread = there("the reason", facts.unread(pf))?;
    same("the reason", unread.reason, "RecordDamaged")?;
    ensure(unread.error.contains("remove it"), unread.error.clone())?;
    execute(bench, &[Step::RemoveRecord { pf }])?;
    same("the records that cannot be read", &bench.host().facts()?.unread_records, &[].into())
}
