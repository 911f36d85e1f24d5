//! Fingerprints of text: FNV-1a with 64 bits, the same in every version and on every machine.

use crate::prelude::*;

/// Returns the fingerprint of `parts`, in this order.
pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // A separator follows each part, so that "ab" and "c" differ from "a" and "bc".
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_their_boundaries_count() {
        assert_eq!(fingerprint(["ab", "c"]), fingerprint(["ab", "c"]));
        assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
        assert_ne!(fingerprint([]), fingerprint([""]));
    }
}
