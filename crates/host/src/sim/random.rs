use vfleet_api::MacAddr;

/// An address that looks random, and is always the same for the same words: locally administered, and one that an
/// interface may carry.
pub(super) fn mac(words: &str) -> MacAddr {
    let [_, _, mac @ ..] = mix(fnv1a(words)).to_be_bytes();
    MacAddr([mac[0] & 0xfc | 0x02, mac[1], mac[2], mac[3], mac[4], mac[5]])
}

/// The same in every build, unlike the hashers of the standard library.
fn fnv1a(words: &str) -> u64 {
    words
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The last bytes hashed reach only the low bits; mix them into all of them (the finalizer of splitmix64).
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_give_another_address() {
        let macs: Vec<MacAddr> = (0..100).map(|number| mac(&format!("node-{number}"))).collect();
        for (at, one) in macs.iter().enumerate() {
            assert!(one.is_usable() && !macs[..at].contains(one), "{one}");
            assert_eq!(*one, mac(&format!("node-{at}")));
        }
    }
}
