//! Connection of a watch.

use std::time::Instant;

use super::super::super::ovsdb::OvsdbClient;
use super::super::super::root::HostRoot;
use super::columns;
use crate::{HostError, format_error_chain};

const ATTEMPT: &str = "watch the database of Open vSwitch";

/// Largest number of updates that are received without a pause.
const MAX_UPDATES: usize = 100_000;

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
    /// Connects and starts the monitor.
    pub(super) fn open(root: &HostRoot) -> Result<Self, Lost> {
        let mut client = OvsdbClient::connect(root, ATTEMPT).map_err(Lost::Failed)?;
        match client.monitor(columns::monitored(), ATTEMPT) {
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

    /// Receives all pending changes. Returns whether one of them is relevant.
    fn drain(&mut self, root: &HostRoot) -> Result<bool, Lost> {
        let mut has_relevant = false;
        for _ in 0..MAX_UPDATES {
            match self.client.next_update(Instant::now(), ATTEMPT) {
                Ok(Some(update)) => {
                    has_relevant |= columns::is_relevant(&update, root.cache().ovs.unapplied());
                }
                Ok(None) => return Ok(has_relevant),
                Err(error) => return Err(Lost::Failed(error)),
            }
        }
        Err(Lost::Failed(self.client.invalid(ATTEMPT, "updates without end".to_owned())))
    }

    /// Receives all pending changes. Returns whether one of them is relevant.
    pub(super) fn receive(mut self, root: &HostRoot) -> Result<(Self, bool), Lost> {
        let is_relevant = self.drain(root)?;
        Ok((self, is_relevant))
    }

    /// Checks that the server answers. Returns whether reads have to be repeated.
    pub(super) fn check(mut self, root: &HostRoot) -> Result<(Self, bool), Lost> {
        match self.client.echo(ATTEMPT) {
            Ok(()) => {
                let is_relevant = self.drain(root)? | root.cache().ovs.set_answered();
                Ok((self, is_relevant))
            }
            Err(error) => Err(Lost::new(self.client, error)),
        }
    }
}
