//! Event queue of the drain controller.

use futures::StreamExt;
use futures::stream::{PollNext, select_with_strategy};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use tokio::sync::mpsc;
use vfleet_cluster::watch;

use crate::replica::context::Context;

/// Parallel Event writes. Few, so that drains come first.
const EVENTS_AT_ONCE: usize = 8;

/// Event about a node state.
pub(super) struct DrainEvent {
    pub(super) about: ObjectReference,
    pub(super) type_: EventType,
    pub(super) reason: &'static str,
    pub(super) note: String,
}

/// Queue of Events that are written in the background. Warnings are written before other Events.
#[derive(Clone)]
pub(super) struct EventQueue {
    warnings: mpsc::UnboundedSender<DrainEvent>,
    others: mpsc::UnboundedSender<DrainEvent>,
}

impl EventQueue {
    /// Starts the background task. Events that are still queued when the process stops are lost.
    pub(super) fn new(context: &Context) -> Self {
        let (warnings, queued_warnings) = watch::stream_channel::<DrainEvent>();
        let (others, queued_others) = watch::stream_channel();
        let recorder = context.event_recorder.clone();
        let queued = select_with_strategy(queued_warnings, queued_others, |(): &mut ()| PollNext::Left);
        tokio::spawn(queued.for_each_concurrent(EVENTS_AT_ONCE, move |event| {
            let recorder = recorder.clone();
            async move { recorder.record(&event.about, event.type_, "Drain", event.reason, &event.note).await }
        }));
        Self { warnings, others }
    }

    /// Adds an Event.
    pub(super) fn push(&self, event: DrainEvent) {
        let queue = if event.type_ == EventType::Warning { &self.warnings } else { &self.others };
        // Fails only while the process stops.
        let _ = queue.send(event);
    }
}
