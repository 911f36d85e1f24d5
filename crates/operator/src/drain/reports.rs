//! When something is said about a node's drain.

use std::collections::BTreeSet;

use kube::runtime::events::EventType;
use vfleet_api::node_state::DrainStatus;
use vfleet_cluster::pace::READABLE;
use vfleet_cluster::queue::Failure;
use vfleet_plan::drain::{Migration, Moment, NodeAction};

use super::Controller;
use super::evictions::Obstacle;
use super::index::{Decided, Todo, now};
use super::migration::unknown_text;
use super::telling;

/// Once or twice may be the API server's bad day.
const FAILURES_WORTH_TELLING: u32 = 3;

fn is_worth_telling(failure: &Failure) -> bool {
    failure.times >= FAILURES_WORTH_TELLING
}

impl Controller {
    /// Says once what cannot be moved of what the Go operator left.
    pub(super) fn tell_unknown(&mut self, node: &str) {
        let leftover = self.index.leftover(node, self.mcp(node).is_some(), now());
        let (Some(Migration::Unknown { key, value }), Some(uid)) = (leftover, self.index.state_uid(node))
        else {
            self.said_unknown.remove(node);
            return;
        };
        let text = unknown_text(key, &value);
        if self.said_unknown.insert(node.to_owned(), text.clone()).as_ref() != Some(&text) {
            self.hands.tell(node, uid, EventType::Warning, "UnknownDrainState", text);
        }
    }

    /// Notes what blocks the node's drain, and has it told if that is news.
    pub(super) fn tell_obstacle(&mut self, node: &str, now: Moment) {
        let decided = self.index.decide(node, self.mcp(node), now);
        let Ok(obstacle) = self.obstacle(node, &decided) else { return };
        let said = decided.state.map(|state| state.blocked.as_ref());
        let is_news = said.is_some_and(|said| telling::is_news(said, obstacle.as_ref()));
        self.blocked.count(node, obstacle.as_ref());
        if is_news {
            self.news.touch(node.to_owned(), READABLE);
        }
    }

    /// What blocks the drain; `Err` when that cannot be told now.
    fn obstacle(&self, node: &str, decided: &Decided<'_>) -> Result<Option<Obstacle>, ()> {
        let name = node.to_owned();
        let failure = self.nodes.failure(&name).or_else(|| self.ends.failure(&name));
        match failure.filter(|failure| is_worth_telling(failure)).or_else(|| self.refusal_of_pool(decided)) {
            Some(failure) => Ok(Some(telling::not_written(failure))),
            None => telling::obstacle(decided, || self.hands.mcps.at_work(node)),
        }
    }

    /// Why a node that waits for a slot does not get one: it cannot be written.
    fn refusal_of_pool(&self, decided: &Decided<'_>) -> Option<&Failure> {
        let waits = decided.state?.facts.status == DrainStatus::DrainRequired;
        let is_at_rest = decided.todo == Todo::Act(NodeAction::Rest);
        let pool = decided.pool.filter(|_| waits && is_at_rest)?;
        self.pools.failure(&pool.to_owned()).filter(|failure| is_worth_telling(failure))
    }

    /// Has those told who wait for slots that cannot be written, and told again when they can.
    pub(super) fn look_at_refused_pools(&mut self) {
        let refused = self.pools.failures().filter(|(_, failure)| is_worth_telling(failure));
        let refused: BTreeSet<_> = refused.map(|(pool, _)| pool.clone()).collect();
        for pool in refused.symmetric_difference(&self.refused_pools) {
            self.nodes.touch(self.index.waiting(pool).map(str::to_owned));
        }
        self.refused_pools = refused;
    }

    /// Writes what is to be said about the node, if it is still news.
    pub(super) fn report(&mut self, node: String) {
        let decided = self.index.decide(&node, self.mcp(&node), now());
        let (Ok(obstacle), Some(state)) = (self.obstacle(&node, &decided), decided.state) else {
            self.reports.nothing_to_do(&node);
            return;
        };
        if !telling::is_news(state.blocked.as_ref(), obstacle.as_ref()) {
            self.reports.nothing_to_do(&node);
            self.news.forget(&node);
            return;
        }
        let said = state.blocked.as_ref().filter(|said| said.status == "True");
        // Words that change while it is blocked, such as numbers of pods, are not worth another Event.
        let is_other = |new: &&Obstacle| said.is_none_or(|said| said.reason != new.reason);
        if let Some(obstacle) = obstacle.as_ref().filter(is_other) {
            let text = obstacle.message.clone();
            self.hands.tell(&node, &state.uid, EventType::Warning, obstacle.reason, text);
        }
        let said = state.blocked.clone();
        let writing = telling::write_condition(self.context.clone(), node.clone(), said, obstacle);
        self.reports.start(node, writing);
    }
}
