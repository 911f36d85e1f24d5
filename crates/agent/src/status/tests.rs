use serde_json::json;
use vfleet_api::node_state::InterfaceExt;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, HostError, SimHost};
use vfleet_plan::cni::programs::ProgramOrigin;
use vfleet_plan::{
    Disruption, FailedQuery, PfFacts, Plan, PlannedStep, Step, Target, UnreadAttachments, UnreadableCard,
    plan_node,
};

use super::*;

mod bridges;
use crate::apply::ExecutionEvent;

fn state(generation: i64) -> SriovNetworkNodeState {
    let mut state = SriovNetworkNodeState::default();
    state.metadata.generation = Some(generation);
    state
}

fn reported(mut state: SriovNetworkNodeState, phase: &AttemptPhase<'_>) -> SriovNetworkNodeState {
    state.status = Some(build_status(&state, Some(&HostFacts::default()), &StatusContext::default(), phase));
    state
}

fn failure() -> Failure {
    Failure::Step {
        target: Target::Pf("0000:01:00.0".parse().unwrap()),
        step: "bind 0000:01:00.0 vf 0 to vfio-pci".to_owned(),
        needs_drain: true,
        source: HostError::DriverNotLoaded { driver: "vfio-pci".to_owned() },
    }
}

fn condition(state: &SriovNetworkNodeState, type_: &str) -> Condition {
    let conditions = state.status.clone().unwrap().conditions.unwrap();
    conditions.into_iter().find(|condition| condition.type_ == type_).unwrap()
}

#[test]
fn a_failure_is_reported_in_status_error_and_conditions() {
    let failed = reported(state(3), &AttemptPhase::Done(&[failure()]));
    let status = failed.status.clone().unwrap();
    assert_eq!(status.sync_status.as_deref(), Some(FAILED));
    assert!(status.last_sync_error.unwrap().contains("vfio-pci is not loaded"));
    let ready = condition(&failed, READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "DriverNotLoaded"));
    assert_eq!(ready.observed_generation, Some(3));
    assert_eq!(condition(&failed, DEGRADED).status, "True");
    assert!(!is_ready(&failed));
}

#[test]
fn a_success_clears_the_error() {
    let done = reported(reported(state(3), &AttemptPhase::Done(&[failure()])), &AttemptPhase::Done(&[]));
    assert_eq!(sync_result(done.status.as_ref().unwrap()), (Some(SUCCEEDED), ""));
    assert_eq!(condition(&done, DEGRADED).status, "False");
    assert!(is_ready(&done));
}

#[test]
fn a_success_with_an_older_spec_is_not_ready() {
    let mut done = reported(state(3), &AttemptPhase::Done(&[]));
    done.metadata.generation = Some(4);
    assert!(!is_ready(&done));
}

#[test]
fn the_same_status_is_not_written_again() {
    let done = reported(state(3), &AttemptPhase::Done(&[]));
    assert!(!needs_write(
        &done,
        &build_status(
            &done,
            Some(&HostFacts::default()),
            &StatusContext::default(),
            &AttemptPhase::Done(&[])
        )
    ));
    assert!(needs_write(
        &done,
        &build_status(
            &done,
            Some(&HostFacts::default()),
            &StatusContext::default(),
            &AttemptPhase::Done(&[failure()])
        )
    ));
}

#[test]
fn the_last_error_stays_while_steps_are_executed() {
    let failed = reported(state(3), &AttemptPhase::Done(&[failure()]));
    let working = reported(failed, &AttemptPhase::Executing(&ExecutionProgress::default()));
    let status = working.status.clone().unwrap();
    assert_eq!(status.sync_status.as_deref(), Some(IN_PROGRESS));
    assert!(!status.last_sync_error.unwrap().is_empty());
    assert_eq!(condition(&working, DEGRADED).status, "True");
}

