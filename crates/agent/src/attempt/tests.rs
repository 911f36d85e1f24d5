use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::net::TcpListener;
use vfleet_host::sim::Machine;
use vfleet_host::{Host, SimHost};
use vfleet_plan::VfConfiguration;

use super::*;

/// A client of an API server that takes everything and answers nothing.
async fn client_of_a_silent_server() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let mut config = kube::Config::new(url);
    (config.connect_timeout, config.read_timeout, config.write_timeout) = (None, None, None);
    (listener, Client::try_from(config).unwrap())
}

fn wish() -> SriovNetworkNodeState {
    let pf = Machine::lab().pfs[0].address;
    let groups = json!([{ "vfRange": "0-1", "deviceType": "netdevice" }]);
    let spec = json!({ "interfaces": [{ "pciAddress": pf, "numVfs": 2, "vfGroups": groups }] });
    let mut state = SriovNetworkNodeState::new("silent-1", serde_json::from_value(spec).unwrap());
    (state.metadata.uid, state.metadata.generation) = (Some("uid".to_owned()), Some(1));
    state
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_does_not_keep_the_machine_waiting() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "silent").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), Arc::clone(&host) as _);
    let snapshots = config.snapshots.subscribe();
    let mut agent = Agent::new(&client, config, &Arc::default());
    assert!(agent.take(Event::Apply(wish())));
    let attempt = tokio::time::timeout(Duration::from_secs(10), agent.attempt()).await;
    assert!(attempt.is_err(), "that it is done cannot be told");
    assert_eq!(host.kernel().pf(Machine::lab().pfs[0].address).unwrap().vfs.len(), 2);
    let snapshot = Arc::clone(&snapshots.borrow());
    let configurations: Vec<_> = snapshot.vfs.values().map(|vf| vf.configuration).collect();
    assert_eq!(configurations, [VfConfiguration::Verified; 2], "the process itself knows");
}

fn asked(status: &str) -> SriovNetworkNodeState {
    let mut state = wish();
    let at = "2026-01-01T00:00:00.000000Z";
    let asked = json!({ "drainStatus": status, "drainScope": "Partial", "drainRequestedAt": at });
    state.status = Some(serde_json::from_value(asked).unwrap());
    state
}

#[tokio::test]
async fn a_drain_that_goes_on_calls_for_no_attempt_before_it_is_complete() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "waits").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), host);
    let mut agent = Agent::new(&client, config, &Arc::default());
    let waits = |agent: &mut Agent, need| {
        agent.seen = Some(Seen::of(&asked("Drain_Required")));
        agent.waits_for = need;
    };
    waits(&mut agent, Some(DrainScope::Partial));
    for status in ["Drain_Required", "Draining_MCP_Pausing", "Draining_MCP_Paused", "Draining"] {
        assert!(!agent.take(Event::Apply(asked(status))), "{status}");
    }
    for status in ["Draining_Complete", "Drain_Disabled", "Idle"] {
        assert!(agent.take(Event::Apply(asked(status))), "{status}");
    }
    let mut other = asked("Draining");
    other.metadata.generation = Some(2);
    assert!(agent.take(Event::Apply(other)), "something else is wanted");
    waits(&mut agent, Some(DrainScope::Full));
    assert!(agent.take(Event::Apply(asked("Draining"))), "a narrower drain than is needed");
    waits(&mut agent, None);
    assert!(agent.take(Event::Apply(asked("Draining"))), "nobody waits for it");
}

/// Otherwise the agent's loop would ring, find nothing to do and ring again without a pause.
#[tokio::test(start_paused = true)]
async fn a_node_state_that_is_gone_leaves_nothing_to_look_at_again() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "gone").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), host);
    let mut agent = Agent::new(&client, config, &Arc::default());
    agent.take(Event::Apply(wish()));
    // A VF that a pod gave back a moment ago.
    agent.look_again = Some(Instant::now() + Duration::from_secs(2));
    agent.take(Event::Delete(wish()));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(agent.attempt().await, Next::Rest);
    assert_eq!(agent.look_again(), None);
}

/// Nobody reads the machine until there is another one.
#[tokio::test]
async fn vfs_of_a_node_state_that_is_gone_are_not_verified() {
    let (_listener, client) = client_of_a_silent_server().await;
    let host = Arc::new(SimHost::new(&Machine::lab(), "gone").unwrap());
    let config = Config::new("silent-1".to_owned(), "ns".to_owned(), Arc::clone(&host) as _);
    let snapshots = config.snapshots.subscribe();
    let configurations =
        || snapshots.borrow().vfs.values().map(|vf| vf.configuration).collect::<Vec<VfConfiguration>>();
    let mut agent = Agent::new(&client, config, &Arc::default());
    agent.take(Event::Apply(wish()));
    host.execute(&Step::SetNumVfs { pf: Machine::lab().pfs[0].address, count: 2 }).unwrap();
    agent.publish(&wish().spec, &host.facts().unwrap(), &Plan::default());
    assert_eq!(configurations(), [VfConfiguration::Verified; 2]);
    agent.take(Event::Delete(wish()));
    assert_eq!(configurations(), [VfConfiguration::Unknown; 2]);
}

#[tokio::test(start_paused = true)]
async fn what_people_mend_is_looked_at_again_ever_more_rarely_until_it_is_mended() {
    let mut looks = RepairLooks::default();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        looks.plan(true);
        let pause = looks.next.unwrap() - Instant::now();
        pauses.push(pause);
        tokio::time::advance(pause).await;
    }
    assert!(pauses[0] < Duration::from_secs(15) && pauses[3] > 3 * pauses[0], "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < Duration::from_secs(380)), "{pauses:?}");
    looks.plan(false);
    assert_eq!((looks.in_vain, looks.next), (0, None));
}
