//! Shutdown of the server.

use super::*;

#[tokio::test]
async fn a_stopping_server_answers_and_closes_connections() {
    let stop = CancellationToken::new();
    let service = service(&stop);
    let body = review("u", "good").to_string();
    let before = service.respond(Webhook::Validate, post_request(body.clone())).await;
    assert!(!before.headers().contains_key(header::CONNECTION));
    stop.cancel();
    let after = service.respond(Webhook::Validate, post_request(body)).await;
    assert_eq!(
        (after.status(), after.headers()[header::CONNECTION].as_bytes()),
        (StatusCode::OK, &b"close"[..])
    );
}

#[tokio::test]
async fn earlier_requests_are_answered_before_the_end() {
    let (mut server, certificate) = TestServer::certified(LIMITS).await;
    let mut client = server.connect(&certificate).await.unwrap();
    client.send(PODS, review("u", "good-later").to_string().as_bytes()).await;
    // Its response shows that the first request was received, too: both run in the same runtime.
    let mut other = server.connect(&certificate).await.unwrap();
    assert_eq!(other.post(PODS, &review("u", "good")).await.0, 200);

    server.stop.cancel();
    let closed = async { while TcpStream::connect(server.address).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), closed).await.expect("the port closes");
    server.release.add_permits(1);
    assert_eq!(client.read_response().await.unwrap().0, 200);
    drop((client, other));
    let ended = tokio::time::timeout(Duration::from_secs(10), &mut server.serving).await;
    ended.expect("the server ends").unwrap();
}

#[tokio::test]
async fn incomplete_requests_do_not_delay_the_end() {
    let limits = ServerLimits { finish: Duration::from_millis(300), ..LIMITS };
    let (mut server, certificate) = TestServer::certified(limits).await;
    let silent = TcpStream::connect(server.address).await.unwrap();
    let mut half_a_head = server.connect(&certificate).await.unwrap();
    half_a_head.0.write_all(b"POST /mutate HTTP/1.1\r\nHost").await.unwrap();
    let mut half_a_body = server.connect(&certificate).await.unwrap();
    half_a_body.send_head(PODS, 100).await;
    // By then the other connections are accepted, too.
    assert_eq!(server.connect(&certificate).await.unwrap().post(PODS, &review("u", "good")).await.0, 200);
    server.stop.cancel();
    // Much less than the time limit of an incomplete request.
    let ended = tokio::time::timeout(Duration::from_secs(2), &mut server.serving).await;
    ended.expect("the server ends").unwrap();
    drop((silent, half_a_head, half_a_body));
}
