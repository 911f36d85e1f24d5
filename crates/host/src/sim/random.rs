//! Generated addresses, which depend only on a text.

use vfleet_api::{Guid, MacAddr};

/// Returns a valid, locally administered MAC address that depends only on `text`.
pub(super) fn mac(text: &str) -> MacAddr {
    let [_, _, mac @ ..] = mix(fnv1a(text)).to_be_bytes();
    MacAddr([mac[0] & 0xfc | 0x02, mac[1], mac[2], mac[3], mac[4], mac[5]])
}

/// Returns a GUID that depends only on `text`.
pub(super) fn guid(text: &str) -> Guid {
    Guid(mix(fnv1a(text)).to_be_bytes())
}

/// Returns a boot ID in the format of Linux that depends only on `text`.
pub(super) fn boot_id(text: &str) -> String {
    let [high, low] = [mix(fnv1a(text)), mix(fnv1a(&format!("{text}, too")))];
    let (time, clock) = (high >> 32, low >> 48);
    format!(
        "{time:08x}-{:04x}-{:04x}-{clock:04x}-{:012x}",
        high >> 16 & 0xffff,
        high & 0xffff,
        low & 0xffff_ffff_ffff
    )
}

/// Returns the FNV-1a hash, which is the same in every build, unlike the hashes of the standard library.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Distributes the hash over all bits (the finalizer of splitmix64): the last hashed bytes affect only the low bits.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_texts_give_different_addresses() {
        let macs: Vec<MacAddr> = (0..100).map(|number| mac(&format!("node-{number}"))).collect();
        for (at, one) in macs.iter().enumerate() {
            assert!(one.is_usable() && !macs[..at].contains(one), "{one}");
            assert_eq!(*one, mac(&format!("node-{at}")));
        }
    }
}
