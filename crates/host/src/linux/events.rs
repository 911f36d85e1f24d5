//! Waiting for the kernel: always for an event, always with a deadline.
//!
//! Who waits subscribes first and looks then, so that nothing that happens in between is missed.

use std::io::{self, PipeReader};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use netlink_sys::protocols::{NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::netlink::failed;
use super::netlink::message::{Message, messages};
use super::netlink::rtnl::{
    self, Address, RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, Route,
};
use super::network::use_for;
use super::uevent::Uevent;
use crate::{HostError, Wake, Watch, with_causes};

/// The group of the kernel's own messages; udev's are another.
const UEVENTS_OF_THE_KERNEL: u32 = 1;
/// `RTNLGRP_LINK`, `_IPV4_IFADDR`, `_IPV4_ROUTE`, `_IPV6_IFADDR`, `_IPV6_ROUTE`.
const GROUPS_OF_THE_NETWORK: [u32; 5] = [1, 5, 7, 9, 11];
/// Room for the announcements of some hundred VFs; when it is not enough, the kernel says so.
const RECEIVE_BUFFER: usize = 1 << 20;
const ENOBUFS: i32 = 105;
/// Before another try to subscribe.
const PAUSE: Duration = Duration::from_secs(5);

/// Whether a message is of interest.
type Filter = Box<dyn Fn(&[u8]) -> bool + Send>;

/// A subscription to one kind of message.
struct Subscription {
    socket: Socket,
    is_of_interest: Filter,
}

impl Subscription {
    fn devices() -> Result<Self, HostError> {
        let is_of_interest = |bytes: &[u8]| Uevent::parse(bytes).is_some_and(|event| event.is_about_cards());
        Self::open(NETLINK_KOBJECT_UEVENT, UEVENTS_OF_THE_KERNEL, is_of_interest)
    }

    /// Interfaces of cards, default routes, and addresses that the node uses.
    fn network(node_addresses: &[IpAddr]) -> Result<Self, HostError> {
        let node_addresses = node_addresses.to_vec();
        let is_of_interest = move |bytes: &[u8]| {
            let mut messages = messages(bytes).peekable();
            // What cannot be parsed may be about a card, too.
            messages.peek().is_none() || messages.any(|message| is_about_cards(&message, &node_addresses))
        };
        let groups = GROUPS_OF_THE_NETWORK.iter().map(|group| 1 << (group - 1)).sum();
        Self::open(NETLINK_ROUTE, groups, is_of_interest)
    }

    fn open(
        protocol: isize,
        groups: u32,
        is_of_interest: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Result<Self, HostError> {
        let open = || {
            let mut socket = Socket::new(protocol)?;
            socket.set_non_blocking(true)?;
            socket.set_rx_buf_sz(RECEIVE_BUFFER)?;
            socket.bind(&SocketAddr::new(0, groups))?;
            Ok(socket)
        };
        let socket = open().map_err(|source| failed("subscribe to the kernel's events", source))?;
        Ok(Self { socket, is_of_interest: Box::new(is_of_interest) })
    }

    /// Takes all messages that wait; gives whether one of them is of interest. When the kernel had to drop
    /// some, one may have been.
    fn drain(&self) -> Result<bool, HostError> {
        let mut found = false;
        loop {
            match self.socket.recv_from_full() {
                // Port 0 is the kernel: what programs send is not believed.
                Ok((bytes, from)) => found |= from.port_number() == 0 && (self.is_of_interest)(&bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(found),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => found = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(failed("read the kernel's events", source)),
            }
        }
    }
}

/// Whether a message may be about a card, or about what the node uses its cards for. What a pod's interfaces, addresses
/// and routes say is not.
fn is_about_cards(message: &Message<'_>, node_addresses: &[IpAddr]) -> bool {
    match message.kind {
        RTM_NEWLINK | RTM_DELLINK => !rtnl::is_virtual(message.payload),
        RTM_NEWADDR | RTM_DELADDR => {
            Address::parse(message.payload).is_none_or(|address| use_for(&address, node_addresses).is_some())
        }
        RTM_NEWROUTE | RTM_DELROUTE => Route::parse(message.payload).is_none_or(|route| route.is_default),
        _ => true,
    }
}

/// Waits until `look` sees something, for `limit` at most. Looks first, then after every event about a card, and
/// once more at the end.
pub(super) fn wait_for<T>(
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, HostError>,
) -> Result<Option<T>, HostError> {
    // Most often it is there already, and a subscription costs more than a look.
    if let Some(seen) = look()? {
        return Ok(Some(seen));
    }
    let deadline = Instant::now() + limit;
    let devices = Subscription::devices()?;
    loop {
        if let Some(seen) = look()? {
            return Ok(Some(seen));
        }
        loop {
            if !is_readable(&devices.socket, deadline)? {
                return look();
            }
            if devices.drain()? {
                break;
            }
        }
    }
}

/// Whether something can be read before the deadline, or the other side is closed.
fn is_readable(source: &impl AsFd, deadline: Instant) -> Result<bool, HostError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // One more millisecond: rounded down, the last wait would not wait at all.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(source.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(failed("wait for the kernel's events", errno.into())),
        }
    }
}

/// Calls `wake` after every event about a card, from a thread of its own, until the watch is dropped.
pub(super) fn watch(node_addresses: &[IpAddr], wake: Wake) -> Result<Watch, HostError> {
    let node_addresses = node_addresses.to_vec();
    let subscriptions = subscribe(&node_addresses)?;
    let (end, guard) = io::pipe().map_err(|source| HostError::System { what: "pipe", source })?;
    thread::Builder::new()
        .name("host-watch".to_owned())
        .spawn(move || serve(subscriptions, &node_addresses, &end, &wake))
        .map_err(|source| HostError::System { what: "thread", source })?;
    Ok(Watch::new(guard))
}

