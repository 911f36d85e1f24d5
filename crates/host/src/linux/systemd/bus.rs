//! The host's system bus, on which systemd is asked. The connection is there for one conversation only: an idle process keeps
//! neither a socket nor a thread for it.

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

/// Has a conversation with systemd that is over after `limit` at the latest.
pub(super) fn talk<T>(
    root: &HostRoot,
    attempt: &str,
    limit: Duration,
    conversation: impl AsyncFnOnce(&Systemd) -> zbus::Result<T>,
) -> Result<T, HostError> {
    let socket = root.system_bus();
    let connect = || -> io::Result<(UnixStream, Alarm)> {
        let stream = UnixStream::connect(&socket)?;
        let alarm = Alarm::set(stream.try_clone()?, limit)?;
        Ok((stream, alarm))
    };
    let (stream, alarm) = connect().map_err(|source| sysfs::failed("connect to", &socket, source))?;
    let said = zbus::block_on(async {
        let connection = Builder::unix_stream(stream).build().await?;
        let systemd = Systemd { connection };
        let said = conversation(&systemd).await;
        // Whatever it says: the conversation is over.
        let _ = systemd.connection.close().await;
        said
    });
    said.map_err(|source| {
        if alarm.has_rung() {
            HostError::BusOverdue { attempt: attempt.to_owned(), after: limit }
        } else {
            HostError::Bus { attempt: attempt.to_owned(), source: Box::new(source) }
        }
    })
}

/// systemd, while we are connected.
pub(super) struct Systemd {
    connection: Connection,
}

impl Systemd {
    /// Calls a method of its manager.
    pub(super) async fn call<B: Serialize + DynamicType>(
        &self,
        method: &str,
        body: &B,
    ) -> zbus::Result<Message> {
        self.connection.call_method(Some(SERVICE), MANAGER_PATH, Some(MANAGER), method, body).await
    }

    /// Starts a unit that exists only for this, waits until its start is over, and gives the result of that.
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
        let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let reply = self.call("StartTransientUnit", &(name, "fail", properties, others)).await?;
        let job: OwnedObjectPath = reply.body().deserialize()?;
        while let Some(message) = poll_fn(|context| Pin::new(&mut removed).poll_next(context)).await {
            let body = message?.body();
            let (_, path, _, result): (u32, OwnedObjectPath, String, String) = body.deserialize()?;
            if path == job {
                return Ok(result);
            }
        }
        Err(zbus::Error::Failure("systemd hung up before the job was over".to_owned()))
    }

    /// A property of a service.
    pub(super) async fn service_property<T>(&self, unit: &str, property: &str) -> zbus::Result<T>
    where
        T: TryFrom<OwnedVariant> + DeserializeOwned + Type,
        T::Error: Into<zbus::Error>,
    {
        let path: OwnedObjectPath = self.call("GetUnit", &unit).await?.body().deserialize()?;
        let asked = ("org.freedesktop.systemd1.Service", property);
        let reply =
            self.connection.call_method(Some(SERVICE), &path, Some(PROPERTIES), "Get", &asked).await?;
        let value: OwnedVariant = reply.body().deserialize()?;
        T::try_from(value).map_err(Into::into)
    }
}

/// Ends a conversation that takes too long, by closing its socket.
struct Alarm {
    has_rung: Arc<AtomicBool>,
    // Dropped with the alarm, which ends its thread.
    _is_over: mpsc::Sender<()>,
}

impl Alarm {
    fn set(stream: UnixStream, limit: Duration) -> io::Result<Self> {
        let (is_over, over) = mpsc::channel::<()>();
        let has_rung = Arc::new(AtomicBool::new(false));
        let bell = Arc::clone(&has_rung);
        let wait = move || {
            if over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                bell.store(true, Ordering::Release);
                let _ = stream.shutdown(Shutdown::Both);
            }
        };
        thread::Builder::new().name("bus alarm".to_owned()).spawn(wait)?;
        Ok(Self { has_rung, _is_over: is_over })
    }

    fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }
}