#[test]
fn a_machine_that_cannot_be_read_keeps_its_cards_in_the_status() {
    let mut previous = state(1);
    previous.status =
        Some(SriovNetworkNodeStateStatus { interfaces: Some(Vec::new()), ..Default::default() });
    let error = HostError::ConcurrentChange { subject: "0000:01:00.0".to_owned() };
    let new = build_status(
        &previous,
        None,
        &StatusContext::default(),
        &AttemptPhase::Done(&[Failure::Unreadable(error)]),
    );
    assert_eq!(new.interfaces, Some(Vec::new()));
    assert_eq!(new.sync_status.as_deref(), Some(FAILED));
}

#[test]
fn without_the_platform_nothing_is_reported_but_a_condition() {
    let mut previous = reported(state(1), &AttemptPhase::Done(&[]));
    previous.status.as_mut().unwrap().interfaces = Some(Vec::new());
    let new = build_status(
        &previous,
        None,
        &StatusContext::default(),
        &AttemptPhase::PlatformUnknown("Node a cannot be read"),
    );
    assert_eq!((new.interfaces.as_ref(), sync_result(&new)), (Some(&Vec::new()), (Some(SUCCEEDED), "")));
    previous.status = Some(new);
    let ready = condition(&previous, READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "PlatformUnknown"));
    assert_eq!(ready.message, "Node a cannot be read");
    assert!(!is_ready(&previous));
}

#[test]
fn a_metadata_service_that_fails_is_a_condition_until_it_works() {
    let failed_query = FailedQuery {
        pf: "0000:01:00.0".parse().unwrap(),
        query: ExternalQuery::Network,
        error: "cannot get http://169.254.169.254/".to_owned(),
        reason: "MetadataFailed",
    };
    let facts = HostFacts { failed_queries: vec![failed_query], ..HostFacts::default() };
    let mut failing = state(1);
    failing.status =
        Some(build_status(&failing, Some(&facts), &StatusContext::default(), &AttemptPhase::Done(&[])));
    let cloud = condition(&failing, CLOUD_METADATA);
    assert_eq!((cloud.status.as_str(), cloud.reason.as_str()), ("False", "MetadataFailed"));
    assert!(is_ready(&failing), "VFs stay configured");
    failing.status =
        Some(build_status(&failing, None, &StatusContext::default(), &AttemptPhase::Done(&[failure()])));
    assert_eq!(
        condition(&failing, CLOUD_METADATA).status,
        "False",
        "the condition stays while nothing is known"
    );
    let answers = reported(failing, &AttemptPhase::Done(&[]));
    let types: Vec<_> =
        answers.status.unwrap().conditions.unwrap().into_iter().map(|one| one.type_).collect();
    assert_eq!(types, [READY, PROGRESSING, DEGRADED]);
}

#[test]
fn attachments_that_cannot_be_read_are_a_condition_until_they_can() {
    let error = "cannot list /var/lib/cni/sriov/pci: Not a directory".to_owned();
    let unread = UnreadAttachments { error, reason: "HostFileFailed" };
    let facts = HostFacts { unread_attachments: Some(unread), ..HostFacts::default() };
    let mut failing = state(1);
    failing.status =
        Some(build_status(&failing, Some(&facts), &StatusContext::default(), &AttemptPhase::Done(&[])));
    let found = condition(&failing, ATTACHMENTS);
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "HostFileFailed"));
    let words =
        ["/var/lib/cni/sriov/pci", "no VF counts as free", "repair this file or directory", "every minute"];
    assert!(words.iter().all(|word| found.message.contains(word)), "{}", found.message);
    assert!(is_ready(&failing), "VFs stay configured");
    let unknown = build_status(&failing, None, &StatusContext::default(), &AttemptPhase::Done(&[failure()]));
    failing.status = Some(unknown);
    assert_eq!(condition(&failing, ATTACHMENTS).status, "False", "it stays while nothing is known");
    let readable = reported(failing, &AttemptPhase::Done(&[])).status.unwrap().conditions.unwrap();
    assert!(readable.iter().all(|condition| condition.type_ != ATTACHMENTS), "{readable:?}");
}

