//! Connection to a server: through a socket of the host, or through TCP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Connection that does not block.
#[derive(Debug)]
pub(super) enum ServerStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl ServerStream {
    /// Connects to a TCP port within `limit`, else fails with [`io::ErrorKind::TimedOut`]. A host may have several
    /// addresses.
    pub(super) fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + limit;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in find_addresses(host, port, limit)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Returns the addresses of a host: of its IP address, or of its name.
fn find_addresses(host: &str, port: u16, limit: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    // The resolver has no limit. If it exceeds ours, the thread ends with it, or with the process.
    let (sender, found) = mpsc::channel();
    let name = host.to_owned();
    let resolve = move || {
        let addresses = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        let _ = sender.send(addresses);
    };
    thread::Builder::new().name("resolver".to_owned()).spawn(resolve)?;
    found.recv_timeout(limit).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Read for ServerStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for ServerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for ServerStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[test]
    fn a_port_is_connected_by_address_and_by_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let mut stream = ServerStream::connect_tcp(host, port, LIMIT).unwrap();
            stream.write_all(host.as_bytes()).unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            let mut received = vec![0; host.len()];
            accepted.read_exact(&mut received).unwrap();
            assert_eq!(received, host.as_bytes());
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        drop(listener);
        let refused = ServerStream::connect_tcp("127.0.0.1", port, LIMIT).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_host_that_does_not_exist_is_an_error() {
        assert!(ServerStream::connect_tcp("no-such-host.invalid", 6640, LIMIT).is_err());
    }
}
