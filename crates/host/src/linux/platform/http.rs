//! Just enough HTTP for a metadata service.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::HostError;

/// No answer of a metadata service is longer.
const LONGEST: usize = 1 << 20;

/// A metadata service, and when it must have answered all our questions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    address: SocketAddr,
    end: Instant,
}

impl Service {
    pub(super) fn new(address: SocketAddr, limit: Duration) -> Self {
        Self { address, end: Instant::now() + limit }
    }

    /// What it answers to a GET.
    pub(super) fn get(self, path: &str, headers: &[(&str, &str)]) -> Result<String, HostError> {
        self.request("GET", path, headers)
    }

    /// What it answers to a PUT without a body.
    pub(super) fn put(self, path: &str, headers: &[(&str, &str)]) -> Result<String, HostError> {
        self.request("PUT", path, headers)
    }

    fn request(self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<String, HostError> {
        let failed = |source| HostError::Metadata { url: format!("http://{}{path}", self.address), source };
        let answer = self.exchange(&self.head(method, path, headers)).map_err(failed)?;
        body(&answer).map_err(failed)
    }

    /// HTTP/1.0: the answer ends with the connection, and is never in pieces.
    fn head(self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut lines = vec![format!("{method} {path} HTTP/1.0"), format!("Host: {}", self.address.ip())];
        lines.push("Content-Length: 0".to_owned());
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.join("\r\n") + "\r\n\r\n"
    }

    fn exchange(self, request: &str) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, self.left()?)?;
        stream.set_write_timeout(Some(self.left()?))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        loop {
            stream.set_read_timeout(Some(self.left()?))?;
            let length = stream.read(&mut piece)?;
            answer.extend_from_slice(&piece[..length]);
            if length == 0 {
                return Ok(answer);
            }
            if answer.len() > LONGEST {
                return Err(io::Error::other("the answer is too long"));
            }
        }
    }

    fn left(self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// The body of an answer that says that all is well.
pub(in super::super) fn body(answer: &[u8]) -> io::Result<String> {
    let nonsense = || io::Error::other("the answer is no HTTP");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(nonsense)?;
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let status = head.lines().next().ok_or_else(nonsense)?;
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).ok_or_else(nonsense)?;
    if code != "200" {
        return Err(io::Error::other(format!("the service says: {status}")));
    }
    let announced = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map(|(_, length)| length.trim().parse::<usize>().map_err(|_| nonsense()));
    if announced.transpose()?.is_some_and(|length| length > body.len()) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ends early"));
    }
    Ok(String::from_utf8_lossy(body).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_service_that_never_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Service::new(listener.local_addr().unwrap(), Duration::from_millis(100));
        let error = service.get("/x", &[]).unwrap_err();
        assert_eq!(error.reason(), "MetadataFailed");
        assert!(service.left().is_err());
    }

    #[test]
    fn only_a_whole_and_good_answer_counts() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nhello").unwrap(), "hello");
        assert_eq!(body(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap(), "hello");
        for (answer, words) in [
            (&b"HTTP/1.1 404 Not Found\r\n\r\n<html>"[..], "404 Not Found"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "ends early"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello", "no HTTP"),
            (b"HTTP/1.1 200 OK", "no HTTP"),
            (b"SSH-2.0\r\n\r\n", "no HTTP"),
            (b"", "no HTTP"),
        ] {
            let error = body(answer).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = body(&bytes);
        }

        #[test]
        fn takes_a_damaged_answer(at in 0..60_usize, byte: u8) {
            let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: EC2ws\r\n\r\nhello".to_vec();
            if let Some(found) = answer.get_mut(at) {
                *found = byte;
            }
            let _ = body(&answer);
        }
    }
}
