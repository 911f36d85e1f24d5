//! Listen addresses of servers.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;
use tokio::net::TcpListener;

/// Listen address: `:8080` for all addresses of the machine, `127.0.0.1:8080` for one of them, `0` to disable the
/// server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress(Option<ListenAddress>);

/// Port on all addresses of the machine, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenAddress {
    AllInterfaces(u16),
    Single(SocketAddr),
}

/// Error of a text that is not a [`BindAddress`].
#[derive(Debug, Error)]
#[error("invalid address {0:?}: use `:PORT`, `ADDRESS:PORT`, or `0` to disable the server")]
pub struct ParseAddressError(String);

impl FromStr for BindAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseAddressError(text.to_owned());
        Ok(Self(match text.strip_prefix(':') {
            Some(port) => Some(ListenAddress::AllInterfaces(port.parse().map_err(|_| error())?)),
            None if text == "0" => None,
            None => Some(ListenAddress::Single(text.parse().map_err(|_| error())?)),
        }))
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("0"),
            Some(ListenAddress::AllInterfaces(port)) => write!(f, ":{port}"),
            Some(ListenAddress::Single(address)) => address.fmt(f),
        }
    }
}

impl BindAddress {
    /// Returns whether the server is disabled (`0`).
    pub fn is_disabled(self) -> bool {
        self.0.is_none()
    }

    /// Opens the socket; returns `None` for `0`.
    pub async fn listen(self) -> Result<Option<TcpListener>, BindError> {
        match self.0 {
            None => Ok(None),
            Some(address) => bind(address).await.map(Some),
        }
    }
}

/// Error of a listen address that cannot be opened.
#[derive(Debug, Error)]
#[error("cannot listen on {address}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// Opens the socket. For all addresses, one IPv6 socket serves IPv4 as well, if the machine has IPv6.
async fn bind(address: ListenAddress) -> Result<TcpListener, BindError> {
    let address = match address {
        ListenAddress::Single(address) => address,
        ListenAddress::AllInterfaces(port) => {
            if let Ok(listener) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                return Ok(listener);
            }
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
        }
    };
    TcpListener::bind(address).await.map_err(|source| BindError { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_displayed() {
        for text in [":8080", "0", "127.0.0.1:0", "[::1]:8081"] {
            assert_eq!(text.parse::<BindAddress>().unwrap().to_string(), text);
        }
        for text in ["", "8080", ":x", ":99999", "localhost:1", "off"] {
            assert!(text.parse::<BindAddress>().is_err(), "{text:?}");
        }
    }
}
