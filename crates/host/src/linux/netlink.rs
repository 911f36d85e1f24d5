//! Netlink: requests to the kernel, and its answers.
//!
//! Three layers that know nothing of each other's contents:
//!
//! - [`attribute`]: typed fields, written and read
//! - [`message`]: what the kernel sends: data, acknowledgements, refusals with the driver's own words
//! - [`connection`]: a request, and all of its answer
//!
//! On top of them one module for each part of the kernel, with its numbers, its requests and the parsers of its answers,
//! and nothing that decides: [`rtnl`] (interfaces, addresses, routes), [`generic`] (parts that are known by name) with
//! [`devlink`], [`ethtool`] and [`vdpa`], and [`rdma`].
//!
//! To add a message: its numbers, a function that returns the [`Request`] or [`generic::Command`] and the parser go into
//! the module of its part of the kernel, its bytes into `requests`, its parser into `tests/fuzz/netlink.rs`.
//! `docs/decisions/0015-netlink-messages-are-our-own.md` has the reasons.

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

pub(super) use connection::{Connection, Request, failed, unreadable};
