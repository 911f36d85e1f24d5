//! Connection of a watch.

use std::time::Instant;

use super::super::super::ovsdb::OvsdbClient;
use super::super::super::root::HostRoot;
use super::super::rows;
use super::columns;
use crate::{HostError, format_error_chain};

const ATTEMPT: &str = "watch the database of Open vSwitch";

/// Monitored database.
pub(super) struct Connection {
    client: OvsdbClient,
}

/// Cause for which a connection ended.
pub(super) enum Lost {
    /// Another socket is watched from now on.
    OtherSocket,
    /// The server does not answer. The connection is kept, since its next byte shows that the server works again.
    Unanswered(Box<OvsdbClient>),
    /// Connecting or receiving failed.
    Failed(HostError),
}

impl Lost {
    /// Returns the text for the log.
    pub(super) fn text(&self) -> String {
        match self {
            Self::OtherSocket => "another socket is used".to_owned(),
            Self::Unanswered(_) => "the server does not answer".to_owned(),
            Self::Failed(error) => format_error_chain(error),
        }
    }

    fn new(client: OvsdbClient, error: HostError) -> Self {
        match error {
            HostError::OvsTimeout { .. } => Self::Unanswered(Box::new(client)),
            error => Self::Failed(error),
        }
    }
}

impl Connection {
    /// Connects and starts the monitor. A server that did not answer a read has to answer one.
    pub(super) fn open(root: &HostRoot) -> Result<Self, Lost> {
        let mut client = OvsdbClient::connect(root, ATTEMPT).map_err(Lost::Failed)?;
        let started = client.monitor(columns::monitored(), ATTEMPT).and_then(|_| confirm(&mut client, root));
        match started {
            Ok(_) => {
                // Changes may have been received together with the answer, and wake nobody.
                let mut connection = Self { client };
                connection.drain(root)?;
                Ok(connection)
            }
            Err(error) => Err(Lost::new(client, error)),
        }
    }

    /// Returns the client, whose file descriptor becomes readable.
    pub(super) const fn client(&self) -> &OvsdbClient {
        &self.client
    }

    /// Receives all changes that have arrived. Returns whether one of them is relevant.
    fn drain(&mut self, root: &HostRoot) -> Result<bool, Lost> {
        let mut has_relevant = false;
        let deadline = Instant::now() + root.ovs_limits().answer;
        loop {
            match self.client.received_update(deadline, ATTEMPT).map_err(Lost::Failed)? {
                Some(update) => has_relevant |= columns::is_relevant(&update, root.cache().ovs.unapplied()),
                None if Instant::now() < deadline => return Ok(has_relevant),
                None => {}
            }
            if Instant::now() >= deadline {
                return Err(Lost::Failed(self.client.invalid(ATTEMPT, "updates without end".to_owned())));
            }
        }
    }

    /// Receives all changes that have arrived. Returns whether one of them is relevant.
    pub(super) fn receive(mut self, root: &HostRoot) -> Result<(Self, bool), Lost> {
        let is_relevant = self.drain(root)?;
        Ok((self, is_relevant))
    }

    /// Checks that the server answers. Returns whether reads have to be repeated.
    pub(super) fn check(mut self, root: &HostRoot) -> Result<(Self, bool), Lost> {
        let checked = self.client.echo(ATTEMPT).and_then(|()| confirm(&mut self.client, root));
        match checked {
            Ok(is_repeated) => {
                let is_relevant = self.drain(root)? | is_repeated;
                Ok((self, is_relevant))
            }
            Err(error) => Err(Lost::new(self.client, error)),
        }
    }
}

/// Repeats a read that the server did not answer. Returns false if there was none. A server that answers other requests
/// does not count as one that works.
fn confirm(client: &mut OvsdbClient, root: &HostRoot) -> Result<bool, HostError> {
    if !root.cache().ovs.is_unanswered() {
        return Ok(false);
    }
    rows::read(client, ATTEMPT)?;
    root.cache().ovs.set_answered();
    Ok(true)
}
