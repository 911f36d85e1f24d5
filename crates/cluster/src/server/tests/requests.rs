//! Valid and invalid requests.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_size_of_a_header_is_limited() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let mut client = server.connect(1);
    let header = format!("GET /ok HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1024 * 1024));
    let _ = client.0.write_all(header.as_bytes()).await;
    assert_eq!(client.read_response().await.map(|(status, _)| status), Some(431));
    let mut client = server.connect(1);
    let header = format!("GET /ok HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(16 * 1024));
    client.send(header.as_bytes()).await;
    assert_eq!(client.read_response().await, Some((200, "ok".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_one_by_one() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let mut client = server.connect(1);
    client.send(&GET.repeat(20)).await;
    for _ in 0..20 {
        assert_eq!(client.read_response().await, Some((200, "ok".to_owned())));
    }
    assert_took(client.wait_until_closed().await, ServerLimits::FEW_CLIENTS.idle);
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_connection_and_nothing_else() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let (mut client, mut other) = (server.connect(1), server.connect(1));
    client.send(b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.read_response().await, None);
    assert!(other.is_answered().await);
    assert!(server.connect(1).is_answered().await);
}

#[tokio::test(start_paused = true)]
async fn metrics_are_served_with_the_content_type_of_prometheus() {
    let route = metrics_route(|| Ok("# EOF\n".to_owned()));
    let broken = metrics_route(|| Err(std::fmt::Error));
    for (route, expected) in [(route, "application/openmetrics-text"), (broken, "text/plain")] {
        let server =
            Fixture::start_with(ServerLimits::FEW_CLIENTS, |server| Server { router: route, ..server });
        let mut client = server.connect(1);
        client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let mut response = String::new();
        client.0.read_to_string(&mut response).await.unwrap();
        assert!(response.contains(&format!("content-type: {expected}")), "{response}");
        let status = if expected == "text/plain" { "500" } else { "200" };
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    }
}
