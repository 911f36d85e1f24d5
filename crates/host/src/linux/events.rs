//! Events of the kernel: waiting for a condition with a deadline, and watching a machine.
//!
//! A waiter subscribes first and checks its condition afterwards, so that no change in between is missed.

#[cfg(test)]
mod bridge_tests;

use std::io::{self, PipeReader};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use netlink_sys::protocols::{NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::bridge_events::BridgeWatch;
use super::file_watch::FileWatch;
use super::netlink::failed;
use super::netlink::message::{NetlinkMessage, messages};
use super::netlink::rtnl::{
    self, InterfaceAddress, RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE,
    Route,
};
use super::network::address_use;
use super::ovs;
use super::root::HostRoot;
use super::uevent::Uevent;
use crate::{ChangeCallback, HostError, WatchGuard, format_error_chain};

/// Multicast group of uevents of the kernel; udev has another one.
const KERNEL_UEVENT_GROUP: u32 = 1;
/// Multicast group of udev, which sends a message after it has processed a device.
const UDEV_GROUP: u32 = 2;
/// `RTNLGRP_LINK`, `_IPV4_IFADDR`, `_IPV4_ROUTE`, `_IPV6_IFADDR`, `_IPV6_ROUTE`.
const NETWORK_GROUPS: [u32; 5] = [1, 5, 7, 9, 11];
/// `RTNLGRP_LINK`, `_IPV6_IFADDR`.
const LINK_GROUPS: [u32; 2] = [1, 9];
/// Interval in which values of an interface are read again while its driver changes them: not every change is announced.
const LINK_INTERVAL: Duration = Duration::from_millis(50);
/// Buffer for the events of some hundred VFs. The kernel reports an overflow.
const RECEIVE_BUFFER: usize = 1 << 20;
const ENOBUFS: i32 = 105;
/// Delay before another attempt to subscribe.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Delay before another attempt to watch files. The limit of inotify is usually exhausted for a long time.
const FILE_WATCH_RETRY_DELAY: Duration = Duration::from_mins(1);

/// Predicate for relevant messages; `None` stands for messages that the kernel dropped.
type Filter = Box<dyn Fn(Option<&[u8]>) -> bool + Send>;

/// Subscription to one kind of kernel event.
struct EventSubscription {
    socket: Socket,
    is_relevant: Filter,
    /// Also reads messages of programs.
    has_programs: bool,
}

impl EventSubscription {
    /// Subscribes to changes of devices.
    fn devices() -> Result<Self, HostError> {
        let is_relevant = |bytes: Option<&[u8]>| {
            bytes.is_none_or(|bytes| Uevent::parse(bytes).is_some_and(|event| event.is_about_cards()))
        };
        Self::open(NETLINK_KOBJECT_UEVENT, KERNEL_UEVENT_GROUP, is_relevant)
    }

    /// Subscribes to changes of card interfaces, Linux bridges, default routes, and addresses that the node uses.
    fn network(node_addresses: &[IpAddr]) -> Result<Self, HostError> {
        let node_addresses = node_addresses.to_vec();
        let bridges = Arc::new(BridgeWatch::default());
        let known = Arc::clone(&bridges);
        let is_relevant = move |bytes: Option<&[u8]>| {
            let Some(bytes) = bytes else {
                known.learn();
                return true;
            };
            let mut messages = messages(bytes).peekable();
            // A message that cannot be parsed may be relevant. All messages are read, because `known` needs them.
            messages.peek().is_none()
                | messages.fold(false, |any, message| any | is_relevant(&message, &node_addresses, &known))
        };
        let groups = NETWORK_GROUPS.iter().map(|group| 1 << (group - 1)).sum();
        let subscription = Self::open(NETLINK_ROUTE, groups, is_relevant)?;
        bridges.learn();
        Ok(subscription)
    }

    fn open(
        protocol: isize,
        groups: u32,
        is_relevant: impl Fn(Option<&[u8]>) -> bool + Send + 'static,
    ) -> Result<Self, HostError> {
        let open = || {
            let mut socket = Socket::new(protocol)?;
            socket.set_non_blocking(true)?;
            socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
            socket.bind(&SocketAddr::new(0, groups))?;
            Ok(socket)
        };
        let socket = open().map_err(|source| failed("subscribe to kernel events", source))?;
        Ok(Self { socket, is_relevant: Box::new(is_relevant), has_programs: false })
    }

    /// Subscribes to changes of interfaces and addresses in the network namespace of this thread.
    fn links() -> Result<Self, HostError> {
        let groups = LINK_GROUPS.iter().map(|group| 1 << (group - 1)).sum();
        Self::open(NETLINK_ROUTE, groups, |_| true)
    }

    /// Subscribes to changes of devices, and to the messages of udev about devices that it has processed.
    fn naming() -> Result<Self, HostError> {
        let groups = KERNEL_UEVENT_GROUP | UDEV_GROUP;
        Ok(Self { has_programs: true, ..Self::open(NETLINK_KOBJECT_UEVENT, groups, |_| true)? })
    }

    /// Receives all pending messages. Returns whether a relevant one was among them, or among messages that the kernel
    /// dropped.
    fn drain(&self) -> Result<bool, HostError> {
        let mut has_relevant = false;
        loop {
            match self.socket.recv_from_full() {
                // Port 0 is the kernel. Messages of programs are ignored, unless udev is one of them.
                Ok((bytes, from)) => {
                    let is_from_kernel = from.port_number() == 0;
                    has_relevant |= (is_from_kernel || self.has_programs) && (self.is_relevant)(Some(&bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(has_relevant),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    has_relevant |= (self.is_relevant)(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(failed("read kernel events", source)),
            }
        }
    }
}

/// Returns whether a message may concern a card, its use by the node, or a Linux bridge. Interfaces, addresses and
/// routes of pods do not.
fn is_relevant(message: &NetlinkMessage<'_>, node_addresses: &[IpAddr], bridges: &BridgeWatch) -> bool {
    match message.kind {
        kind @ (RTM_NEWLINK | RTM_DELLINK) => {
            bridges.is_relevant(kind, message.payload).unwrap_or_else(|| !rtnl::is_virtual(message.payload))
        }
        RTM_NEWADDR | RTM_DELADDR => InterfaceAddress::parse(message.payload)
            .is_none_or(|address| address_use(&address, node_addresses).is_some()),
        RTM_NEWROUTE | RTM_DELROUTE => Route::parse(message.payload).is_none_or(|route| route.is_default),
        _ => true,
    }
}

/// Waits until `check` returns a value, for `limit` at most. Checks first, then after every device event, and once more
/// at the end.
pub(super) fn wait_for<T>(
    limit: Duration,
    check: impl FnMut() -> Result<Option<T>, HostError>,
) -> Result<Option<T>, HostError> {
    wait_with(EventSubscription::devices, limit, None, check)
}

/// Like [`wait_for`], with messages of udev in addition to those of the kernel.
pub(super) fn wait_for_naming<T>(
    limit: Duration,
    check: impl FnMut() -> Result<Option<T>, HostError>,
) -> Result<Option<T>, HostError> {
    wait_with(EventSubscription::naming, limit, None, check)
}

/// Like [`wait_for`], for changes of interfaces and IPv6 addresses in the network namespace of this thread.
pub(super) fn wait_for_link<T>(
    limit: Duration,
    check: impl FnMut() -> Result<Option<T>, HostError>,
) -> Result<Option<T>, HostError> {
    wait_with(EventSubscription::links, limit, Some(LINK_INTERVAL), check)
}

fn wait_with<T>(
    subscribe: impl FnOnce() -> Result<EventSubscription, HostError>,
    limit: Duration,
    interval: Option<Duration>,
    mut check: impl FnMut() -> Result<Option<T>, HostError>,
) -> Result<Option<T>, HostError> {
    // Usually the first check succeeds, and a subscription is more expensive than a check.
    if let Some(value) = check()? {
        return Ok(Some(value));
    }
    let deadline = Instant::now() + limit;
    let events = subscribe()?;
    loop {
        if let Some(value) = check()? {
            return Ok(Some(value));
        }
        let next_check = interval.map_or(deadline, |interval| deadline.min(Instant::now() + interval));
        loop {
            if !is_readable(&events.socket, next_check)? {
                if next_check == deadline {
                    return check();
                }
                break;
            }
            if events.drain()? {
                break;
            }
        }
    }
}

/// Returns whether `source` becomes readable or is closed before the deadline.
fn is_readable(source: &impl AsFd, deadline: Instant) -> Result<bool, HostError> {
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        // One more millisecond, because a timeout that is rounded down to 0 would not wait.
        let timeout = PollTimeout::try_from(remaining + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(source.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(failed("wait for kernel events", errno.into())),
        }
    }
}

/// Starts a thread that calls `callback` after every relevant event and every change of a watched file, until the guard
/// is dropped.
pub(super) fn watch(
    root: &HostRoot,
    node_addresses: &[IpAddr],
    callback: ChangeCallback,
) -> Result<WatchGuard, HostError> {
    let callback: Arc<dyn Fn() + Send + Sync> = Arc::from(callback);
    let ovs = ovs::watch(root, Arc::clone(&callback))?;
    let (root, node_addresses) = (root.clone(), node_addresses.to_vec());
    let sources = EventSources::open(&root, &node_addresses)?;
    let (end, guard) = io::pipe().map_err(|source| HostError::SystemResource { resource: "pipe", source })?;
    thread::Builder::new()
        .name("host-watch".to_owned())
        .spawn(move || run_watch(sources, &root, &node_addresses, &end, &*callback))
        .map_err(|source| HostError::SystemResource { resource: "thread", source })?;
    Ok(WatchGuard::new((guard, ovs)))
}

/// Sources of events of a watch.
struct EventSources {
    devices: EventSubscription,
    network: EventSubscription,
    /// Watch of files, or the time of the next attempt if inotify failed. The watch works without it.
    files: Result<FileWatch, Instant>,
}

impl EventSources {
    fn open(root: &HostRoot, node_addresses: &[IpAddr]) -> Result<Self, HostError> {
        let (devices, network) = (EventSubscription::devices()?, EventSubscription::network(node_addresses)?);
        Ok(Self { devices, network, files: watch_files(root) })
    }
}

/// Watches files, or returns the time of the next attempt.
fn watch_files(root: &HostRoot) -> Result<FileWatch, Instant> {
    FileWatch::open(root).map_err(|error| {
        let (error, delay) = (format_error_chain(&error), FILE_WATCH_RETRY_DELAY);
        let retry_in_seconds = delay.as_secs();
        tracing::warn!(
            error,
            retry_in_seconds,
            "cannot watch files, their changes are noticed late: retrying"
        );
        Instant::now() + delay
    })
}

/// Events of one wait.
struct EventBatch {
    /// A card may have changed.
    has_card_events: bool,
    /// A watched file or directory may have changed, or it is time to try to watch files again.
    has_file_events: bool,
}

/// Calls `callback` for events until the other end of `end` is closed. After an error, events may have been lost:
/// subscribes again and calls `callback`.
fn run_watch(
    mut sources: EventSources,
    root: &HostRoot,
    node_addresses: &[IpAddr],
    end: &PipeReader,
    callback: &dyn Fn(),
) {
    loop {
        match next_batch(&sources, end) {
            Ok(None) => return,
            Ok(Some(batch)) => {
                let was_watched = sources.files.is_ok();
                if batch.has_file_events {
                    // The new watch starts before the old one ends, and before the callback reads the files.
                    sources.files = watch_files(root);
                }
                if batch.has_card_events || batch.has_file_events && (was_watched || sources.files.is_ok()) {
                    callback();
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = format_error_chain(&error),
                    "kernel events were lost, subscribing again"
                );
                let open = || EventSources::open(root, node_addresses);
                let Some(reopened) = retry_subscribe(open, end, RETRY_DELAY) else { return };
                sources = reopened;
                callback();
            }
        }
    }
}

/// Repeats `subscribe` until it succeeds: a shortage of memory or file descriptors may be temporary. Returns `None` if
/// the other end of `end` is closed meanwhile.
fn retry_subscribe<T>(
    mut subscribe: impl FnMut() -> Result<T, HostError>,
    end: &PipeReader,
    delay: Duration,
) -> Option<T> {
    for attempt in 1.. {
        match subscribe() {
            Ok(subscribed) => return Some(subscribed),
            Err(error) => {
                let error = format_error_chain(&error);
                tracing::warn!(
                    error,
                    attempt,
                    retry_in_seconds = delay.as_secs(),
                    "cannot subscribe to kernel events: retrying"
                );
            }
        }
        // Nothing is ever written to the pipe: it becomes readable when it is closed.
        match is_readable(end, Instant::now() + delay) {
            Ok(false) => {}
            Ok(true) => return None,
            Err(error) => {
                tracing::error!(
                    error = format_error_chain(&error),
                    "kernel events are no longer received: restart the agent"
                );
                return None;
            }
        }
    }
    None
}

/// Waits for events and receives them; `None` if the watch has ended.
fn next_batch(sources: &EventSources, end: &PipeReader) -> Result<Option<EventBatch>, HostError> {
    let EventSources { devices, network, files } = sources;
    let mut waiting = vec![
        PollFd::new(end.as_fd(), PollFlags::POLLIN),
        PollFd::new(devices.socket.as_fd(), PollFlags::POLLIN),
        PollFd::new(network.socket.as_fd(), PollFlags::POLLIN),
    ];
    waiting.extend(files.as_ref().ok().map(|files| PollFd::new(files.as_fd(), PollFlags::POLLIN)));
    let until = |retry_at: &Instant| {
        PollTimeout::try_from(retry_at.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::MAX)
    };
    match poll(&mut waiting, files.as_ref().map_or_else(until, |_| PollTimeout::NONE)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(failed("wait for kernel events", errno.into())),
    }
    if waiting[0].any().unwrap_or(true) {
        return Ok(None);
    }
    let has_card_events = devices.drain()? | network.drain()?;
    let has_file_events = match files {
        Ok(files) => files.drain()?,
        Err(retry_at) => *retry_at <= Instant::now(),
    };
    Ok(Some(EventBatch { has_card_events, has_file_events }))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::netlink::attribute::Attributes;
    use super::*;

    /// Returns whether this message is relevant for a node with one address.
    fn is_message_relevant(kind: u16, payload: &[u8]) -> bool {
        let length = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes();
        let bytes = [&length[..], &kind.to_ne_bytes(), &[0; 10], payload].concat();
        let node_addresses = [[10, 0, 0, 1].into()];
        messages(&bytes).any(|message| is_relevant(&message, &node_addresses, &BridgeWatch::default()))
    }

    #[test]
    fn link_local_addresses_and_routes_of_pods_are_not_relevant() {
        let address = |scope, last| {
            let local = Attributes::default().with(2, &[10, 0, 0, last]);
            local.after(&[2, 24, 0, scope, 5, 0, 0, 0])
        };
        let link = 253;
        assert!(
            is_message_relevant(RTM_NEWADDR, &address(link, 1))
                && is_message_relevant(RTM_DELADDR, &address(link, 1))
        );
        assert!(
            is_message_relevant(RTM_NEWADDR, &address(0, 2))
                && is_message_relevant(RTM_DELADDR, &address(0, 2))
        );
        assert!(!is_message_relevant(RTM_NEWADDR, &address(link, 2)));
        let route = |prefix| Attributes::default().after(&[2, prefix, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]);
        assert!(is_message_relevant(RTM_NEWROUTE, &route(0)) && is_message_relevant(RTM_DELROUTE, &route(0)));
        assert!(!is_message_relevant(RTM_NEWROUTE, &route(32)));
        assert!(
            is_message_relevant(RTM_NEWROUTE, &[]) && is_message_relevant(RTM_NEWADDR, &[]),
            "invalid messages may be relevant"
        );
    }

    #[test]
    fn checks_before_it_waits() {
        assert_eq!(wait_for(Duration::from_mins(1), || Ok(Some(7))).unwrap(), Some(7));
    }

    #[test]
    fn checks_once_more_at_the_deadline() {
        let mut checks = 0;
        let value = wait_for(Duration::from_millis(20), || {
            checks += 1;
            Ok::<_, HostError>(None::<()>)
        });
        assert_eq!(value.unwrap(), None);
        assert!(checks >= 2, "{checks}");
    }

    #[test]
    fn subscribing_is_retried_until_it_succeeds_or_the_watch_ends() {
        let refused = || failed("subscribe to kernel events", io::Error::from_raw_os_error(24));
        let (end, guard) = io::pipe().unwrap();
        let mut tries = 0;
        let third = || {
            tries += 1;
            if tries < 3 { Err(refused()) } else { Ok(tries) }
        };
        assert_eq!(retry_subscribe(third, &end, Duration::from_millis(1)), Some(3));
        let never = move || Err::<(), _>(refused());
        let waits = thread::spawn(move || retry_subscribe(never, &end, Duration::from_mins(1)));
        drop(guard);
        assert_eq!(waits.join().unwrap(), None);
    }

    #[test]
    fn a_dropped_watch_drops_its_callback() {
        struct NotifiesOnDrop(mpsc::Sender<()>);
        impl Drop for NotifiesOnDrop {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (sender, receiver) = mpsc::channel();
        let held = NotifiesOnDrop(sender);
        let watch = watch(
            &HostRoot::default(),
            &[],
            Box::new(move || {
                let _ = &held;
            }),
        )
        .unwrap();
        drop(watch);
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
