//! An MTU as the API has it.

use crate::facts::LinkKind;

/// The kernel keeps it in a signed number of 32 bits.
pub(crate) const HIGHEST_MTU: u32 = i32::MAX.unsigned_abs();

/// Returns the MTU that the kernel gives an interface of this kind.
pub(crate) const fn usual_mtu(kind: LinkKind) -> u32 {
    match kind {
        LinkKind::Infiniband => 2048,
        LinkKind::Ethernet | LinkKind::Other(_) => 1500,
    }
}

/// What is asked for, where anything is: zero is "not given", as the Go API writes it. An error is what the kernel
/// cannot take.
pub(crate) fn read_mtu(asked: Option<i64>) -> Result<Option<u32>, i64> {
    let Some(asked) = asked.filter(|asked| *asked != 0) else { return Ok(None) };
    u32::try_from(asked).ok().filter(|mtu| *mtu <= HIGHEST_MTU).map(Some).ok_or(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_what_the_kernel_takes() {
        assert_eq!(read_mtu(None), Ok(None));
        assert_eq!(read_mtu(Some(0)), Ok(None));
        assert_eq!(read_mtu(Some(1500)), Ok(Some(1500)));
        assert_eq!(read_mtu(Some(2_147_483_647)), Ok(Some(HIGHEST_MTU)));
        for asked in [-1, 2_147_483_648, 4_294_967_296 + 1500, i64::MAX, i64::MIN] {
            assert_eq!(read_mtu(Some(asked)), Err(asked));
        }
    }
}