#[test]
fn conditions_of_others_are_not_sent() {
    let mut previous = state(1);
    let foreign = Condition {
        type_: "DrainEffects".to_owned(),
        status: "True".to_owned(),
        reason: "X".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: vfleet_api::meta::Time(Timestamp::now()),
    };
    previous.status =
        Some(SriovNetworkNodeStateStatus { conditions: Some(vec![foreign]), ..Default::default() });
    let new = build_status(
        &previous,
        Some(&HostFacts::default()),
        &StatusContext::default(),
        &AttemptPhase::Done(&[]),
    );
    assert!(new.conditions.unwrap().iter().all(|condition| condition.type_ != "DrainEffects"));
}

fn card(pf: &str) -> PfFacts {
    let lab = SimHost::new(&Machine::lab(), "status").unwrap();
    PfFacts { address: pf.parse().unwrap(), ..lab.facts().unwrap().pfs.remove(0) }
}

/// Returns status and reason of the condition `Ready` of each card.
fn ready_conditions(
    state: &SriovNetworkNodeState,
    facts: &HostFacts,
    phase: &AttemptPhase<'_>,
) -> Vec<Option<(String, String)>> {
    let last = state.status.as_ref().and_then(|status| status.interfaces.clone()).unwrap_or_default();
    let cards = devices::build_interfaces(
        facts,
        &ReportContext { last_reported: &last, nic_ids: None },
        &[],
        state,
        phase,
    );
    let ready = |card: &InterfaceExt| {
        let ready = card.conditions.as_ref().map(|conditions| &conditions[0]);
        ready.map(|ready| (ready.status.clone(), ready.reason.clone()))
    };
    cards.iter().map(ready).collect()
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn two_desired_cards() -> (SriovNetworkNodeState, HostFacts) {
    let entry = |pf: &str| json!({ "pciAddress": pf });
    let mut state = state(3);
    state.spec.interfaces =
        Some(serde_json::from_value(json!([entry("0000:01:00.0"), entry("0000:02:00.0")])).unwrap());
    let pfs = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"].map(card).into();
    (state, HostFacts { pfs, ..Default::default() })
}

#[test]
fn each_desired_card_has_a_condition() {
    let (state, facts) = two_desired_cards();
    assert_eq!(
        ready_conditions(&state, &facts, &AttemptPhase::Done(&[failure()])),
        [Some(is("False", "DriverNotLoaded")), Some(is("True", "Reconciled")), None]
    );
    let mut state_after = state.clone();
    state_after.status = Some(build_status(
        &state,
        Some(&facts),
        &StatusContext::default(),
        &AttemptPhase::Done(&[failure()]),
    ));
    assert_eq!(ready_pfs(&state_after), [facts.pfs[1].address].into());
    state_after.metadata.generation = Some(4);
    assert_eq!(ready_pfs(&state_after), [].into(), "the spec may be different now");
}

#[test]
fn a_representor_that_keeps_its_name_is_a_warning_and_no_failure() {
    let mut machine = Machine::lab();
    let card = &mut machine.pfs[0];
    (card.eswitch, card.stuck_representors) = (Some(vfleet_plan::EswitchMode::Legacy), true);
    let pf = card.address;
    let host = SimHost::new(&machine, "status").unwrap();
    let mut state = state(3);
    let card = json!({ "pciAddress": pf, "name": "enp1s0", "numVfs": 1, "eSwitchMode": "switchdev", "vfGroups": [{ "vfRange": "0-0" }] });
    state.spec.interfaces = Some(serde_json::from_value(json!([card])).unwrap());
    for _ in 0..4 {
        for planned in plan_node(&state.spec, &host.facts().unwrap()).steps {
            host.execute(&planned.step).unwrap();
        }
    }
    let facts = host.facts().unwrap();
    assert!(plan_node(&state.spec, &facts).is_done());
    let conditions = |state: &SriovNetworkNodeState, facts: &HostFacts| {
        let new = build_status(state, Some(facts), &StatusContext::default(), &AttemptPhase::Done(&[]));
        assert_eq!(sync_result(&new), (Some(SUCCEEDED), ""));
        let conditions = new.interfaces.clone().unwrap()[0].conditions.clone().unwrap();
        let conditions =
            conditions.into_iter().map(|condition| (condition.type_, condition.reason)).collect::<Vec<_>>();
        (new, conditions)
    };
    let is_ready = ("Ready".to_owned(), "Reconciled".to_owned());
    let warning = ("Warning".to_owned(), "RepresentorsNotRenamed".to_owned());
    let (reported, found) = conditions(&state, &facts);
    assert_eq!(found, [is_ready.clone(), warning]);
    state.status = Some(reported);
    assert!(!needs_write(&state, &conditions(&state, &facts).0), "the warning is written once");
    assert!(ready_pfs(&state).contains(&pf));

    let mut renamed = facts;
    renamed.pfs[0].vfs[0].representor = Some("enp1s0_0".to_owned());
    assert_eq!(conditions(&state, &renamed).1, [is_ready]);
}

#[test]
fn a_card_that_is_done_is_ready_while_another_one_hangs() {
    let (state, facts) = two_desired_cards();
    let planned = |pf: &PfFacts| PlannedStep {
        step: Step::SetLinkUp { pf: pf.address },
        disruption: Disruption::Pf,
        why: String::new(),
    };
    let steps: Vec<_> = facts.pfs[..2].iter().map(planned).collect();
    let mut progress = ExecutionProgress::new(&Plan { steps: steps.clone(), problems: Vec::new() });
    progress.record(&ExecutionEvent::StepStarted(&steps[0]));
    progress
        .record(&ExecutionEvent::LaneFinished { target: Target::Pf(facts.pfs[1].address), succeeded: true });
    assert_eq!(
        ready_conditions(&state, &facts, &AttemptPhase::Executing(&progress)),
        [Some(is("False", "Executing")), Some(is("True", "Reconciled")), None]
    );
}

#[test]
fn a_card_with_a_problem_is_never_ready() {
    let (mut state, facts) = two_desired_cards();
    state.metadata.generation = Some(2);
    state.status =
        Some(build_status(&state, Some(&facts), &StatusContext::default(), &AttemptPhase::Done(&[])));
    state.metadata.generation = Some(3);
    // On a machine without cards, each card is a problem.
    let problems = plan_node(&state.spec, &HostFacts::default()).problems;
    let step = Step::SetLinkUp { pf: facts.pfs[0].address };
    let planned = PlannedStep { step, disruption: Disruption::Pf, why: String::new() };
    let mut progress = ExecutionProgress::new(&Plan { steps: vec![planned.clone()], problems });
    progress
        .record(&ExecutionEvent::LaneFinished { target: Target::Pf(facts.pfs[0].address), succeeded: true });
    let problem = Some(is("False", "NoSuchDevice"));
    assert_eq!(
        ready_conditions(&state, &facts, &AttemptPhase::Executing(&progress)),
        [problem.clone(), problem, None]
    );
    // The problem is gone.
    progress.record(&ExecutionEvent::PlanExtended(&Plan { steps: vec![planned], problems: Vec::new() }));
    assert_eq!(
        ready_conditions(&state, &facts, &AttemptPhase::Executing(&progress)),
        [Some(is("False", "Executing")), Some(is("True", "Reconciled")), None]
    );
}

#[test]
fn a_card_that_cannot_be_read_stays_reported_with_the_reason() {
    let (mut state, mut facts) = two_desired_cards();
    state.status =
        Some(build_status(&state, Some(&facts), &StatusContext::default(), &AttemptPhase::Done(&[])));
    let lost = facts.pfs.remove(2);
    facts.unreadable.push(UnreadableCard {
        pf: lost.address,
        error: "it hangs".to_owned(),
        reason: "DeadlineExceeded",
    });
    assert_eq!(
        ready_conditions(&state, &facts, &AttemptPhase::Done(&[])),
        [
            Some(is("True", "Reconciled")),
            Some(is("True", "Reconciled")),
            Some(is("False", "DeadlineExceeded"))
        ]
    );
}

#[test]
fn a_reboot_is_reported_before_it_happens() {
    let reboot = PlannedStep { step: Step::Reboot, disruption: Disruption::Reboot, why: String::new() };
    let progress = ExecutionProgress::new(&Plan { steps: vec![reboot], problems: Vec::new() });
    let rebooting = reported(state(3), &AttemptPhase::Executing(&progress));
    let progressing = condition(&rebooting, PROGRESSING);
    assert_eq!((progressing.status.as_str(), progressing.reason.as_str()), ("True", "Rebooting"));
    assert!(progressing.message.contains("disruption: reboot"), "{}", progressing.message);
}

#[test]
fn a_process_condition_exists_until_it_is_removed() {
    let verdict =
        ConditionUpdate { type_: METRICS, status: false, reason: "AddressInUse", message: "x".to_owned() };
    let set: ProcessConditions = [(METRICS, verdict)].into();
    let mut done = reported(state(3), &AttemptPhase::Done(&[]));
    let with = |done: &SriovNetworkNodeState, conditions: &ProcessConditions| {
        add_process_conditions(
            build_status(
                done,
                Some(&HostFacts::default()),
                &StatusContext::default(),
                &AttemptPhase::Done(&[]),
            ),
            conditions,
            Some(3),
        )
    };
    let taken = with(&done, &set);
    assert!(needs_write(&done, &taken));
    done.status = Some(taken);
    assert_eq!(condition(&done, METRICS).status, "False");
    assert!(is_ready(&done), "the cards are configured nevertheless");
    assert!(!needs_write(&done, &with(&done, &set)));
    let free = with(&done, &ProcessConditions::new());
    assert!(needs_write(&done, &free));
    assert!(free.conditions.unwrap().iter().all(|condition| condition.type_ != METRICS));
}

#[test]
fn installed_cni_plugins_are_reported_and_programs_that_were_not_replaced() {
    let program = |name, origin| InstalledProgram { name, path: format!("/opt/cni/bin/{name}"), origin };
    let ours = program("sriov", ProgramOrigin::Vfleet { version: "1.2.3".to_owned() });
    let foreign = [ours.clone(), program("rdma", ProgramOrigin::Foreign)];
    let report = |state: &SriovNetworkNodeState, cni_programs: Option<&[InstalledProgram]>| {
        let context = StatusContext { cni_programs, ..StatusContext::default() };
        let status = build_status(state, Some(&HostFacts::default()), &context, &AttemptPhase::Done(&[]));
        let is_new = needs_write(state, &status);
        (SriovNetworkNodeState { status: Some(status), ..state.clone() }, is_new)
    };
    let version = |state: &SriovNetworkNodeState| state.status.as_ref().unwrap().cni_version.clone();
    let (none, _) = report(&state(3), Some(&[]));
    assert_eq!(version(&none), None);
    let (bad, is_new) = report(&none, Some(&foreign));
    assert_eq!((version(&bad).as_deref(), is_new), (Some("1.2.3"), true));
    let found = condition(&bad, CNI_PLUGINS);
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "ForeignProgram"));
    assert!(found.message.contains("/opt/cni/bin/rdma"), "{}", found.message);
    let (unreadable, is_new) = report(&bad, None);
    assert!(!is_new && unreadable.status == bad.status, "the last report stays");
    let (good, is_new) = report(&bad, Some(&[ours]));
    let conditions = good.status.clone().unwrap().conditions.unwrap();
    assert!(is_new && conditions.iter().all(|condition| condition.type_ != CNI_PLUGINS));
    assert!(is_ready(&good) && is_ready(&bad));
}
