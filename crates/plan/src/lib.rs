//! Every decision, as pure functions over plain data: facts in, plan out.
//!
//! - [`admission`]: an object that is about to be written => what is wrong with it, and what is added to it
//! - [`policy`]: policies and a node's reported cards => what the node shall be like (node state spec)
//! - [`pool`]: which pool a node belongs to
//! - [`resources`]: policies and a node's cards => what the Go device plugin is told
//! - [`node`]: node state spec and host facts => steps
//! - [`boot`]: the same in systemd mode => steps
//! - [`standalone`]: policies of a file and host facts => node state spec, without a cluster
//! - [`standing`]: nodes counted by where they stand => conditions of policies and pools
//! - [`guids`]: the file of InfiniBand GUIDs => the GUID of a VF
//! - [`kernel_arguments`]: what the kernel was started with => what is missing
//! - [`network`]: a network => its NetworkAttachmentDefinition
//! - [`offload`]: pools that ask for Open vSwitch hardware offload => machine configs (OpenShift)
//! - [`schedule`]: steps => what of them may be done at once
//! - [`snapshot`]: host facts, node state spec and what is still to be done => the state of every VF
//! - [`certificates`]: when a certificate of the webhooks is made, trusted and served
//! - [`external`]: whether a PF that is managed outside is as a policy needs it
//! - [`report`]: host facts => what the node is like (node state status)
//!
//! This room does no I/O, has no clock, no environment, no async and no logging. The crate is `no_std`, so that
//! the compiler says so: see `docs/decisions/0001-the-planner-is-no-std.md`.

#![no_std]

extern crate alloc;

pub mod admission;
pub mod boot;
pub mod certificates;
pub mod drain;
pub mod external;
pub mod facts;
pub mod files;
pub mod fingerprint;
pub mod firmware;
pub mod gates;
pub mod go_plugin_restart;
pub mod guids;
pub mod kernel_arguments;
pub mod modules;
mod mtu;
pub mod network;
pub mod node;
pub mod offload;
pub mod policy;
pub mod pool;
pub mod report;
pub mod resources;
pub mod schedule;
pub mod snapshot;
pub mod standalone;
pub mod standing;
pub mod step;

mod agent_nodes;
mod mac;
mod prelude;
mod vendor;

pub use agent_nodes::runs_agent;
pub use boot::{
    BootConfig, BootPhase, BootResult, BootWish, NodeSettings, plan_boot, plan_no_boot, plan_phase,
};
pub use facts::{
    Absence, BootLoader, CardIdentity, ClockReading, EswitchMode, Fact, FirstSeen, HostFacts, HostUse, InUse,
    KernelFacts, LingeringUse, LinkFacts, LinkKind, ModeOrder, ModeTrial, ModuleState, PROTECTION, PfFacts,
    Processor, Question, RdmaFacts, Reboots, Record, RefusedOrder, RememberedUse, Tries, Unanswered, Unread,
    UseMemory, VdpaKind, VfFacts,
};
pub use fingerprint::fingerprint;
pub use firmware::{FirmwareError, FirmwareFacts, FirmwareLinkType, FirmwareSettings};
pub use go_plugin_restart::{PluginAction, PluginPod, holds_plugin_back, plugin_action};
pub use guids::{GuidDemand, GuidFileError, GuidSource};
pub use node::{NodeOptions, Problem, node_warnings, plan_before_network, plan_node, plan_node_with};
pub use policy::{
    LossReason, LostGroup, NamedPolicy, NodeInput, NodePlan, NodeRule, Overruled, PfAnswer, PfRule,
    PfSetting, PfVerdict, PolicyAnswer, PolicyFault, plan_node_spec, selects_node, wants_bridge,
    why_not_node,
};
pub use pool::{NamedPool, NodeIdentity, PoolFault, pool_of};
pub use resources::{BadNicId, NicIds, ResourceList, device_plugin_config};
pub use schedule::{Lane, Schedule, Stage, schedule};
pub use snapshot::{NodeSnapshot, VfConfiguration, VfHolder, VfState};
pub use standing::{
    BlockedNode, Example, PolicyCount, PolicyStanding, PoolSight, ignored_policy_verdicts, policy_verdicts,
    pool_verdicts, unreadable_policy_verdicts,
};
pub use step::{Disruption, HostFile, Plan, PlannedStep, Step, Target, VfDriver, is_userspace_driver};
