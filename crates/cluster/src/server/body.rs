//! Bodies of requests.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody};
use futures::StreamExt;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of the bodies that a server keeps in memory.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Maximum size of a body in bytes.
    pub largest: usize,
    /// Maximum size of a small body. The number of small bodies is not limited.
    pub small: usize,
    /// Maximum number of larger bodies in memory at the same time.
    pub large_at_once: usize,
}

/// Reader of bodies within limits.
#[derive(Clone, Debug)]
pub struct BodyReader {
    limits: BodyLimits,
    large: Arc<Semaphore>,
}

/// Permit to keep a body in memory. Another large body can be read when the permit is dropped.
#[derive(Debug)]
pub struct LargePermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Error of a body that was not read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BodyError {
    /// The body exceeds [`BodyLimits::largest`].
    #[error("the request body is too large")]
    TooLarge,
    /// The connection ended before the body was complete.
    #[error("the request body is incomplete")]
    Incomplete,
}

impl BodyReader {
    /// Creates a reader. Its clones share the limit for large bodies.
    pub fn new(limits: BodyLimits) -> Self {
        Self { limits, large: Arc::new(Semaphore::new(limits.large_at_once)) }
    }

    /// Reads all of `body`. The permit for a large body is acquired when it exceeds the small size, so that a client
    /// that only declares a large `Content-Length` does not block others.
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
