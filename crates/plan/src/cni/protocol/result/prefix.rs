//! Text form of IP addresses with the length of their prefix: `192.0.2.7/24`.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use vfleet_api::ParseError;

use crate::cni::step::IpPrefix;

impl IpPrefix {
    /// Creates an address; `None` if the prefix is longer than the address.
    pub const fn new(address: IpAddr, length: u8) -> Option<Self> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if length > longest { None } else { Some(Self { address, length }) }
    }
}

impl FromStr for IpPrefix {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (address, length) = text.split_once('/')?;
            let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            Self::new(address.parse().ok()?, if is_number { length.parse().ok()? } else { return None })
        };
        parse().ok_or_else(|| ParseError::new(text, "an IP address with a prefix such as 192.0.2.7/24"))
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn a_prefix_is_printed_as_parsed() {
        for text in ["0.0.0.0/0", "192.0.2.7/24", "10.0.0.1/32", "::/0", "2001:db8::1/64", "fe80::1/128"] {
            assert_eq!(text.parse::<IpPrefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "192.0.2.7",
            "192.0.2.7/",
            "192.0.2.7/33",
            "::/129",
            "::/+1",
            "192.0.2.07/24",
            "a/1",
            "::/1/2",
        ] {
            assert!(text.parse::<IpPrefix>().is_err(), "{text}");
        }
    }
}
