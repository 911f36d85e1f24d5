use serde_json::json;
use vfleet_api::node_state::InterfaceExt;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, HostError, SimHost};
use vfleet_plan::{Disruption, PfFacts, Plan, PlannedStep, Step, Target, Unanswered, Unread, plan_node};

use super::*;
use crate::apply::Happening;

fn state(generation: i64) -> SriovNetworkNodeState {
    let mut state = SriovNetworkNodeState::default();
    state.metadata.generation = Some(generation);
    state
}

fn told(mut state: SriovNetworkNodeState, progress: &Progress<'_>) -> SriovNetworkNodeState {
    state.status = Some(status(&state, Some(&HostFacts::default()), None, progress));
    state
}

fn failure() -> Failure {
    Failure::Step {
        target: Target::Pf("0000:01:00.0".parse().unwrap()),
        step: "bind 0000:01:00.0 vf 0 to vfio-pci".to_owned(),
        source: HostError::DriverNotLoaded { driver: "vfio-pci".to_owned() },
    }
}

fn condition(state: &SriovNetworkNodeState, type_: &str) -> Condition {
    let conditions = state.status.clone().unwrap().conditions.unwrap();
    conditions.into_iter().find(|condition| condition.type_ == type_).unwrap()
}

#[test]
fn a_failure_is_said_in_status_error_and_conditions() {
    let failed = told(state(3), &Progress::Done(&[failure()]));
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
fn a_success_takes_the_error_away() {
    let done = told(told(state(3), &Progress::Done(&[failure()])), &Progress::Done(&[]));
    assert_eq!(result(done.status.as_ref().unwrap()), (Some(SUCCEEDED), ""));
    assert_eq!(condition(&done, DEGRADED).status, "False");
    assert!(is_ready(&done));
}

#[test]
fn a_success_with_an_older_wish_is_not_ready() {
    let mut done = told(state(3), &Progress::Done(&[]));
    done.metadata.generation = Some(4);
    assert!(!is_ready(&done));
}

#[test]
fn the_same_again_is_no_news() {
    let done = told(state(3), &Progress::Done(&[]));
    assert!(!is_news(&done, &status(&done, Some(&HostFacts::default()), None, &Progress::Done(&[]))));
    assert!(is_news(&done, &status(&done, Some(&HostFacts::default()), None, &Progress::Done(&[failure()]))));
}

#[test]
fn while_it_works_the_last_error_stays() {
    let failed = told(state(3), &Progress::Done(&[failure()]));
    let working = told(failed, &Progress::Executing(&Course::default()));
    let status = working.status.clone().unwrap();
    assert_eq!(status.sync_status.as_deref(), Some(IN_PROGRESS));
    assert!(!status.last_sync_error.unwrap().is_empty());
    assert_eq!(condition(&working, DEGRADED).status, "True");
}

#[test]
fn a_machine_that_cannot_be_read_keeps_its_cards_in_the_status() {
    let mut known = state(1);
    known.status = Some(SriovNetworkNodeStateStatus { interfaces: Some(Vec::new()), ..Default::default() });
    let error = HostError::Unsettled { what: "0000:01:00.0".to_owned() };
    let new = status(&known, None, None, &Progress::Done(&[Failure::Unreadable(error)]));
    assert_eq!(new.interfaces, Some(Vec::new()));
    assert_eq!(new.sync_status.as_deref(), Some(FAILED));
}

#[test]
fn without_the_platform_nothing_is_reported_but_a_condition() {
    let mut known = told(state(1), &Progress::Done(&[]));
    known.status.as_mut().unwrap().interfaces = Some(Vec::new());
    let new = status(&known, None, None, &Progress::PlatformUnknown("Node a cannot be read"));
    assert_eq!((new.interfaces.as_ref(), result(&new)), (Some(&Vec::new()), (Some(SUCCEEDED), "")));
    known.status = Some(new);
    let ready = condition(&known, READY);
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "PlatformUnknown"));
    assert_eq!(ready.message, "Node a cannot be read");
    assert!(!is_ready(&known));
}

