//! Minimal HTTP client for metadata services.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::HostError;

/// Maximum length of a response.
const RESPONSE_LIMIT: usize = 1 << 20;

/// Metadata service with a deadline for all requests together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    address: SocketAddr,
    deadline: Instant,
}

impl Service {
    pub(super) fn new(address: SocketAddr, limit: Duration) -> Self {
        Self { address, deadline: Instant::now() + limit }
    }

    /// Returns the body of the response to a GET request.
    pub(super) fn get(self, path: &str, headers: &[(&str, &str)]) -> Result<String, HostError> {
        self.request("GET", path, headers)
    }

    /// Returns the body of the response to a PUT request without a body.
    pub(super) fn put(self, path: &str, headers: &[(&str, &str)]) -> Result<String, HostError> {
        self.request("PUT", path, headers)
    }

    fn request(self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, HostError> {
        let failed = |source| HostError::Metadata { url: format!("http://{}{path}", self.address), source };
        let response = self.exchange(&self.format_head(method, path, headers)).map_err(failed)?;
        parse_body(&response).map_err(failed)
    }

    /// Formats the request. With HTTP/1.0 the response ends with the connection and is never chunked.
    fn format_head(self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut lines = vec![format!("{method} {path} HTTP/1.0"), format!("Host: {}", self.address.ip())];
        lines.push("Content-Length: 0".to_owned());
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.join("\r\n") + "\r\n\r\n"
    }

    fn exchange(self, request: &str) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, self.remaining()?)?;
        stream.set_write_timeout(Some(self.remaining()?))?;
        stream.write_all(request.as_bytes())?;
        let mut response = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            stream.set_read_timeout(Some(self.remaining()?))?;
            let length = stream.read(&mut buffer)?;
            response.extend_from_slice(&buffer[..length]);
            if length == 0 {
                return Ok(response);
            }
            if response.len() > RESPONSE_LIMIT {
                return Err(io::Error::other("response is too long"));
            }
        }
    }

    fn remaining(self) -> io::Result<Duration> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
    }
}

/// Returns the body of a response with status 200.
pub(in super::super) fn parse_body(response: &[u8]) -> io::Result<String> {
    let invalid = || io::Error::other("response is not HTTP");
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(invalid)?;
    let (head, body) = (String::from_utf8_lossy(&response[..end]), &response[end + 4..]);
    let status = head.lines().next().ok_or_else(invalid)?;
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).ok_or_else(invalid)?;
    if code != "200" {
        return Err(io::Error::other(format!("unexpected status: {status}")));
    }
    let content_length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, length)| length.trim().parse::<usize>().map_err(|_| invalid()));
    if content_length.transpose()?.is_some_and(|length| length > body.len()) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "response ends early"));
    }
    Ok(String::from_utf8_lossy(body).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_to_a_silent_service_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Service::new(listener.local_addr().unwrap(), Duration::from_millis(100));
        let error = service.get("/x", &[]).unwrap_err();
        assert_eq!(error.reason(), "MetadataFailed");
        assert!(service.remaining().is_err());
    }

    #[test]
    fn only_a_complete_response_with_status_200_is_accepted() {
        assert_eq!(parse_body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nhello").unwrap(), "hello");
        assert_eq!(parse_body(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap(), "hello");
        for (response, expected) in [
            (&b"HTTP/1.1 404 Not Found\r\n\r\n<html>"[..], "404 Not Found"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "ends early"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello", "not HTTP"),
            (b"HTTP/1.1 200 OK", "not HTTP"),
            (b"SSH-2.0\r\n\r\n", "not HTTP"),
            (b"", "not HTTP"),
        ] {
            let error = parse_body(response).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_body(&bytes);
        }

        #[test]
        fn accepts_a_damaged_response(at in 0..60_usize, byte: u8) {
            let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: EC2ws\r\n\r\nhello".to_vec();
            if let Some(found) = response.get_mut(at) {
                *found = byte;
            }
            let _ = parse_body(&response);
        }
    }
}
