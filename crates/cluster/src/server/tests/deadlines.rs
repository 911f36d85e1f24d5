//! Clients that are too slow.

use super::*;

const LIMITS: ServerLimits = ServerLimits::FEW_CLIENTS;
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed_when_its_first_header_is_due() {
    let server = Fixture::start(LIMITS);
    assert_took(server.connect(1).wait_until_closed().await, LIMITS.header);
}

#[tokio::test(start_paused = true)]
async fn a_header_that_grows_slowly_without_end_is_aborted() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    let start = Instant::now();
    client.send(HALF_A_HEADER).await;
    while client.0.write_all(b"x").await.is_ok() {
        advance(SECOND / 200).await;
    }
    assert_took(start.elapsed(), LIMITS.header);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_a_while() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    for _ in 0..5 {
        assert!(client.is_answered().await);
        advance(LIMITS.idle * 9 / 10).await;
    }
    assert!(client.is_answered().await, "a request in time keeps it");
    assert_took(client.wait_until_closed().await, LIMITS.idle);
}

#[tokio::test(start_paused = true)]
async fn a_header_on_an_idle_connection_has_the_same_deadline() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    assert!(client.is_answered().await);
    advance(SECOND).await;
    client.send(HALF_A_HEADER).await;
    assert_took(client.wait_until_closed().await, LIMITS.header);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_grows_slowly_without_end_is_aborted() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    let start = Instant::now();
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
    while client.0.write_all(b"x").await.is_ok() {
        advance(SECOND / 200).await;
    }
    assert_took(start.elapsed(), LIMITS.request);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_read_is_aborted() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    let start = Instant::now();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // The pipe fills up; writing fails when the server closes it.
    while client.0.write_all(&[b'x'; 1024]).await.is_ok() {}
    assert_took(start.elapsed(), LIMITS.request);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_read_slowly_is_aborted() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    let start = Instant::now();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    while client.0.read_u8().await.is_ok() {
        advance(SECOND / 10).await;
        if start.elapsed() > LIMITS.request {
            break;
        }
    }
    let _ = client.0.read_to_end(&mut Vec::new()).await;
    assert_took(start.elapsed(), LIMITS.request + SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_takes_too_long_is_aborted() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    client.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_took(client.wait_until_closed().await, LIMITS.request);
}

#[tokio::test(start_paused = true)]
async fn a_large_response_that_is_read_is_complete() {
    let server = Fixture::start(LIMITS);
    let mut client = server.connect(1);
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (status, body) = client.read_response().await.unwrap();
    assert_eq!((status, body.len()), (200, 1024 * 1024));
    assert_took(client.wait_until_closed().await, LIMITS.idle);
}
