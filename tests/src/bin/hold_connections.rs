//! Program `hold_connections`: opens many connections to a server and keeps them open, idle in one of three ways:
//! nothing was sent, half of a header was sent, or a request was answered. It is a separate program, so that the
//! connections do not count toward the limit of open files of the test.
//!
//! Prints a line when all connections are open, and ends with its standard input.

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use futures::{StreamExt, stream};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Timeout for responses of the server.
const TIMEOUT: Duration = Duration::from_secs(2);
const CONCURRENT: usize = 128;
const HALF_A_HEADER: &[u8] = b"GET /healthz HTTP/1.1\r\nHost";
/// Start of a TLS record.
const HALF_A_HANDSHAKE: &[u8] = &[0x16, 0x03, 0x01];
const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n";

/// Hold connections to a server open.
#[derive(Parser)]
struct Arguments {
    server: SocketAddr,
    /// Number of connections.
    #[arg(long)]
    count: usize,
    /// Source address of the connections.
    #[arg(long)]
    from: IpAddr,
    /// File with trusted certificates, for a TLS server.
    #[arg(long)]
    trust: Option<PathBuf>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the test waits for this line")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let (_, hard_limit) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard_limit, hard_limit)?;
    let tls = arguments.trust.as_deref().map(connector).transpose()?;
    let opening = (0..arguments.count).map(|number| open(&arguments, tls.as_ref(), number));
    let held: Vec<_> = stream::iter(opening).buffer_unordered(CONCURRENT).collect().await;
    let held = held.into_iter().collect::<io::Result<Vec<_>>>()?;
    println!("{} connections are open", held.len());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn connector(trust: &std::path::Path) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trust)? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Opens a connection. Returns `None` if the server does not respond, which is not tested here.
async fn open(
    arguments: &Arguments,
    tls: Option<&TlsConnector>,
    number: usize,
) -> io::Result<Option<Box<dyn Stream>>> {
    let socket = if arguments.from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(arguments.from, 0))?;
    let Ok(connected) = timeout(TIMEOUT, socket.connect(arguments.server)).await else { return Ok(None) };
    let mut stream = connected?;
    match (number % 3, tls) {
        (0, _) => {}
        (1, tls) => {
            let half = if tls.is_some() { HALF_A_HANDSHAKE } else { HALF_A_HEADER };
            let _ = stream.write_all(half).await;
        }
        (_, None) => {
            let _ = timeout(TIMEOUT, send_request(&mut stream)).await;
        }
        (_, Some(tls)) => {
            let name = ServerName::from(arguments.server.ip());
            let connecting = timeout(TIMEOUT, tls.connect(name, stream));
            let Ok(Ok(mut stream)) = connecting.await else { return Ok(None) };
            let _ = timeout(TIMEOUT, send_request(&mut stream)).await;
            return Ok(Some(Box::new(stream)));
        }
    }
    Ok(Some(Box::new(stream)))
}

async fn send_request(stream: &mut impl Stream) -> io::Result<u8> {
    stream.write_all(REQUEST).await?;
    stream.read_u8().await
}