#[test]
fn a_cloud_that_does_not_answer_is_a_condition_until_it_does() {
    let unanswered = Unanswered {
        pf: "0000:01:00.0".parse().unwrap(),
        question: Question::Network,
        error: "cannot get http://169.254.169.254/".to_owned(),
        reason: "MetadataFailed",
    };
    let facts = HostFacts { unanswered: vec![unanswered], ..HostFacts::default() };
    let mut failing = state(1);
    failing.status = Some(status(&failing, Some(&facts), None, &Progress::Done(&[])));
    let cloud = condition(&failing, CLOUD_METADATA);
    assert_eq!((cloud.status.as_str(), cloud.reason.as_str()), ("False", "MetadataFailed"));
    assert!(is_ready(&failing), "VFs are as they were decided to be");
    failing.status = Some(status(&failing, None, None, &Progress::Done(&[failure()])));
    assert_eq!(condition(&failing, CLOUD_METADATA).status, "False", "nothing is known of it now");
    let answers = told(failing, &Progress::Done(&[]));
    let types: Vec<_> =
        answers.status.unwrap().conditions.unwrap().into_iter().map(|one| one.type_).collect();
    assert_eq!(types, [READY, PROGRESSING, DEGRADED]);
}

#[test]
fn conditions_of_others_are_not_sent() {
    let mut known = state(1);
    let foreign = Condition {
        type_: "Drained".to_owned(),
        status: "True".to_owned(),
        reason: "X".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: vfleet_api::meta::Time(Timestamp::now()),
    };
    known.status =
        Some(SriovNetworkNodeStateStatus { conditions: Some(vec![foreign]), ..Default::default() });
    let new = status(&known, Some(&HostFacts::default()), None, &Progress::Done(&[]));
    assert!(new.conditions.unwrap().iter().all(|condition| condition.type_ != "Drained"));
}

fn card(pf: &str) -> PfFacts {
    let lab = SimHost::new(&Machine::lab(), "status").unwrap();
    PfFacts { address: pf.parse().unwrap(), ..lab.facts().unwrap().pfs.remove(0) }
}

/// What is said of the cards: status and reason of their conditions.
fn said_of_cards(
    state: &SriovNetworkNodeState,
    facts: &HostFacts,
    progress: &Progress<'_>,
) -> Vec<Option<(String, String)>> {
    let known = state.status.as_ref().and_then(|status| status.interfaces.clone()).unwrap_or_default();
    let said = devices::with_conditions(facts, &View { known: &known, narrow: None }, state, progress);
    let ready = |card: &InterfaceExt| {
        let ready = card.conditions.as_ref().map(|conditions| &conditions[0]);
        ready.map(|ready| (ready.status.clone(), ready.reason.clone()))
    };
    said.iter().map(ready).collect()
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn two_wanted_cards() -> (SriovNetworkNodeState, HostFacts) {
    let wish = |pf: &str| json!({ "pciAddress": pf });
    let mut state = state(3);
    state.spec.interfaces =
        Some(serde_json::from_value(json!([wish("0000:01:00.0"), wish("0000:02:00.0")])).unwrap());
    let pfs = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"].map(card).into();
    (state, HostFacts { pfs, ..Default::default() })
}

#[test]
fn each_wanted_card_says_whether_it_is_as_wanted() {
    let (state, facts) = two_wanted_cards();
    assert_eq!(
        said_of_cards(&state, &facts, &Progress::Done(&[failure()])),
        [Some(is("False", "DriverNotLoaded")), Some(is("True", "AsWanted")), None]
    );
    let mut told = state.clone();
    told.status = Some(status(&state, Some(&facts), None, &Progress::Done(&[failure()])));
    assert_eq!(ready_pfs(&told), [facts.pfs[1].address].into());
    told.metadata.generation = Some(4);
    assert_eq!(ready_pfs(&told), [].into(), "something else may be wanted of it now");
}

#[test]
fn a_representor_that_keeps_its_name_is_a_warning_beside_success() {
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
        let new = status(state, Some(facts), None, &Progress::Done(&[]));
        assert_eq!(result(&new), (Some(SUCCEEDED), ""));
        let said = new.interfaces.clone().unwrap()[0].conditions.clone().unwrap();
        let said = said.into_iter().map(|condition| (condition.type_, condition.reason)).collect::<Vec<_>>();
        (new, said)
    };
    let is_ready = ("Ready".to_owned(), "AsWanted".to_owned());
    let warning = ("Warning".to_owned(), "RepresentorsNotRenamed".to_owned());
    let (told, said) = conditions(&state, &facts);
    assert_eq!(said, [is_ready.clone(), warning]);
    state.status = Some(told);
    assert!(!is_news(&state, &conditions(&state, &facts).0), "it is said once");
    assert!(ready_pfs(&state).contains(&pf));

    let mut renamed = facts;
    renamed.pfs[0].vfs[0].representor = Some("enp1s0_0".to_owned());
    assert_eq!(conditions(&state, &renamed).1, [is_ready]);
}

