//! MTUs of the API and defaults of the kernel.

use crate::facts::LinkKind;

/// Maximum MTU: the kernel stores it in a signed 32-bit integer.
pub(crate) const MAX_MTU: u32 = i32::MAX.unsigned_abs();

/// Returns the default MTU of the kernel for this link type.
pub(crate) const fn default_mtu(kind: LinkKind) -> u32 {
    match kind {
        LinkKind::Infiniband => 2048,
        LinkKind::Ethernet | LinkKind::Other(_) => 1500,
    }
}

/// Returns the requested MTU. Zero means none, as the Go API writes it. The error is a value that the kernel does not
/// accept.
pub(crate) fn read_mtu(requested: Option<i64>) -> Result<Option<u32>, i64> {
    let Some(requested) = requested.filter(|requested| *requested != 0) else { return Ok(None) };
    u32::try_from(requested).ok().filter(|mtu| *mtu <= MAX_MTU).map(Some).ok_or(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_what_the_kernel_takes() {
        assert_eq!(read_mtu(None), Ok(None));
        assert_eq!(read_mtu(Some(0)), Ok(None));
        assert_eq!(read_mtu(Some(1500)), Ok(Some(1500)));
        assert_eq!(read_mtu(Some(2_147_483_647)), Ok(Some(MAX_MTU)));
        for requested in [-1, 2_147_483_648, 4_294_967_296 + 1500, i64::MAX, i64::MIN] {
            assert_eq!(read_mtu(Some(requested)), Err(requested));
        }
    }
}
