//! Decisions of vfleet as pure functions over plain data: facts in, plan out.
//!
//! - [`admission`]: an object that is about to be stored => findings and patches
//! - [`policy`]: policies and the reported cards of a node => desired state of the node (node state spec)
//! - [`pool`]: pools and a node => pool that the node belongs to
//! - [`resources`]: policies and the cards of a node => configuration of the Go device plugin
//! - [`node`]: node state spec and host facts => steps
//! - [`boot`]: the same in systemd mode => steps
//! - [`standalone`]: policies of a file and host facts => node state spec, without a cluster
//! - [`status`]: number of nodes in each state => conditions of policies and pools
//! - [`guids`]: file of InfiniBand GUIDs => GUID of a VF
//! - [`kernel_arguments`]: command line of the kernel => missing arguments
//! - [`network`]: a network => its NetworkAttachmentDefinition
//! - [`node_state`]: a node and its node state => create, update, keep or delete the node state
//! - [`operator_config`]: state of the deployment => conditions of the operator config
//! - [`offload`]: pools that request Open vSwitch hardware offload => MachineConfigs (OpenShift)
//! - [`schedule`]: steps => stages and lanes that can run in parallel
//! - [`snapshot`]: host facts, node state spec and remaining steps => state of every VF
//! - [`follow_up`]: a plan and the plan that is left after it => what is executed next
//! - [`summary`]: a plan => one line for Events and conditions
//! - [`pods`]: journal of an attachment and facts of its device and namespace => its state
//! - [`bridge_resources`]: Open vSwitch bridges and the capacity of the Node => resources to write and to remove
//! - [`bridge_port`]: settings of a port of a Linux bridge => the kernel's numbers and defaults
//! - [`certificates`]: times at which a webhook certificate is created, trusted and served
//! - [`external`]: requirements for an externally managed PF => faults
//! - [`release_delay`]: a plan and VFs that pods released => steps that are due
//! - [`report`]: host facts => node state status
//!
//! The crate does no I/O and has no clock, environment, async or logging. It is `no_std`, so that the compiler enforces
//! this: see `docs/decisions/0001-the-planner-is-no-std.md`.

#![no_std]

extern crate alloc;

pub mod admission;
pub mod boot;
pub mod bridge_port;
pub mod bridge_resources;
pub mod certificates;
pub mod cni;
pub mod drain;
pub mod external;
pub mod facts;
pub mod files;
pub mod fingerprint;
pub mod firmware;
pub mod follow_up;
pub mod gates;
pub mod go_plugin_restart;
pub mod guids;
pub mod kernel_arguments;
pub mod modules;
mod mtu;
pub mod network;
pub mod node;
pub mod node_state;
pub mod offload;
pub mod operator_config;
pub mod pods;
pub mod policy;
pub mod pool;
pub mod release_delay;
pub mod report;
pub mod resources;
pub mod schedule;
pub mod snapshot;
pub mod standalone;
pub mod status;
pub mod step;
pub mod summary;

mod agent_nodes;
mod mac;
mod platform;
mod prelude;
mod quirks;
mod reread;
mod sha256;

pub use agent_nodes::{explain_no_matching_node, runs_agent};
pub use boot::{
    BootConfig, BootPhase, BootRequest, BootResult, NodeSettings, plan_boot, plan_phase,
    plan_systemd_mode_removal,
};
pub use facts::{
    Absence, BootLoader, BridgeFacts, BridgeKind, CardIdentity, ClockReading, DEFAULT_PROTECTION_TIME,
    EswitchMode, ExternalQuery, Fact, FailedQuery, HostFacts, HostUse, KernelFacts, LingeringUse, LinkFacts,
    LinkKind, LinuxBridgeFacts, LinuxPortFacts, Master, ModeOrder, ModeTrial, ModuleState, OriginalState,
    OvsBridgeFacts, OvsDatabase, OvsFacts, OvsInterfaceFacts, OvsPortFacts, PfFacts, Processor,
    ProtectingUse, RdmaFacts, RebootCount, Reboots, Record, RecordedBridge, RefusedOrder, RememberedUse,
    UnreadAttachments, UnreadableCard, UseHistory, VdpaKind, VfAttachment, VfFacts,
};
pub use fingerprint::fingerprint;
pub use firmware::{FirmwareError, FirmwareFacts, FirmwareLinkType, FirmwareSettings};
pub use go_plugin_restart::{PluginAction, PluginPod, blocks_plugin_start, plugin_action};
pub use guids::{GuidDemand, GuidFileError, GuidSource};
pub use node::{
    BridgeFault, Cause, NodeOptions, Problem, needs_ovs, node_warnings, plan_before_network, plan_node,
    plan_node_with, plan_ovs_at_boot, verified_bridges,
};
pub use node_state::{
    NodeStateAction, NodeStateFacts, NodeStateUpdate, retire_node_state, update_node_state,
};
pub use platform::Platform;
pub use policy::{
    LossReason, LostVfGroup, NamedPolicy, NodeInput, NodeMismatch, NodePlan, OverruledSetting, PfEvaluation,
    PfMismatch, PfOutcome, PfSetting, PolicyEvaluation, PolicyFault, find_node_mismatch, plan_node_spec,
    requests_bridge, selects_node,
};
pub use pool::{NamedPool, NodeIdentity, PoolFault, find_pool_of_node};
pub use reread::reread_after;
pub use resources::{InvalidNicId, NicIds, ResourceList, build_device_plugin_config};
pub use schedule::{Lane, LaneProgress, Schedule, Stage, schedule};
pub use snapshot::{NodeSnapshot, VfConfiguration, VfHolder, VfState};
pub use status::{
    BlockedNode, NodeExample, PolicyNodeCounts, PolicyNodeStatus, PoolSummary, ignored_policy_conditions,
    policy_conditions, pool_conditions, unreadable_policy_conditions,
};
pub use step::{
    Disruption, HostFile, LinuxBridgeState, MapChange, OvsBridgeChange, OvsUplinkChange, Plan, PlannedStep,
    Step, Target, VfDriver, is_userspace_driver,
};
