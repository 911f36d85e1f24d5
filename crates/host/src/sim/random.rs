use vfleet_api::{Guid, MacAddr};

/// An address that looks random, and is always the same for the same words: locally administered, and one that an
/// interface may carry.
pub(super) fn mac(words: &str) -> MacAddr {
    let [_, _, mac @ ..] = mix(fnv1a(words)).to_be_bytes();
    MacAddr([mac[0] & 0xfc | 0x02, mac[1], mac[2], mac[3], mac[4], mac[5]])
}

/// A GUID that looks random, and is always the same for the same words.
pub(super) fn guid(words: &str) -> Guid {
    Guid(mix(fnv1a(words)).to_be_bytes())
}

/// A text like a boot id of Linux, always the same for the same words.
pub(super) fn boot_id(words: &str) -> String {
    let [high, low] = [mix(fnv1a(words)), mix(fnv1a(&format!("{words}, too")))];
    let (time, clock) = (high >> 32, low >> 48);
    format!(
        "{time:08x}-{:04x}-{:04x}-{clock:04x}-{:012x}",
        high >> 16 & 0xffff,
        high & 0xffff,
        low & 0xffff_ffff_ffff
    )
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
