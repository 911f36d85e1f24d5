//! The kernel's announcements of devices that come, go and change.

/// An announcement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Uevent<'a> {
    pub(super) device: &'a str,
    pub(super) subsystem: &'a str,
}

impl<'a> Uevent<'a> {
    /// Of a message of the kernel: `ACTION@DEVPATH`, then `KEY=VALUE` pairs, a zero byte after each. `None` for
    /// what is no such message.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut words = bytes.split(|byte| *byte == 0).map_while(|word| std::str::from_utf8(word).ok());
        let (_, device) = words.next()?.split_once('@')?;
        let subsystem = words.find_map(|word| word.strip_prefix("SUBSYSTEM="))?;
        Some(Self { device, subsystem })
    }

    /// Whether it can be about a network card, or a session with a storage server: not a queue of a card, and not an
    /// interface that software made.
    pub(super) fn is_about_cards(&self) -> bool {
        self.is_about_storage()
            || matches!(self.subsystem, "pci" | "net" | "infiniband" | "vdpa")
                && !self.device.starts_with("/devices/virtual/")
    }

    fn is_about_storage(&self) -> bool {
        matches!(self.subsystem, "iscsi_connection" | "nvme")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADDED: &[u8] = b"add@/devices/pci0000:00/0000:00:06.0/0000:01:10.0/net/eth0\0ACTION=add\0DEVPATH=/x\0SUBSYSTEM=net\0SEQNUM=5\0";

    #[test]
    fn reads_the_kernels_message() {
        let event = Uevent::parse(ADDED).unwrap();
        assert_eq!(event.device, "/devices/pci0000:00/0000:00:06.0/0000:01:10.0/net/eth0");
        assert!(event.is_about_cards());
        for subsystem in ["pci", "infiniband", "vdpa"] {
            assert!(Uevent { device: "/devices/pci0000:00/x", subsystem }.is_about_cards(), "{subsystem}");
        }
    }

    #[test]
    fn sessions_with_storage_servers_are_told_wherever_they_are() {
        for (device, subsystem) in [
            ("/devices/platform/host3/session1/connection1:0", "iscsi_connection"),
            ("/devices/virtual/nvme-fabrics/ctl/nvme1", "nvme"),
        ] {
            assert!(Uevent { device, subsystem }.is_about_cards(), "{subsystem}");
        }
    }

    #[test]
    fn passes_over_what_is_not_about_cards() {
        for message in [
            "add@/devices/virtual/net/veth1\0SUBSYSTEM=net\0",
            "add@/devices/virtual/vdpa/x\0SUBSYSTEM=vdpa\0",
            "add@/devices/pci0000:00/0000:01:10.0/net/eth0/queues/rx-0\0SUBSYSTEM=queues\0",
        ] {
            assert!(!Uevent::parse(message.as_bytes()).unwrap().is_about_cards(), "{message}");
        }
    }

    #[test]
    fn refuses_what_is_no_message() {
        for bytes in [&b""[..], b"libudev\0\xfe\xed\xca\xfe", b"add@/devices/x\0ACTION=add\0", b"\xff@x\0"] {
            assert_eq!(Uevent::parse(bytes), None);
        }
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Uevent::parse(&bytes).map(|event| event.is_about_cards());
        }

        #[test]
        fn takes_a_damaged_message(at in 0..ADDED.len(), byte: u8, length in 0..ADDED.len()) {
            let mut bytes = ADDED.to_vec();
            bytes[at] = byte;
            bytes.truncate(length);
            let _ = Uevent::parse(&bytes).map(|event| event.is_about_cards());
        }
    }
}