fn subscribe(node_addresses: &[IpAddr]) -> Result<[Subscription; 2], HostError> {
    Ok([Subscription::devices()?, Subscription::network(node_addresses)?])
}

/// Ends when the other side of `end` is closed. After an error changes may have been missed, so it subscribes anew
/// and wakes.
fn serve(mut subscriptions: [Subscription; 2], node_addresses: &[IpAddr], end: &PipeReader, wake: &Wake) {
    loop {
        match next_batch(&subscriptions, end) {
            Ok(Some(true)) => wake(),
            Ok(Some(false)) => {}
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(
                    error = with_causes(&error),
                    "the kernel's events were lost; subscribing anew"
                );
                let Some(again) = subscribe_anew(|| subscribe(node_addresses), end, PAUSE) else { return };
                subscriptions = again;
                wake();
            }
        }
    }
}

/// Tries until it succeeds: a machine that is short of memory or files now may have some in a moment. `None` when the
/// other side of `end` was closed meanwhile.
fn subscribe_anew<T>(
    mut subscribe: impl FnMut() -> Result<T, HostError>,
    end: &PipeReader,
    pause: Duration,
) -> Option<T> {
    for attempt in 1.. {
        match subscribe() {
            Ok(subscribed) => return Some(subscribed),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(
                    error,
                    attempt,
                    ?pause,
                    "no events from the kernel; trying again after a pause"
                );
            }
        }
        // Nothing is ever written to it: it is readable when it is closed.
        match is_readable(end, Instant::now() + pause) {
            Ok(false) => {}
            Ok(true) => return None,
            Err(error) => {
                tracing::error!(error = with_causes(&error), "no events from the kernel any more");
                return None;
            }
        }
    }
    None
}

/// Waits for messages and takes them; gives whether one is of interest, `None` at the end.
fn next_batch(subscriptions: &[Subscription; 2], end: &PipeReader) -> Result<Option<bool>, HostError> {
    let [devices, network] = subscriptions;
    let mut waiting = [
        PollFd::new(end.as_fd(), PollFlags::POLLIN),
        PollFd::new(devices.socket.as_fd(), PollFlags::POLLIN),
        PollFd::new(network.socket.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut waiting, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(failed("wait for the kernel's events", errno.into())),
    }
    if waiting[0].any().unwrap_or(true) {
        return Ok(None);
    }
    Ok(Some(devices.drain()? | network.drain()?))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::netlink::attribute::Attributes;
    use super::*;

    /// Whether a subscription with one node address takes this message.
    fn takes(kind: u16, payload: &[u8]) -> bool {
        let length = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes();
        let bytes = [&length[..], &kind.to_ne_bytes(), &[0; 10], payload].concat();
        let node_addresses = [[10, 0, 0, 1].into()];
        messages(&bytes).any(|message| is_about_cards(&message, &node_addresses))
    }

    #[test]
    fn an_address_for_the_link_or_a_pods_route_wakes_nobody() {
        let address = |scope, last| {
            let local = Attributes::default().with(2, &[10, 0, 0, last]);
            local.after(&[2, 24, 0, scope, 5, 0, 0, 0])
        };
        let link = 253;
        assert!(takes(RTM_NEWADDR, &address(link, 1)) && takes(RTM_DELADDR, &address(link, 1)));
        assert!(takes(RTM_NEWADDR, &address(0, 2)) && takes(RTM_DELADDR, &address(0, 2)));
        assert!(!takes(RTM_NEWADDR, &address(link, 2)));
        let route = |prefix| Attributes::default().after(&[2, prefix, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]);
        assert!(takes(RTM_NEWROUTE, &route(0)) && takes(RTM_DELROUTE, &route(0)));
        assert!(!takes(RTM_NEWROUTE, &route(32)));
        assert!(
            takes(RTM_NEWROUTE, &[]) && takes(RTM_NEWADDR, &[]),
            "what makes no sense may be of interest"
        );
    }

    #[test]
    fn looks_before_it_waits() {
        assert_eq!(wait_for(Duration::from_mins(1), || Ok(Some(7))).unwrap(), Some(7));
    }

    #[test]
    fn looks_once_more_at_the_deadline() {
        let mut looks = 0;
        let seen = wait_for(Duration::from_millis(20), || {
            looks += 1;
            Ok::<_, HostError>(None::<()>)
        });
        assert_eq!(seen.unwrap(), None);
        assert!(looks >= 2, "{looks}");
    }

    #[test]
    fn subscribing_anew_is_tried_until_it_succeeds_or_nobody_listens() {
        let refused = || failed("subscribe to the kernel's events", io::Error::from_raw_os_error(24));
        let (end, guard) = io::pipe().unwrap();
        let mut tries = 0;
        let third = || {
            tries += 1;
            if tries < 3 { Err(refused()) } else { Ok(tries) }
        };
        assert_eq!(subscribe_anew(third, &end, Duration::from_millis(1)), Some(3));
        let never = move || Err::<(), _>(refused());
        let waits = thread::spawn(move || subscribe_anew(never, &end, Duration::from_mins(1)));
        drop(guard);
        assert_eq!(waits.join().unwrap(), None);
    }

    #[test]
    fn a_dropped_watch_lets_go_of_its_wake() {
        struct SaysGoodbye(mpsc::Sender<()>);
        impl Drop for SaysGoodbye {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (sender, receiver) = mpsc::channel();
        let held = SaysGoodbye(sender);
        let watch = watch(
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
