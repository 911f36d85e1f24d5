//! More connections than the limits allow.

use super::*;

/// Limits without effective deadlines.
const LIMITS: ServerLimits = ServerLimits {
    header: Duration::from_hours(1),
    idle: Duration::from_hours(1),
    request: Duration::from_hours(1),
    ..ServerLimits::new(8, 4)
};

async fn closed(clients: &mut [Client<DuplexStream>]) -> Vec<usize> {
    let mut closed = Vec::new();
    for (index, client) in clients.iter_mut().enumerate() {
        if client.is_closed().await {
            closed.push(index);
        }
    }
    closed
}

#[tokio::test(start_paused = true)]
async fn a_peer_has_no_more_connections_than_allowed_and_keeps_the_newest() {
    let server = Fixture::start(LIMITS);
    let mut other = server.connect_before_others(2).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(server.connect_before_others(1).await);
    }
    assert_eq!(closed(&mut clients).await, (0..16).collect::<Vec<_>>());
    assert!(other.is_answered().await);
}

#[tokio::test(start_paused = true)]
async fn a_full_server_closes_the_longest_idle_connection_of_the_peer_with_most() {
    let server = Fixture::start(LIMITS);
    let mut clients = Vec::new();
    for peer in [1, 2, 2, 2, 3, 3, 4, 4] {
        clients.push(server.connect_before_others(peer).await);
    }
    // The second of peer 2 is now the longest idle one.
    assert!(clients[1].is_answered().await);
    let mut new = server.connect(5);
    assert!(new.is_answered().await, "no connection is refused");
    assert_eq!(closed(&mut clients).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn among_peers_with_equally_many_connections_the_longest_idle_one_is_closed() {
    let server = Fixture::start(LIMITS);
    let mut clients = Vec::new();
    for peer in [8, 7, 6, 5, 4, 3, 2, 1] {
        clients.push(server.connect_before_others(peer).await);
    }
    for client in &mut clients[..2] {
        assert!(client.is_answered().await);
    }
    assert!(server.connect(9).is_answered().await);
    advance(Duration::from_millis(5)).await;
    assert!(server.connect(0).is_answered().await);
    assert_eq!(
        closed(&mut clients).await,
        [2],
        "the connection of peer 9 had ended when the one of peer 0 came"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_in_progress_is_spared_while_an_idle_connection_can_be_closed() {
    let server = Fixture::start(LIMITS);
    let mut busy = server.connect_before_others(1).await;
    busy.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n").await;
    advance(Duration::from_millis(5)).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(server.connect_before_others(1).await);
    }
    assert_eq!(closed(&mut clients).await, (0..7).collect::<Vec<_>>());
    server.permits.add_permits(1);
    assert_eq!(busy.read_response().await, Some((200, "later".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn requests_that_never_end_do_not_block_new_connections() {
    let server = Fixture::start(LIMITS);
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut client = server.connect_before_others(1).await;
        client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n").await;
        held.push(client);
    }
    assert!(server.connect(1).is_answered().await);
}

#[derive(Clone, Copy, Debug)]
enum HeldConnection {
    Silent,
    WithinTheHeader,
    AfterARequest,
}

#[tokio::test(start_paused = true)]
async fn a_client_that_holds_1100_connections_does_not_block_others() {
    for kind in [HeldConnection::Silent, HeldConnection::WithinTheHeader, HeldConnection::AfterARequest] {
        // From the peer of the later requests, and from many peers.
        for peers in [1, 250] {
            let server = Fixture::start(ServerLimits::FEW_CLIENTS);
            let mut held = Vec::new();
            for number in 0..1100_u32 {
                let mut client = server.connect(u8::try_from(number % peers).unwrap());
                match kind {
                    HeldConnection::Silent => {}
                    HeldConnection::WithinTheHeader => {
                        client.send(HALF_A_HEADER).await;
                    }
                    HeldConnection::AfterARequest => assert!(client.is_answered().await),
                }
                held.push(client);
            }
            let mut kept = server.connect(0);
            assert!(kept.is_answered().await, "{kind:?}");
            assert!(server.connect(251).is_answered().await, "{kind:?}");
            assert!(kept.is_answered().await, "{kind:?}: an active client keeps its connection");
            let most = if peers == 1 { 32 } else { 64 };
            let open = held.len() - closed(&mut held).await.len();
            assert!(open <= most, "{kind:?}: {open} are open");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_does_not_count() {
    let server = Fixture::start(LIMITS);
    for _ in 0..3 {
        let mut clients = Vec::new();
        for peer in [1, 1, 1, 1, 2, 2, 2, 2] {
            clients.push(server.connect_before_others(peer).await);
        }
        assert_eq!(closed(&mut clients).await, [0; 0]);
        drop(clients);
        advance(Duration::from_millis(5)).await;
    }
}

const LATER: &[u8] = b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n";

/// The API server has a few requests in progress, and so more connections than each of many other peers.
#[tokio::test(start_paused = true)]
async fn idle_connections_of_many_peers_do_not_abort_requests_in_progress() {
    let server = Fixture::start(LIMITS);
    let mut held = Vec::new();
    for peer in 10..16 {
        held.push(server.connect_before_others(peer).await);
    }
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect_before_others(1).await;
        client.send(LATER).await;
        busy.push(client);
    }
    advance(Duration::from_millis(5)).await;
    held.push(server.connect_before_others(16).await);
    server.permits.add_permits(2);
    for client in &mut busy {
        assert_eq!(client.read_response().await, Some((200, "later".to_owned())));
    }
    assert_eq!(closed(&mut held).await, [0]);
}

/// API servers behind one proxy.
#[tokio::test(start_paused = true)]
async fn many_requests_in_progress_are_spared_while_their_peer_has_an_idle_connection() {
    let server = Fixture::start(ServerLimits { connections: 32, connections_per_peer: 16, ..LIMITS });
    let mut busy = Vec::new();
    for _ in 0..15 {
        let mut client = server.connect_before_others(1).await;
        client.send(LATER).await;
        busy.push(client);
    }
    advance(Duration::from_millis(5)).await;
    let mut idle = server.connect_before_others(1).await;
    let mut new = server.connect_before_others(1).await;
    server.permits.add_permits(15);
    for client in &mut busy {
        assert_eq!(client.read_response().await, Some((200, "later".to_owned())));
    }
    assert!(idle.is_closed().await);
    assert!(new.is_answered().await);
}