#[test]
fn a_card_that_is_done_says_so_while_another_one_hangs() {
    let (state, facts) = two_wanted_cards();
    let planned = |pf: &PfFacts| PlannedStep {
        step: Step::SetLinkUp { pf: pf.address },
        disruption: Disruption::Pf,
        why: String::new(),
    };
    let steps: Vec<_> = facts.pfs[..2].iter().map(planned).collect();
    let mut course = Course::begin(&Plan { steps: steps.clone(), problems: Vec::new() });
    course.take(&Happening::Begins(&steps[0]));
    course.take(&Happening::LaneEnded { target: Target::Pf(facts.pfs[1].address), is_done: true });
    assert_eq!(
        said_of_cards(&state, &facts, &Progress::Executing(&course)),
        [Some(is("False", "Executing")), Some(is("True", "AsWanted")), None]
    );
}

#[test]
fn a_card_of_which_something_cannot_be_never_says_that_it_is_done() {
    let (mut state, facts) = two_wanted_cards();
    state.metadata.generation = Some(2);
    state.status = Some(status(&state, Some(&facts), None, &Progress::Done(&[])));
    state.metadata.generation = Some(3);
    // On a machine without cards none can be as wanted.
    let problems = plan_node(&state.spec, &HostFacts::default()).problems;
    let step = Step::SetLinkUp { pf: facts.pfs[0].address };
    let planned = PlannedStep { step, disruption: Disruption::Pf, why: String::new() };
    let mut course = Course::begin(&Plan { steps: vec![planned.clone()], problems });
    course.take(&Happening::LaneEnded { target: Target::Pf(facts.pfs[0].address), is_done: true });
    let cannot_be = Some(is("False", "NoSuchDevice"));
    assert_eq!(
        said_of_cards(&state, &facts, &Progress::Executing(&course)),
        [cannot_be.clone(), cannot_be, None]
    );
    // It is possible after all.
    course.take(&Happening::More(&Plan { steps: vec![planned], problems: Vec::new() }));
    assert_eq!(
        said_of_cards(&state, &facts, &Progress::Executing(&course)),
        [Some(is("False", "Executing")), Some(is("True", "AsWanted")), None]
    );
}

#[test]
fn a_card_that_cannot_be_read_stays_and_says_why() {
    let (mut state, mut facts) = two_wanted_cards();
    state.status = Some(status(&state, Some(&facts), None, &Progress::Done(&[])));
    let lost = facts.pfs.remove(2);
    facts.unread.push(Unread { pf: lost.address, error: "it hangs".to_owned(), reason: "DeadlineExceeded" });
    assert_eq!(
        said_of_cards(&state, &facts, &Progress::Done(&[])),
        [Some(is("True", "AsWanted")), Some(is("True", "AsWanted")), Some(is("False", "DeadlineExceeded"))]
    );
}

#[test]
fn a_machine_about_to_restart_says_so() {
    let reboot = PlannedStep { step: Step::Reboot, disruption: Disruption::Reboot, why: String::new() };
    let course = Course::begin(&Plan { steps: vec![reboot], problems: Vec::new() });
    let rebooting = told(state(3), &Progress::Executing(&course));
    let progressing = condition(&rebooting, PROGRESSING);
    assert_eq!((progressing.status.as_str(), progressing.reason.as_str()), ("True", "Rebooting"));
    assert!(progressing.message.contains("disruption Reboot"), "{}", progressing.message);
}

#[test]
fn a_standing_condition_is_there_until_it_is_over() {
    let verdict = Verdict { type_: METRICS, holds: false, reason: "AddressInUse", message: "x".to_owned() };
    let set: Standing = [(METRICS, verdict)].into();
    let mut done = told(state(3), &Progress::Done(&[]));
    let with = |done: &SriovNetworkNodeState, standing: &Standing| {
        with_standing(
            status(done, Some(&HostFacts::default()), None, &Progress::Done(&[])),
            standing,
            Some(3),
        )
    };
    let taken = with(&done, &set);
    assert!(is_news(&done, &taken));
    done.status = Some(taken);
    assert_eq!(condition(&done, METRICS).status, "False");
    assert!(is_ready(&done), "the cards are as wanted all the same");
    assert!(!is_news(&done, &with(&done, &set)));
    let free = with(&done, &Standing::new());
    assert!(is_news(&done, &free));
    assert!(free.conditions.unwrap().iter().all(|condition| condition.type_ != METRICS));
}
