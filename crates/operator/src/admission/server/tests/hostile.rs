//! Clients that try to keep other clients from being served.

use tokio::net::TcpSocket;

use super::*;

/// Few connections, so that a test can open more. No connection is closed by a timeout.
const FEW: ServerLimits = ServerLimits {
    handshake: Duration::from_mins(5),
    header: Duration::from_mins(5),
    idle: Duration::from_mins(5),
    request: Duration::from_mins(5),
    finish: Duration::from_secs(1),
    ..ServerLimits::new(24, 24)
};

/// Point at which a client stops sending.
#[derive(Clone, Copy, Debug)]
enum Silent {
    FromTheStart,
    AfterTheHandshake,
    WithinTheHead,
    WithinTheBody,
    WithinALargeBody,
}

const ALL: [Silent; 5] = [
    Silent::FromTheStart,
    Silent::AfterTheHandshake,
    Silent::WithinTheHead,
    Silent::WithinTheBody,
    Silent::WithinALargeBody,
];

/// Open connection. It is closed when dropped.
type OpenConnection = Box<dyn std::any::Any + Send>;

impl Silent {
    /// Connects from the address `from`.
    async fn open(self, server: &TestServer, certificate: &KeyPairPem, from: &str) -> OpenConnection {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let stream = socket.connect(server.address).await.unwrap();
        if matches!(self, Self::FromTheStart) {
            return Box::new(stream);
        }
        let mut client = shake_hands(stream, trusting(usual_versions(), certificate)).await.unwrap();
        match self {
            Self::FromTheStart | Self::AfterTheHandshake => {}
            Self::WithinTheHead => client.0.write_all(b"POST /mutate HTTP/1.1\r\nHost").await.unwrap(),
            Self::WithinTheBody => client.send_head(PODS, 100).await,
            Self::WithinALargeBody => client.send_head(PODS, REVIEWS.largest).await,
        }
        Box::new(client)
    }
}

async fn at_once<T>(what: impl Future<Output = T>) -> T {
    // Less than the time limit of an incomplete request.
    tokio::time::timeout(Duration::from_secs(2), what).await.expect("in time")
}

#[tokio::test]
async fn silent_clients_do_not_block_others() {
    for silent in ALL {
        for from in ["127.0.0.1", "127.0.0.2"] {
            let (server, certificate) = TestServer::certified(FEW).await;
            let mut before = server.connect(&certificate).await.unwrap();
            assert_eq!(before.post(PODS, &review("u", "good")).await.0, 200);
            let mut held = Vec::new();
            for _ in 0..FEW.connections * 2 {
                held.push(silent.open(&server, &certificate, from).await);
            }
            let after = at_once(async {
                server.connect(&certificate).await.unwrap().post(PODS, &review("u", "good")).await.0
            });
            assert_eq!(after.await, 200, "{silent:?} from {from}");
            if from != "127.0.0.1" {
                let again = at_once(before.post(PODS, &review("u", "good"))).await.0;
                assert_eq!(again, 200, "{silent:?}: a peer with few connections keeps them");
            }
        }
    }
}

#[tokio::test]
async fn announced_large_bodies_do_not_block_real_ones() {
    let (server, certificate) = TestServer::certified(FEW).await;
    let mut held = Vec::new();
    for _ in 0..REVIEWS.large_at_once * 2 {
        held.push(Silent::WithinALargeBody.open(&server, &certificate, "127.0.0.2").await);
    }
    let mut large = review("u", "good");
    large["request"]["object"]["large"] = json!("x".repeat(2 * REVIEWS.small));
    let mut client = server.connect(&certificate).await.unwrap();
    assert_eq!(at_once(client.post(PODS, &large)).await.0, 200);
}

#[tokio::test]
async fn an_incomplete_request_times_out() {
    let (server, certificate) = TestServer::certified(FEW).await;
    let mut half = server.connect(&certificate).await.unwrap();
    half.send_head(PODS, 100).await;
    let (status, text) = half.read_response().await.unwrap();
    assert!(status == 408 && text.contains("try again"), "{status} {text}");
    assert!(half.read_response().await.is_err(), "the connection is closed");
}

#[tokio::test]
async fn a_slow_handler_times_out() {
    let (server, certificate) = TestServer::certified(FEW).await;
    let mut client = server.connect(&certificate).await.unwrap();
    assert_eq!(client.post(PODS, &review("u", "good-later")).await.0, 408);
}

#[tokio::test]
async fn only_http_1_is_supported() {
    let (server, certificate) = TestServer::certified(FEW).await;
    let mut only_2 = trusting(usual_versions(), &certificate);
    only_2.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    assert!(shake_hands(stream, only_2).await.is_err());
    let mut client = server.connect(&certificate).await.unwrap();
    client.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let response = at_once(client.read_response()).await;
    assert!(response.as_ref().map_or(true, |(status, _)| *status == 400), "{response:?}");
    let mut no_tls = TcpStream::connect(server.address).await.unwrap();
    no_tls.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut received = Vec::new();
    let _ = at_once(no_tls.read_to_end(&mut received)).await;
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (server, certificate) = TestServer::certified(FEW).await;
    let mut client = server.connect(&certificate).await.unwrap();
    let mut all = Vec::new();
    for number in 0..50 {
        let body = review(&format!("u{number}"), "bad").to_string();
        let head = format!(
            "POST {VALIDATE} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        all.extend([head, body].concat().into_bytes());
    }
    all.extend(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.0.write_all(&all).await.unwrap();
    let mut responses = String::new();
    at_once(client.0.read_to_string(&mut responses)).await.unwrap();
    let uids: Vec<_> =
        responses.split("\"uid\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let expected: Vec<_> = (0..50).map(|number| format!("u{number}")).collect();
    assert_eq!(uids, expected);
    assert!(responses.ends_with("ok"), "{responses}");
}

#[tokio::test]
async fn the_size_of_heads_and_bodies_is_limited() {
    let (server, certificate) = TestServer::certified(FEW).await;
    let mut client = server.connect(&certificate).await.unwrap();
    let head = format!("GET /readyz HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1024 * 1024));
    let _ = client.0.write_all(head.as_bytes()).await;
    let response = at_once(client.read_response()).await;
    assert!(response.as_ref().map_or(true, |(status, _)| *status == 431), "{response:?}");

    // Bodies without a length.
    let begin = "HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = review("u", "good").to_string();
    let mut client = server.connect(&certificate).await.unwrap();
    let all = format!("POST {VALIDATE} {begin}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    client.0.write_all(all.as_bytes()).await.unwrap();
    assert_eq!(client.read_response().await.unwrap().0, 200);
    let too_much = " ".repeat(REVIEWS.largest + 1);
    let all = format!("POST {VALIDATE} {begin}{:x}\r\n{too_much}\r\n0\r\n\r\n", too_much.len());
    let _ = client.0.write_all(all.as_bytes()).await;
    assert_eq!(client.read_response().await.unwrap().0, 413);
}
