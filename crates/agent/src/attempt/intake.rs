//! Intake of changes of the node state, and of the kinds of cards that are reported.

use std::sync::Arc;

use kube::runtime::watcher::Event;
use vfleet_api::SriovNetworkNodeState;
use vfleet_plan::NicIds;

use super::seen::{Seen, is_older};
use super::{Agent, Repairs};
use crate::node_object::NodeContextState;

impl Agent {
    /// Takes in a change of the node state; returns whether it calls for an attempt.
    pub(crate) fn take(&mut self, event: Event<SriovNetworkNodeState>) -> bool {
        match event {
            Event::Init => {
                self.listed = false;
                false
            }
            Event::InitApply(state) => {
                self.listed = true;
                self.replace(state)
            }
            // From before one of our own writes, whose answer told all that is in it.
            Event::Apply(state) if self.state.as_ref().is_some_and(|known| is_older(&state, known)) => false,
            Event::Apply(state) => self.replace(state),
            Event::InitDone if self.listed => false,
            Event::InitDone | Event::Delete(_) => {
                let node = &self.config.node;
                tracing::info!(node, "there is no node state; waiting for the operator to create it");
                (self.state, self.seen) = (None, None);
                // Nobody reads the machine until there is one.
                self.publish_unreadable();
                false
            }
        }
    }

    /// Our own writes come back here, and call for nothing: they are in what was seen. Nor does a drain that goes on,
    /// before it is complete.
    fn replace(&mut self, state: SriovNetworkNodeState) -> bool {
        let new = Seen::of(&state);
        let known = self.seen.as_ref();
        let is_news = known.is_none_or(|known| !self.is_waiting_still(known, &new, &state));
        if known.map(|known| &known.wish) != Some(&new.wish) {
            self.failures = 0;
            self.repairs = Repairs::default();
            self.done_without.clear();
        }
        self.remember(state);
        is_news
    }

    /// Remembers the node state without its managed fields, which nobody here reads and which are as long as the rest.
    pub(super) fn remember(&mut self, mut state: SriovNetworkNodeState) {
        state.metadata.managed_fields = None;
        self.state = Some(Arc::new(state));
    }

    /// Takes in what the cluster says about the node, or why that is not known yet.
    pub(crate) fn follow_node(&mut self, context: &NodeContextState) {
        match context {
            Ok(context) => {
                tracing::info!(node = self.config.node, ?context, "the node is known");
                self.config.host.set_node(context);
                let settings = &mut self.config.settings;
                settings.has_lone_vfs = context.platform.has_lone_vfs();
                settings.node_addresses.clone_from(&context.addresses);
                self.node_unknown = None;
            }
            Err(why) => self.node_unknown = Some(why.clone()),
        }
    }

    /// Takes in which kinds of cards are reported; returns whether that is news.
    pub(crate) fn narrow(&mut self, narrow: Option<NicIds>) -> bool {
        let is_news = !self.knows_narrow || self.narrow != narrow;
        (self.narrow, self.knows_narrow) = (narrow, true);
        is_news
    }
}
