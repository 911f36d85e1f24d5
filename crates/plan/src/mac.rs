//! MACs of VFs.

use vfleet_api::{MacAddr, PciAddress};

use crate::facts::{LinkKind, PfFacts};

/// Returns the MAC of a VF that vfleet creates on this PF; `None` if VFs have none. It is derived from the permanent
/// MAC of the PF, since the current one can be changed.
pub(crate) fn own_mac(pf: &PfFacts, index: u16) -> Option<MacAddr> {
    let link = pf.link.as_ref().filter(|link| link.kind == LinkKind::Ethernet)?;
    let hardware = link.permanent_mac.filter(|mac| mac.is_usable()).or(link.mac)?;
    Some(vf_mac(hardware, pf.address, index))
}

/// Returns the MAC of a VF that vfleet creates. It is stable for the same VF of the same card, so that the VF keeps it
/// when it is created again, also after a crash. It is locally administered, with 46 bits of a hash of the PF's MAC
/// (globally unique), its PCI address (two ports of a card may share a MAC) and the VF index: as unique as the random
/// MACs of drivers.
pub(crate) fn vf_mac(pf: MacAddr, address: PciAddress, index: u16) -> MacAddr {
    let mut hash = Fnv1a::new();
    hash.write(&pf.0);
    hash.write(alloc::format!("{address}").as_bytes());
    hash.write(&index.to_be_bytes());
    let [_, _, mac @ ..] = hash.finish().to_be_bytes();
    MacAddr([mac[0] & 0xfc | 0x02, mac[1], mac[2], mac[3], mac[4], mac[5]])
}

/// FNV-1a hash with 64 bits: small, and the same in every build, unlike the hashers of the standard library.
pub(crate) struct Fnv1a(u64);

impl Fnv1a {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Returns the hash, with the last bytes mixed into all bits (the finalizer of murmur3).
    pub(crate) const fn finish(self) -> u64 {
        let mut bits = self.0;
        bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        bits ^ (bits >> 33)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_are_usable_stable_and_different() {
        let pf = MacAddr([0x3c, 0xfd, 0xfe, 0, 0, 1]);
        let ports: [PciAddress; 2] = ["0000:3b:00.0".parse().unwrap(), "0000:3b:00.1".parse().unwrap()];
        let mut unique = BTreeSet::new();
        for port in ports {
            for index in 0..2048 {
                let mac = vf_mac(pf, port, index);
                assert!(mac.is_usable() && mac.0[0] & 2 == 2, "{mac}");
                assert_eq!(mac, vf_mac(pf, port, index));
                assert!(unique.insert(mac), "{mac} twice");
            }
        }
    }
}
