//! What is written down about PFs.

use vfleet_api::{MacAddr, PciAddress};
use vfleet_plan::{FirstSeen, Record, Step};

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
}

fn record(pf: PciAddress, num_vfs: i64) -> Record {
    Record {
        pf,
        interface: specs::interface(pf, num_vfs),
        first_seen: FirstSeen { mtu: Some(1500), ..Default::default() },
        raised_mtu: None,
        vf_macs: [(1, MacAddr([2, 0, 0, 0, 0, 1]))].into(),
        making: false,
        refused_orders: Vec::new(),
        mtu_changes: [1].into(),
        representors_replayed: true,
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
