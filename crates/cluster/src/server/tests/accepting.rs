//! Connections that cannot be accepted.

use super::*;

const EMFILE: i32 = 24;
const ECONNABORTED: i32 = 103;

#[tokio::test(start_paused = true)]
async fn a_server_without_file_descriptors_pauses_and_continues() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let start = Instant::now();
    for _ in 0..10 {
        server.fail(EMFILE);
    }
    let mut client = server.connect(1);
    assert!(client.is_answered().await);
    // 50, 100, 200, 400, 800 milliseconds, and then a second each time.
    assert_took(start.elapsed(), Duration::from_millis(1550 + 5000));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_file_descriptors_closes_its_longest_idle_connection() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let mut first = server.connect_before_others(1).await;
    let mut second = server.connect_before_others(1).await;
    server.fail(EMFILE);
    advance(Duration::from_millis(5)).await;
    assert!(first.is_closed().await);
    assert!(second.is_answered().await, "open connections are served during the pause");
    assert!(server.connect(2).is_answered().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_aborted_before_it_is_accepted_causes_no_pause() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let start = Instant::now();
    let mut kept = server.connect(1);
    for _ in 0..100 {
        server.fail(ECONNABORTED);
    }
    assert!(server.connect(1).is_answered().await);
    assert!(kept.is_answered().await);
    assert_took(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_server_can_be_stopped_during_a_pause() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    for _ in 0..20 {
        server.fail(EMFILE);
    }
    advance(Duration::from_secs(5)).await;
    let start = Instant::now();
    server.end.cancel();
    server.task.await.unwrap();
    assert_took(start.elapsed(), Duration::ZERO);
}
