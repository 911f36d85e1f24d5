//! Bodies of requests.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use futures::StreamExt;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of the bodies that a server keeps in memory.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Most bytes of a body.
    pub largest: usize,
    /// Most bytes of a body of which any number is read at once.
    pub small: usize,
    /// Most bodies larger than that at once.
    pub large_at_once: usize,
}

/// Reader of bodies within limits.
#[derive(Clone, Debug)]
pub struct BodyReader {
    limits: BodyLimits,
    large: Arc<Semaphore>,
}

/// Right to keep a body in memory: the next large one is read when this is dropped.
#[derive(Debug)]
pub struct LargePermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Error of a body that was not read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BodyError {
    /// It is larger than allowed.
    #[error("the body is too large")]
    TooLarge,
    /// It was not sent to its end.
    #[error("the body was not sent to its end")]
    Incomplete,
}

impl BodyReader {
    /// Creates a reader. Its clones share the limit of large bodies.
    pub fn new(limits: BodyLimits) -> Self {
        Self { limits, large: Arc::new(Semaphore::new(limits.large_at_once)) }
    }

    /// Reads all of `body`. The permit for a large one is taken when it turns out to be one: whoever only announces much is
    /// in nobody's way.
    pub async fn read(&self, body: Body) -> Result<(Bytes, LargePermit), BodyError> {
        let BodyLimits { largest, small, .. } = self.limits;
        if body.size_hint().lower() > largest as u64 {
            return Err(BodyError::TooLarge);
        }
        let mut parts = body.into_data_stream();
        let (mut whole, mut permit) = (Vec::new(), None);
        while let Some(part) = parts.next().await {
            let part = part.map_err(|_| BodyError::Incomplete)?;
            let size = whole.len() + part.len();
            if size > largest {
                return Err(BodyError::TooLarge);
            }
            if size > small && permit.is_none() {
                // The semaphore is never closed.
                permit = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            whole.extend_from_slice(&part);
        }
        Ok((whole.into(), LargePermit { _permit: permit }))
    }
}
