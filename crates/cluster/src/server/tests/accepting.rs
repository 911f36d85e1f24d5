//! Connections that cannot be accepted.

use super::*;

const EMFILE: i32 = 24;
const ECONNABORTED: i32 = 103;

#[tokio::test(start_paused = true)]
async fn a_server_without_descriptors_pauses_and_goes_on() {
    let server = Fixture::start(Limits::FEW_CLIENTS);
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
async fn a_server_without_descriptors_gives_up_its_longest_idle_connections() {
    let server = Fixture::start(Limits::FEW_CLIENTS);
    let mut first = server.connect_in_turn(1).await;
    let mut second = server.connect_in_turn(1).await;
    server.fail(EMFILE);
    pass(Duration::from_millis(5)).await;
    assert!(first.is_closed().await);
    assert!(second.is_answered().await, "those that are open are answered during the pause");
    assert!(server.connect(2).is_answered().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_gone_before_it_is_accepted_is_nothing_to_wait_for() {
    let server = Fixture::start(Limits::FEW_CLIENTS);
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
async fn a_pause_keeps_no_server_from_ending() {
    let server = Fixture::start(Limits::FEW_CLIENTS);
    for _ in 0..20 {
        server.fail(EMFILE);
    }
    pass(Duration::from_secs(5)).await;
    let start = Instant::now();
    server.end.cancel();
    server.task.await.unwrap();
    assert_took(start.elapsed(), Duration::ZERO);
}
