//! Shutdown of a server.

use tokio::net::{TcpListener, TcpStream};

use super::*;

#[tokio::test(start_paused = true)]
async fn requests_in_progress_are_finished_and_idle_connections_closed() {
    let server = Fixture::start(ServerLimits::FEW_CLIENTS);
    let mut busy = server.connect(1);
    busy.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut idle = server.connect(2);
    assert!(idle.is_answered().await);
    let start = Instant::now();
    server.end.cancel();
    assert_took(idle.wait_until_closed().await, Duration::ZERO);
    server.permits.add_permits(1);
    assert_eq!(busy.read_response().await, Some((200, "later".to_owned())));
    assert!(busy.is_closed().await);
    server.task.await.unwrap();
    assert!(start.elapsed() < ServerLimits::FEW_CLIENTS.finish);
}

#[tokio::test(start_paused = true)]
async fn connections_that_do_not_end_are_aborted() {
    let limits = ServerLimits { finish: Duration::from_millis(300), ..ServerLimits::FEW_CLIENTS };
    let server = Fixture::start(limits);
    let silent = server.connect(1);
    let mut half_a_header = server.connect(1);
    half_a_header.send(HALF_A_HEADER).await;
    let mut half_a_body = server.connect(1);
    half_a_body.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n").await;
    let mut busy = server.connect(1);
    busy.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n").await;
    advance(Duration::from_millis(5)).await;
    let start = Instant::now();
    server.end.cancel();
    server.task.await.unwrap();
    assert_took(start.elapsed(), limits.finish);
    drop(silent);
}

#[tokio::test]
async fn a_stopped_server_refuses_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let end = CancellationToken::new();
    let server = Server::new("test", router(&Arc::new(Semaphore::new(0))), ServerLimits::FEW_CLIENTS);
    let task = tokio::spawn(server.serve(listener, end.clone().cancelled_owned()));
    let mut client = Client(TcpStream::connect(address).await.unwrap());
    assert!(client.is_answered().await);
    end.cancel();
    task.await.unwrap();
    assert!(client.read_response().await.is_none());
    assert!(TcpStream::connect(address).await.is_err());
}
