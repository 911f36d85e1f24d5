//! Connections of the webhooks. Whoever reaches the port can open them, so each has an end, and there are never so many
//! that the API server gets none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// An API server sends less than one KiB before each question.
const LARGEST_HEAD: usize = 32 * 1024;

/// How much of what connections may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// At most so many are open.
    pub(super) open: usize,
    /// A handshake takes at most so long.
    pub(super) handshake: Duration,
    /// From one answer to the next question, or to the first, it is at most so long.
    pub(super) idle: Duration,
    /// When all is over, answers that are under way have so long.
    pub(super) last_answers: Duration,
}

impl Limits {
    pub(super) const USUAL: Self = Self {
        // More than all API servers of a cluster need, and less than the files that a process may open.
        open: 512,
        handshake: Duration::from_secs(5),
        // An API server gives up an idle connection after 90 seconds. It must be the first to do so: one that we closed
        // in the moment in which it asks would fail somebody's write.
        idle: Duration::from_mins(3),
        last_answers: Duration::from_secs(5),
    };
}

/// Serves at `tcp` until `over`, and then as long as answers that are under way may take.
pub(super) async fn serve(
    mut tcp: TcpListener,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    over: impl Future<Output = ()>,
) {
    let finish = CancellationToken::new();
    let talk = Talk { acceptor, router, limits, finish: finish.clone() };
    let mut connections = Connections::default();
    let mut over = pin!(over);
    loop {
        tokio::select! {
            () = &mut over => break,
            // Waits by itself when the machine has no more sockets.
            (stream, from) = Listener::accept(&mut tcp) => {
                connections.make_room(limits.open);
                connections.open(from.ip(), |heard| talk.clone().with(stream, from, heard));
            }
            Some(ended) = connections.tasks.join_next_with_id() => {
                connections.forget(ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
        }
    }
    drop(tcp);
    finish.cancel();
    // Whoever has asked only half a question by then is not waited for.
    let all_ended = async { while connections.tasks.join_next().await.is_some() {} };
    let _ = timeout(limits.last_answers, all_ended).await;
}

/// All that are open. They end with it.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<Id, Open>,
}

struct Open {
    from: IpAddr,
    heard: Heard,
    task: AbortHandle,
}

impl Connections {
    fn open<T>(&mut self, from: IpAddr, begin: impl FnOnce(Heard) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let heard = Heard::now();
        let task = self.tasks.spawn(begin(heard.clone()));
        self.open.insert(task.id(), Open { from, heard, task });
    }

    fn forget(&mut self, id: Id) {
        self.open.remove(&id);
    }

    /// For one more. Nobody new is sent away: that could be the API server. Who has most connections loses the one that
    /// was silent for longest.
    fn make_room(&mut self, most: usize) {
        while self.open.len() >= most {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            for open in self.open.values() {
                *counts.entry(open.from).or_default() += 1;
            }
            let loser = self.open.iter().max_by_key(|(_, open)| (counts.get(&open.from), open.heard.age()));
            let Some((&id, open)) = loser else { return };
            tracing::debug!(from = %open.from, "a silent connection to the webhooks makes room for a new one");
            open.task.abort();
            self.forget(id);
        }
    }
}

/// When somebody last asked, or was answered.
#[derive(Clone)]
struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn again(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// What each connection needs.
#[derive(Clone)]
struct Talk {
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    /// Nothing more is asked after what is being asked.
    finish: CancellationToken,
}

impl Talk {
    async fn with(self, stream: TcpStream, from: SocketAddr, heard: Heard) {
        // Questions and answers are small, and somebody waits for them.
        let _ = stream.set_nodelay(true);
        let stream = match timeout(self.limits.handshake, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%from, %error, "a connection to the webhooks was not made");
                return;
            }
            Err(_) => {
                tracing::debug!(%from, "a connection to the webhooks was not made in time");
                return;
            }
        };
        heard.again();
        let router = TowerToHyperService::new(self.router);
        let answer = service_fn(move |request| {
            heard.again();
            let (answered, heard) = (router.call(request), heard.clone());
            async move { answered.await.inspect(|_| heard.again()) }
        });
        let mut settings = http1::Builder::new();
        settings.timer(TokioTimer::new()).header_read_timeout(self.limits.idle).max_buf_size(LARGEST_HEAD);
        let mut talk = pin!(settings.serve_connection(TokioIo::new(stream), answer));
        let ended = tokio::select! {
            ended = talk.as_mut() => ended,
            () = self.finish.cancelled() => {
                talk.as_mut().graceful_shutdown();
                talk.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%from, %error, "a connection to the webhooks was cut");
        }
    }
}
