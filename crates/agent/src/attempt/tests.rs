use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::net::TcpListener;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::VfConfiguration;

use super::*;

/// Returns a client of an API server that accepts requests and never responds.
async fn client_of_a_silent_server() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut config = kube::Config::new(url);
    (config.connect_timeout, config.read_timeout, config.write_timeout) = (None, None, None);
    (listener, Client::try_from(config).unwrap())
}

fn desired_state() -> SriovNetworkNodeState {
    let pf = Machine::lab().pfs[0].address;
    let groups = json!([{ "vfRange": "0-1", "deviceType": "netdevice" }]);
    let spec = json!({ "interfaces": [{ "pciAddress": pf, "numVfs": 2, "vfGroups": groups }] });
    let mut state = SriovNetworkNodeState::new("silent-1", serde_json::from_value(spec).unwrap());
    (state.metadata.uid, state.metadata.generation) = (Some("uid".to_owned()), Some(1));
    state
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_respond_does_not_delay_the_machine() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "silent").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), Arc::clone(&host) as _);
    let snapshots = config.snapshots.subscribe();
    let mut agent = Agent::new(&client, config, &Arc::default());
    assert!(agent.handle_event(Event::Apply(desired_state())));
    let attempt = tokio::time::timeout(Duration::from_secs(10), agent.attempt()).await;
    assert!(attempt.is_err(), "the outcome cannot be reported");
    assert_eq!(host.kernel().pf(Machine::lab().pfs[0].address).unwrap().vfs.len(), 2);
    let snapshot = Arc::clone(&snapshots.borrow());
    let configurations: Vec<_> = snapshot.vfs.values().map(|vf| vf.configuration).collect();
    assert_eq!(configurations, [VfConfiguration::Verified; 2], "the snapshot is published");
}

fn with_drain_status(status: &str) -> SriovNetworkNodeState {
    let mut state = desired_state();
    let at = "2026-01-01T00:00:00.000000Z";
    let fields = json!({ "drainStatus": status, "drainScope": "Partial", "drainRequestedAt": at });
    state.status = Some(serde_json::from_value(fields).unwrap());
    state
}

#[tokio::test]
async fn a_drain_that_progresses_calls_for_no_attempt_before_it_is_complete() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "waits").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), host);
    let mut agent = Agent::new(&client, config, &Arc::default());
    let set_waiting = |agent: &mut Agent, need| {
        agent.digest = Some(NodeStateDigest::of(&with_drain_status("Drain_Required")));
        agent.awaited_drain = need;
    };
    set_waiting(&mut agent, Some(DrainScope::Partial));
    for status in ["Drain_Required", "Draining_MCP_Pausing", "Draining_MCP_Paused", "Draining"] {
        assert!(!agent.handle_event(Event::Apply(with_drain_status(status))), "{status}");
    }
    for status in ["Draining_Complete", "Drain_Disabled", "Idle"] {
        assert!(agent.handle_event(Event::Apply(with_drain_status(status))), "{status}");
    }
    let mut other = with_drain_status("Draining");
    other.metadata.generation = Some(2);
    assert!(agent.handle_event(Event::Apply(other)), "the desired state changed");
    set_waiting(&mut agent, Some(DrainScope::Full));
    assert!(
        agent.handle_event(Event::Apply(with_drain_status("Draining"))),
        "a narrower drain than is needed"
    );
    set_waiting(&mut agent, None);
    assert!(
        agent.handle_event(Event::Apply(with_drain_status("Draining"))),
        "the agent does not wait for a drain"
    );
}

/// Otherwise the agent's loop would make attempts without a pause.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_state_leaves_no_attempt_scheduled() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "gone").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), host);
    let mut agent = Agent::new(&client, config, &Arc::default());
    agent.handle_event(Event::Apply(desired_state()));
    // A pod released a VF a moment ago.
    agent.release_due_at = Some(Instant::now() + Duration::from_secs(2));
    agent.handle_event(Event::Delete(desired_state()));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(agent.attempt().await, NextAction::Wait);
    assert_eq!(agent.next_attempt_at(), None);
}

/// The machine is not read until there is another node state.
#[tokio::test]
async fn vfs_are_not_verified_without_a_node_state() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "gone").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), Arc::clone(&host) as _);
    let snapshots = config.snapshots.subscribe();
    let configurations =
        || snapshots.borrow().vfs.values().map(|vf| vf.configuration).collect::<Vec<VfConfiguration>>();
    let mut agent = Agent::new(&client, config, &Arc::default());
    agent.handle_event(Event::Apply(desired_state()));
    host.execute(&Step::SetNumVfs { pf: Machine::lab().pfs[0].address, count: 2 }).unwrap();
    agent.publish(&desired_state().spec, &host.facts().unwrap(), &Plan::default());
    assert_eq!(configurations(), [VfConfiguration::Verified; 2]);
    agent.handle_event(Event::Delete(desired_state()));
    assert_eq!(configurations(), [VfConfiguration::Unknown; 2]);
}

#[tokio::test(start_paused = true)]
async fn rechecks_become_rarer_until_the_problem_is_fixed() {
    let mut schedule = RecheckSchedule::default();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        schedule.update(true);
        let pause = schedule.next.unwrap() - Instant::now();
        pauses.push(pause);
        tokio::time::advance(pause).await;
    }
    assert!(pauses[0] < Duration::from_secs(15) && pauses[3] > 3 * pauses[0], "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < Duration::from_secs(380)), "{pauses:?}");
    schedule.update(false);
    assert_eq!((schedule.checks, schedule.next), (0, None));
}
