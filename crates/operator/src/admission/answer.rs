//! Whether an object may be written, and what is added to it: each question is read, judged by the rules under what is
//! known of the cluster now, and answered.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use vfleet_plan::admission::{Findings, Installation, PatchOperation, policy_defaults};

use super::catch_up::CatchUp;
use super::index::Index;
use super::pods::Pods;
use super::review::{Answer, ReviewRequest};
use super::server::Answers;
use super::subject::{Subject, Unread};
use crate::components::settings::Settings;
use crate::replica::context::Context;

/// Answers from what is known of the cluster.
pub(super) struct Answering {
    context: Context,
    index: Arc<Index>,
    pods: Pods,
    catch_up: CatchUp,
}

/// The part of an object that says whether it is going away.
#[derive(Deserialize)]
struct OnlyDeletion {
    metadata: Option<Deletion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Deletion {
    deletion_timestamp: Option<IgnoredAny>,
}

impl Answers for Answering {
    async fn validate(&self, request: &ReviewRequest<'_>) -> Answer {
        // Whatever is wrong with it: its finalizers must come off.
        if request.object.is_some_and(is_going) {
            return admit(Vec::new(), Vec::new());
        }
        match Subject::read(request) {
            Ok(subject) => self.judge(&subject, request).await,
            Err(Unread(findings)) => Answer::Refuse { code: 400, reason: "BadRequest", findings },
        }
    }

    fn mutate(&self, request: &ReviewRequest<'_>) -> Answer {
        with_defaults(request)
    }

    async fn pod(&self, request: ReviewRequest<'_>) -> Answer {
        self.pods.answer(request).await
    }
}

impl Answering {
    pub(super) fn new(context: Context, index: Arc<Index>, settings: Settings) -> Self {
        let pods = Pods::new(context.client.clone(), Arc::clone(&index), settings);
        let catch_up = CatchUp::new(context.clone(), Arc::clone(&index));
        Self { context, index, pods, catch_up }
    }

    fn home(&self) -> Installation<'_> {
        let config = &self.context.config;
        Installation { namespace: &config.namespace, dev_mode: config.deploy.dev_mode }
    }

    /// What we know of the cluster is a little behind. So nothing is refused for it before we know all that was written
    /// before this was asked: the user may just have put it right.
    async fn judge(&self, subject: &Subject, request: &ReviewRequest<'_>) -> Answer {
        let findings = self.judge_now(subject, request);
        if findings.refusal().is_none() || subject.judge(request, &self.home(), None).refusal().is_some() {
            return answer(findings);
        }
        let is_certain = self.catch_up.all_written_before().await;
        let findings = self.judge_now(subject, request);
        answer(if is_certain { findings } else { findings.softened() })
    }

    fn judge_now(&self, subject: &Subject, request: &ReviewRequest<'_>) -> Findings {
        self.index.ask(|cluster| subject.judge(request, &self.home(), cluster))
    }
}

/// Adds to a policy what its user left out.
pub(super) fn with_defaults(request: &ReviewRequest<'_>) -> Answer {
    // What cannot be read is refused by others.
    let object = request.object.and_then(|object| serde_json::from_str::<Value>(object.get()).ok());
    let policy = object.filter(|_| request.kind == "SriovNetworkNodePolicy");
    admit(Vec::new(), policy.as_ref().map(policy_defaults).unwrap_or_default())
}

pub(super) fn answer(findings: Findings) -> Answer {
    match findings.refusal() {
        None => admit(findings.warnings(), Vec::new()),
        Some(_) => Answer::Refuse { code: 422, reason: "Invalid", findings },
    }
}

pub(super) fn admit(warnings: Vec<String>, patch: Vec<PatchOperation>) -> Answer {
    Answer::Admit { warnings, patch }
}

pub(super) fn is_going(object: &RawValue) -> bool {
    let read = serde_json::from_str::<OnlyDeletion>(object.get()).ok();
    read.and_then(|object| object.metadata?.deletion_timestamp).is_some()
}
