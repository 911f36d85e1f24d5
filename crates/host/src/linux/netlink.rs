//! Netlink requests to the kernel, and its answers.
//!
//! Three independent layers:
//!
//! - [`attribute`]: typed fields of messages
//! - [`message`]: messages of the kernel: data, acknowledgments, errors with a text of the driver
//! - [`connection`]: a request and its complete answer
//!
//! On top of them one module for each subsystem of the kernel, with its constants, its requests and the parsers of its
//! answers, without decisions: [`rtnl`] (interfaces, addresses, routes), [`generic`] (generic netlink families) with
//! [`devlink`], [`ethtool`] and [`vdpa`], and [`rdma`].
//!
//! To add a message, put its constants, a function that returns the [`NetlinkRequest`] or [`generic::FamilyCommand`],
//! and the parser into the module of its subsystem, its bytes into `requests`, and its parser into
//! `tests/fuzz/netlink.rs`. For the reasons see `docs/decisions/0015-netlink-messages-are-our-own.md`.

pub(super) mod attribute;
mod connection;
pub(super) mod devlink;
pub(super) mod ethtool;
pub(super) mod generic;
pub(super) mod message;
pub(super) mod rdma;
#[cfg(test)]
mod requests;
pub(super) mod rtnl;
pub(super) mod vdpa;

pub(super) use connection::{NetlinkConnection, NetlinkRequest, failed, invalid_answer};
