//! Connection to systemd on the D-Bus system bus of the host. A connection serves one request: an idle process has
//! neither a socket nor a thread for D-Bus.

use std::future::poll_fn;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{io, thread};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zbus::connection::Builder;
use zbus::message::Type as MessageType;
use zbus::{
    Connection, DynamicType, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant, Type, Variant,
};

use crate::HostError;
use crate::linux::root::HostRoot;
use crate::linux::sysfs;

const SERVICE: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Connects to systemd and runs `request`, which fails after `limit`.
pub(super) fn with_systemd<T>(
    root: &HostRoot,
    attempt: &str,
    limit: Duration,
    request: impl AsyncFnOnce(&Systemd) -> zbus::Result<T>,
) -> Result<T, HostError> {
    let socket = root.system_bus();
    let connect = || -> io::Result<(UnixStream, Watchdog)> {
        let stream = UnixStream::connect(&socket)?;
        let watchdog = Watchdog::start(stream.try_clone()?, limit)?;
        Ok((stream, watchdog))
    };
    let (stream, watchdog) = connect().map_err(|source| sysfs::failed("connect to", &socket, source))?;
    let result = zbus::block_on(async {
        let connection = Builder::unix_stream(stream).build().await?;
        let systemd = Systemd { connection };
        let result = request(&systemd).await;
        // The result does not depend on a clean shutdown.
        let _ = systemd.connection.close().await;
        result
    });
    result.map_err(|source| {
        if watchdog.has_expired() {
            HostError::SystemBusTimeout { attempt: attempt.to_owned(), after: limit }
        } else {
            HostError::SystemBus { attempt: attempt.to_owned(), source: Box::new(source) }
        }
    })
}

/// Connection to systemd.
pub(super) struct Systemd {
    connection: Connection,
}

impl Systemd {
    /// Calls a method of the manager object.
    pub(super) async fn call<B: Serialize + DynamicType>(
        &self,
        method: &str,
        body: &B,
    ) -> zbus::Result<Message> {
        self.connection.call_method(Some(SERVICE), MANAGER_PATH, Some(MANAGER), method, body).await
    }

    /// Starts a transient unit, waits for the end of its start job, and returns the result of the job.
    pub(super) async fn run_transient(
        &self,
        name: &str,
        properties: Vec<(&str, Variant<'_>)>,
    ) -> zbus::Result<String> {
        let rule = MatchRule::builder()
            .msg_type(MessageType::Signal)
            .sender(SERVICE)
            .interface(MANAGER)
            .member("JobRemoved")
            .build()?;
        let mut removed = MessageStream::for_match_rule(rule, &self.connection, None).await?;
        self.call("Subscribe", &()).await?;
        let aux: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let reply = self.call("StartTransientUnit", &(name, "fail", properties, aux)).await?;
        let job: OwnedObjectPath = reply.body().deserialize()?;
        while let Some(message) = poll_fn(|context| Pin::new(&mut removed).poll_next(context)).await {
            let body = message?.body();
            let (_, path, _, result): (u32, OwnedObjectPath, String, String) = body.deserialize()?;
            if path == job {
                return Ok(result);
            }
        }
        Err(zbus::Error::Failure("systemd closed the connection before the job ended".to_owned()))
    }

    /// Reads a property of a service.
    pub(super) async fn read_service_property<T>(&self, unit: &str, property: &str) -> zbus::Result<T>
    where
        T: TryFrom<OwnedVariant> + DeserializeOwned + Type,
        T::Error: Into<zbus::Error>,
    {
        let path: OwnedObjectPath = self.call("GetUnit", &unit).await?.body().deserialize()?;
        let arguments = ("org.freedesktop.systemd1.Service", property);
        let reply =
            self.connection.call_method(Some(SERVICE), &path, Some(PROPERTIES), "Get", &arguments).await?;
        let value: OwnedVariant = reply.body().deserialize()?;
        T::try_from(value).map_err(Into::into)
    }
}

/// Watchdog of a request: closes the socket of a request that takes too long.
struct Watchdog {
    has_expired: Arc<AtomicBool>,
    // Dropped with the watchdog, which ends its thread.
    _guard: mpsc::Sender<()>,
}

impl Watchdog {
    fn start(stream: UnixStream, limit: Duration) -> io::Result<Self> {
        let (guard, dropped) = mpsc::channel::<()>();
        let has_expired = Arc::new(AtomicBool::new(false));
        let expired = Arc::clone(&has_expired);
        let wait = move || {
            if dropped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                expired.store(true, Ordering::Release);
                let _ = stream.shutdown(Shutdown::Both);
            }
        };
        thread::Builder::new().name("bus-watchdog".to_owned()).spawn(wait)?;
        Ok(Self { has_expired, _guard: guard })
    }

    fn has_expired(&self) -> bool {
        self.has_expired.load(Ordering::Acquire)
    }
}
