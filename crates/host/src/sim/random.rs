use vfleet_api::MacAddr;

/// A stream of addresses that look random and are the same for the same seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: &str) -> Self {
        // FNV-1a: the same in every build, unlike the hashers of the standard library.
        Self(seed.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// An address that an interface may carry, locally administered.
    pub(super) fn mac(&mut self) -> MacAddr {
        let [_, _, mac @ ..] = self.next().to_be_bytes();
        MacAddr([mac[0] & 0xfc | 0x02, mac[1], mac[2], mac[3], mac[4], mac[5]])
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream_of_its_own() {
        let macs = |seed| {
            let mut random = Random::new(seed);
            [random.mac(), random.mac(), random.mac()]
        };
        assert_eq!(macs("node-1"), macs("node-1"));
        assert!(macs("node-1").iter().all(|mac| mac.is_usable() && !macs("node-2").contains(mac)));
    }
}
