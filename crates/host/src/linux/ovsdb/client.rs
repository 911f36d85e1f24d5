//! Connection to ovsdb-server: requests, answers and notifications.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use vfleet_plan::cni::facts::OvsSocket;

use super::super::root::HostRoot;
use super::framing::{MAX_MESSAGE, MessageBuffer};
use super::operation::Operation;
use super::stream::ServerStream;
use super::{OvsdbSocket, socket};
use crate::HostError;

/// Name of the database.
const DATABASE: &str = "Open_vSwitch";
/// Largest number of bytes of an answer and of the changes that wait for it. An answer may have half of them.
const MAX_RECEIVED: usize = 2 * MAX_MESSAGE;
const CHUNK: usize = 1 << 14;

/// Connection to ovsdb-server. Serves one request at a time.
#[derive(Debug)]
pub(in crate::linux) struct OvsdbClient {
    stream: ServerStream,
    socket: String,
    buffer: MessageBuffer,
    /// Changes of monitored tables that arrived while the client waited for an answer.
    pending: VecDeque<Value>,
    /// Number of bytes that were received since `pending` was empty.
    received: usize,
    last_id: u64,
    /// Limit for each answer.
    limit: Duration,
}

/// Message of the server.
#[derive(Debug)]
pub(in crate::linux) enum Message {
    /// Answer to the request with this number.
    Answer { id: Value, result: Value, error: Value },
    /// Request to send back its parameters.
    Echo { id: Value, parameters: Value },
    /// Changes of monitored tables.
    Update(Value),
    /// Notification or request that this client does not know.
    Other,
}

impl Message {
    /// Parses a message; `None` if it is neither a request, a notification nor an answer.
    pub(in crate::linux) fn parse(mut message: Value) -> Option<Self> {
        let members = message.as_object_mut()?;
        let mut take = |name: &str| members.remove(name);
        let (id, method) = (take("id").unwrap_or_default(), take("method"));
        match method {
            None | Some(Value::Null) => {
                let (result, error) = (take("result"), take("error"));
                let has_content = result.is_some() || error.is_some();
                has_content.then(|| Self::Answer {
                    id,
                    result: result.unwrap_or_default(),
                    error: error.unwrap_or_default(),
                })
            }
            Some(Value::String(method)) => {
                let parameters = take("params").unwrap_or_default();
                Some(match method.as_str() {
                    "echo" if !id.is_null() => Self::Echo { id, parameters },
                    "update" => Self::Update(parameters),
                    _ => Self::Other,
                })
            }
            Some(_) => None,
        }
    }
}

impl OvsdbClient {
    /// Connects to ovsdb-server of a host, through the socket that is configured for the host.
    pub(in crate::linux) fn connect(root: &HostRoot, attempt: &str) -> Result<Self, HostError> {
        let socket = OvsdbSocket::parse(root.ovsdb_socket())?;
        Self::connect_to(root, &OvsSocket::Unix(socket.path().to_owned()), attempt)
    }

    /// Connects to an ovsdb-server.
    pub(in crate::linux) fn connect_to(
        root: &HostRoot,
        socket: &OvsSocket,
        attempt: &str,
    ) -> Result<Self, HostError> {
        let limit = root.ovs_limits().answer;
        let stream = socket::open(root, socket, limit, attempt)?;
        let socket = socket::describe(socket);
        let (buffer, pending) = (MessageBuffer::default(), VecDeque::new());
        Ok(Self { stream, socket, buffer, pending, received: 0, last_id: 0, limit })
    }

    /// Executes operations in one transaction. Returns one result for each of them.
    pub(in crate::linux) fn transact(
        &mut self,
        operations: &[Operation],
        attempt: &str,
    ) -> Result<Vec<Value>, HostError> {
        let database = [Value::from(DATABASE)].into_iter();
        let parameters = database.chain(operations.iter().map(|operation| operation.json().clone()));
        let answer = self.call("transact", &parameters.collect::<Vec<_>>(), attempt)?;
        check_results(operations, answer).map_err(|failure| failure.into_error(attempt, &self.socket))
    }

    /// Starts to monitor columns of tables (`{"Bridge": {"columns": ["name"]}}`). Returns their current content. Earlier
    /// monitors continue: an update names the tables that changed.
    pub(in crate::linux) fn monitor(&mut self, tables: Value, attempt: &str) -> Result<Value, HostError> {
        // Monitors of a connection have different identifiers.
        let monitor = format!("monitor-{}", self.last_id);
        self.call("monitor", &[DATABASE.into(), monitor.into(), tables], attempt)
    }

