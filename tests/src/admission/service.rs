//! One address for several servers, like a Service with its endpoints.

use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections to its endpoints in turn.
pub struct Service {
    port: u16,
    endpoints: Arc<Mutex<Endpoints>>,
}

#[derive(Default)]
struct Endpoints {
    ports: Vec<u16>,
    turn: usize,
    /// Port of each connection so far.
    connections: Vec<u16>,
}

impl Service {
    /// Starts a Service without endpoints, which runs until the test ends. It has its own thread, because tests block
    /// on kubectl while the API server calls the webhook.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoints = Arc::new(Mutex::new(Endpoints::default()));
        let shared = Arc::clone(&endpoints);
        std::thread::spawn(move || {
            runtime.block_on(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { forward(client, &shared).await });
                }
            });
        });
        Self { port, endpoints }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds an endpoint.
    pub fn add(&self, port: u16) {
        self.endpoints.lock().unwrap().ports.push(port);
    }

    /// Returns the number of connections to an endpoint.
    pub fn connections(&self, port: u16) -> usize {
        self.endpoints.lock().unwrap().connections.iter().filter(|other| **other == port).count()
    }

    /// Removes an endpoint. Its connections stay open.
    pub fn remove(&self, port: u16) {
        self.endpoints.lock().unwrap().ports.retain(|other| *other != port);
    }
}

/// Forwards a connection to the next endpoint that listens.
async fn forward(mut client: TcpStream, endpoints: &Mutex<Endpoints>) {
    let ports = {
        let mut endpoints = endpoints.lock().unwrap();
        endpoints.turn += 1;
        let mut ports = endpoints.ports.clone();
        let first = endpoints.turn.checked_rem(ports.len()).unwrap_or(0);
        ports.rotate_left(first);
        ports
    };
    for port in ports {
        if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
            endpoints.lock().unwrap().connections.push(port);
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
