//! Uevents: messages of the kernel about devices that were added, removed or changed.

/// Uevent of a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Uevent<'a> {
    pub(super) device: &'a [u8],
    pub(super) subsystem: &'a [u8],
}

impl<'a> Uevent<'a> {
    /// Parses a message of the kernel: `ACTION@DEVPATH`, then `KEY=VALUE` pairs, each with a zero byte at its end.
    /// Names of interfaces may contain any bytes.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = bytes.split(|byte| *byte == 0);
        let header = fields.next()?;
        let at = header.iter().position(|byte| *byte == b'@')?;
        let subsystem = fields.find_map(|field| field.strip_prefix(b"SUBSYSTEM="))?;
        Some(Self { device: &header[at + 1..], subsystem })
    }

    /// Returns whether the event may concern a network card or a storage session, as opposed to a queue of a card or a
    /// virtual interface.
    pub(super) fn is_about_cards(&self) -> bool {
        self.is_about_storage()
            || matches!(self.subsystem, b"pci" | b"net" | b"infiniband" | b"vdpa")
                && !self.device.starts_with(b"/devices/virtual/")
    }

    fn is_about_storage(&self) -> bool {
        matches!(self.subsystem, b"iscsi_connection" | b"nvme")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADDED: &[u8] = b"add@/devices/pci0000:00/0000:00:06.0/0000:01:10.0/net/eth0\0ACTION=add\0DEVPATH=/x\0SUBSYSTEM=net\0SEQNUM=5\0";

    #[test]
    fn parses_a_message_of_the_kernel() {
        let event = Uevent::parse(ADDED).unwrap();
        assert_eq!(event.device, b"/devices/pci0000:00/0000:00:06.0/0000:01:10.0/net/eth0");
        assert!(event.is_about_cards());
        for subsystem in ["pci", "infiniband", "vdpa"] {
            let event = Uevent { device: b"/devices/pci0000:00/x", subsystem: subsystem.as_bytes() };
            assert!(event.is_about_cards(), "{subsystem}");
        }
    }

    #[test]
    fn the_name_of_an_interface_may_contain_any_bytes() {
        let renamed = b"move@/devices/pci0000:00/0000:01:10.0/net/e\xff\0ACTION=move\0SUBSYSTEM=net\0";
        assert!(Uevent::parse(renamed).unwrap().is_about_cards());
    }

    #[test]
    fn events_of_storage_sessions_are_relevant_for_any_device_path() {
        let events: [(&[u8], &[u8]); 2] = [
            (b"/devices/platform/host3/session1/connection1:0", b"iscsi_connection"),
            (b"/devices/virtual/nvme-fabrics/ctl/nvme1", b"nvme"),
        ];
        for (device, subsystem) in events {
            assert!(Uevent { device, subsystem }.is_about_cards(), "{subsystem:?}");
        }
    }

    #[test]
    fn events_of_other_devices_are_not_relevant() {
        for message in [
            "add@/devices/virtual/net/veth1\0SUBSYSTEM=net\0",
            "add@/devices/virtual/vdpa/x\0SUBSYSTEM=vdpa\0",
            "add@/devices/pci0000:00/0000:01:10.0/net/eth0/queues/rx-0\0SUBSYSTEM=queues\0",
        ] {
            assert!(!Uevent::parse(message.as_bytes()).unwrap().is_about_cards(), "{message}");
        }
    }

    #[test]
    fn rejects_other_messages() {
        for bytes in [&b""[..], b"libudev\0\xfe\xed\xca\xfe", b"add@/devices/x\0ACTION=add\0", b"\xff@x\0"] {
            assert_eq!(Uevent::parse(bytes), None);
        }
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Uevent::parse(&bytes).map(|event| event.is_about_cards());
        }

        #[test]
        fn accepts_a_damaged_message(at in 0..ADDED.len(), byte: u8, length in 0..ADDED.len()) {
            let mut bytes = ADDED.to_vec();
            bytes[at] = byte;
            bytes.truncate(length);
            let _ = Uevent::parse(&bytes).map(|event| event.is_about_cards());
        }
    }
}