    /// Asks the server for a sign of life.
    pub(in crate::linux) fn echo(&mut self, attempt: &str) -> Result<(), HostError> {
        self.call("echo", &[], attempt).map(drop)
    }

    /// Returns whether the server has not closed the connection. Forgets changes that have arrived.
    pub(in crate::linux) fn is_open(&mut self) -> bool {
        self.received = 0;
        let now = Instant::now();
        // Requests of the server are answered meanwhile.
        while let Ok(is_readable) = self.wait(PollFlags::POLLIN, now, "check the connection") {
            if !is_readable {
                self.pending.clear();
                return true;
            }
            if self.received > MAX_RECEIVED || self.take_received().is_err() {
                return false;
            }
        }
        false
    }

    /// Receives what is available, and handles complete messages.
    fn take_received(&mut self) -> Result<(), HostError> {
        let attempt = "check the connection";
        self.received += self.fill(attempt)?;
        let now = Instant::now();
        while self.receive(now, now, attempt)?.is_some() {}
        Ok(())
    }

    /// Waits for the next change of monitored tables until `deadline`; `None` if there is none.
    pub(in crate::linux) fn next_update(
        &mut self,
        deadline: Instant,
        attempt: &str,
    ) -> Result<Option<Value>, HostError> {
        self.receive_update(deadline, deadline, attempt)
    }

    /// Returns the next change of monitored tables that has arrived; `None` if there is none, or at `deadline`.
    pub(in crate::linux) fn received_update(
        &mut self,
        deadline: Instant,
        attempt: &str,
    ) -> Result<Option<Value>, HostError> {
        self.receive_update(Instant::now(), deadline, attempt)
    }

    fn receive_update(
        &mut self,
        wait_until: Instant,
        deadline: Instant,
        attempt: &str,
    ) -> Result<Option<Value>, HostError> {
        if let Some(update) = self.pending.pop_front() {
            return Ok(Some(update));
        }
        self.received = 0;
        loop {
            match self.receive(wait_until, deadline, attempt)? {
                None => return Ok(None),
                Some(Message::Update(update)) => return Ok(Some(update)),
                Some(_) => {}
            }
        }
    }

    /// Sends a request and waits for its answer.
    fn call(&mut self, method: &str, parameters: &[Value], attempt: &str) -> Result<Value, HostError> {
        let deadline = Instant::now() + self.limit;
        self.last_id += 1;
        let own_id = Value::from(self.last_id);
        self.send(&json!({"method": method, "params": parameters, "id": own_id}), deadline, attempt)?;
        if self.pending.is_empty() {
            self.received = 0;
        }
        loop {
            match self.receive(deadline, deadline, attempt)? {
                None => return Err(self.timeout(attempt, self.limit)),
                Some(Message::Answer { id, result, error }) if id == own_id => {
                    if error.is_null() {
                        return Ok(result);
                    }
                    let (error, details) = error_texts(&error);
                    let message = refusal(method, &error, &details);
                    return Err(HostError::OvsRefused { attempt: attempt.to_owned(), message });
                }
                Some(Message::Update(update)) => self.pending.push_back(update),
                Some(_) => {}
            }
        }
    }

    /// Receives the next message. Waits for bytes until `wait_until`, and receives none after `deadline`, also if they
    /// keep arriving. Answers requests of the server.
    fn receive(
        &mut self,
        wait_until: Instant,
        deadline: Instant,
        attempt: &str,
    ) -> Result<Option<Message>, HostError> {
        loop {
            let next = self.buffer.next().map_err(|found| self.invalid(attempt, found))?;
            if let Some(message) = next {
                let message = Message::parse(message).ok_or_else(|| {
                    self.invalid(attempt, "neither an answer nor a notification".to_owned())
                })?;
                if let Message::Echo { id, parameters } = message {
                    let answer = json!({"result": parameters, "error": null, "id": id});
                    self.send(&answer, Instant::now() + self.limit, attempt)?;
                    continue;
                }
                return Ok(Some(message));
            }
            if self.received > MAX_RECEIVED {
                return Err(self.invalid(attempt, "messages without end".to_owned()));
            }
            if Instant::now() >= deadline || !self.wait(PollFlags::POLLIN, wait_until, attempt)? {
                return Ok(None);
            }
            self.received += self.fill(attempt)?;
        }
    }

