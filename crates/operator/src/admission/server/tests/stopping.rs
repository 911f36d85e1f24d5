//! A server that stops.

use super::*;

#[tokio::test]
async fn whoever_asks_a_server_that_stops_is_answered_and_sent_elsewhere() {
    let stop = CancellationToken::new();
    let served = served(&stop);
    let body = review("u", "good").to_string();
    let before = served.respond(Question::Validate, asked(body.clone())).await;
    assert!(!before.headers().contains_key(header::CONNECTION));
    stop.cancel();
    let after = served.respond(Question::Validate, asked(body)).await;
    assert_eq!(
        (after.status(), after.headers()[header::CONNECTION].as_bytes()),
        (StatusCode::OK, &b"close"[..])
    );
}

#[tokio::test]
async fn what_was_asked_before_the_end_is_answered() {
    let (mut server, generation) = Webhooks::certified(LIMITS).await;
    let mut client = server.connect(&generation).await.unwrap();
    client.send(PODS, review("u", "good-later").to_string().as_bytes()).await;
    // Its answer says that the question before it was heard, too: both wait in the same runtime.
    let mut other = server.connect(&generation).await.unwrap();
    assert_eq!(other.post(PODS, &review("u", "good")).await.0, 200);

    server.stop.cancel();
    let closed = async { while TcpStream::connect(server.address).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), closed).await.expect("the door closes");
    server.told.add_permits(1);
    assert_eq!(client.answer().await.unwrap().0, 200);
    drop((client, other));
    let ended = tokio::time::timeout(Duration::from_secs(10), &mut server.serving).await;
    ended.expect("it ends").unwrap();
}

#[tokio::test]
async fn half_a_question_keeps_no_server_from_ending() {
    let limits = Limits { finish: Duration::from_millis(300), ..LIMITS };
    let (mut server, generation) = Webhooks::certified(limits).await;
    let silent = TcpStream::connect(server.address).await.unwrap();
    let mut half_a_head = server.connect(&generation).await.unwrap();
    half_a_head.0.write_all(b"POST /mutate HTTP/1.1\r\nHost").await.unwrap();
    let mut half_a_body = server.connect(&generation).await.unwrap();
    half_a_body.send_head(PODS, 100).await;
    // By then the others are heard, too.
    assert_eq!(server.connect(&generation).await.unwrap().post(PODS, &review("u", "good")).await.0, 200);
    server.stop.cancel();
    // Much less than it takes to give up half a question while it serves.
    let ended = tokio::time::timeout(Duration::from_secs(2), &mut server.serving).await;
    ended.expect("it ends").unwrap();
    drop((silent, half_a_head, half_a_body));
}