    /// Receives bytes that are available. Returns their number.
    fn fill(&mut self, attempt: &str) -> Result<usize, HostError> {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => {
                let torn = if self.buffer.has_rest() { " in the middle of a message" } else { "" };
                let text = format!("the server closed the connection{torn}");
                Err(self.failed(attempt, io::Error::new(io::ErrorKind::UnexpectedEof, text)))
            }
            Ok(length) => {
                self.buffer.push(chunk.get(..length).unwrap_or_default());
                Ok(length)
            }
            Err(error) if is_temporary(&error) => Ok(0),
            Err(error) => Err(self.failed(attempt, error)),
        }
    }

    fn send(&mut self, message: &Value, deadline: Instant, attempt: &str) -> Result<(), HostError> {
        let bytes = message.to_string().into_bytes();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(error) if is_temporary(&error) => {
                    let is_late = Instant::now() >= deadline;
                    if is_late || !self.wait(PollFlags::POLLOUT, deadline, attempt)? {
                        return Err(self.timeout(attempt, self.limit));
                    }
                }
                Err(error) => return Err(self.failed(attempt, error)),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready, or closed; false at the deadline.
    fn wait(&self, events: PollFlags, deadline: Instant, attempt: &str) -> Result<bool, HostError> {
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let is_last = remaining.is_zero();
            // One more millisecond, because a timeout that is rounded down to 0 would not wait.
            let remaining = if is_last { remaining } else { remaining + Duration::from_millis(1) };
            let timeout = PollTimeout::try_from(remaining).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.stream.as_fd(), events)], timeout) {
                Ok(0) if is_last => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(self.failed(attempt, errno.into())),
            }
        }
    }

    fn failed(&self, attempt: &str, source: io::Error) -> HostError {
        HostError::OvsConnection { attempt: attempt.to_owned(), socket: self.socket.clone(), source }
    }

    fn timeout(&self, attempt: &str, after: Duration) -> HostError {
        HostError::OvsTimeout { attempt: attempt.to_owned(), socket: self.socket.clone(), after }
    }

    /// Returns the error of an answer with wrong content.
    pub(in crate::linux) fn invalid(&self, attempt: &str, found: String) -> HostError {
        HostError::OvsInvalidReply { attempt: attempt.to_owned(), socket: self.socket.clone(), found }
    }
}

impl AsFd for OvsdbClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Failure of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::linux) enum TransactionFailure {
    /// An assertion did not hold.
    Outdated,
    /// The server refused an operation, or the whole transaction.
    Refused { operation: String, error: String, details: String },
    /// The answer is not a list of results.
    Invalid(String),
}

impl TransactionFailure {
    fn into_error(self, attempt: &str, socket: &str) -> HostError {
        let attempt = attempt.to_owned();
        match self {
            Self::Outdated => HostError::OvsChanged { attempt },
            Self::Refused { operation, error, details } => {
                HostError::OvsRefused { attempt, message: refusal(&operation, &error, &details) }
            }
            Self::Invalid(found) => HostError::OvsInvalidReply { attempt, socket: socket.to_owned(), found },
        }
    }
}

/// Returns the results of a transaction, or the error of the first operation that failed. The server adds a result for
/// the commit if that failed.
pub(in crate::linux) fn check_results(
    operations: &[Operation],
    answer: Value,
) -> Result<Vec<Value>, TransactionFailure> {
    let Value::Array(mut results) = answer else {
        return Err(TransactionFailure::Invalid("an answer that is no list".to_owned()));
    };
    for (index, result) in results.iter().enumerate() {
        let error = result.get("error").filter(|error| !error.is_null());
        if error.is_none() {
            continue;
        }
        let (error, details) = error_texts(result);
        let operation = operations.get(index);
        if error == "timed out" && operation.is_some_and(Operation::is_assertion) {
            return Err(TransactionFailure::Outdated);
        }
        let operation = operation.map_or_else(|| "commit".to_owned(), Operation::text);
        return Err(TransactionFailure::Refused { operation, error, details });
    }
    if results.len() < operations.len() {
        let found = format!("{} results for {} operations", results.len(), operations.len());
        return Err(TransactionFailure::Invalid(found));
    }
    results.truncate(operations.len());
    Ok(results)
}

/// Returns the texts of an error of the server.
fn error_texts(error: &Value) -> (String, String) {
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let whole = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
    (text("error").map_or(whole, str::to_owned), text("details").unwrap_or_default().to_owned())
}

/// Returns the text of a refused operation.
fn refusal(operation: &str, error: &str, details: &str) -> String {
    let details = if details.is_empty() { String::new() } else { format!(", {details}") };
    format!("{error} (`{operation}`{details})")
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
