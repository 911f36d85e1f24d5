//! Injected faults of a simulated process.

use std::time::Duration;

use crate::HostError;

/// Injected fault of a process, and its state.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Number of steps since the fault was injected.
    steps: usize,
    fault: Option<(usize, Fault)>,
    is_dead: bool,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The step fails.
    Fail,
    /// The step takes effect, and fails then.
    FailAfter,
    /// The process is killed before the step.
    Kill,
    /// The process is killed within the step.
    KillWithin,
    /// The step fails with an exceeded deadline.
    Hang,
}

impl Faults {
    /// Injects `fault` at the step with number `at`, counted from 0 from now on.
    pub(super) fn inject(&mut self, at: usize, fault: Fault) {
        *self = Self { steps: 0, fault: Some((at, fault)), is_dead: self.is_dead };
    }

    /// Counts the next step, `attempt`, and fails if a fault is injected there. Returns a fault that happens within the step
    /// or after it.
    pub(super) fn check_step(&mut self, attempt: &str) -> Result<Option<Fault>, HostError> {
        let fault = self.fault.filter(|(at, _)| *at == self.steps).map(|(_, fault)| fault);
        self.steps += 1;
        self.is_dead |= fault == Some(Fault::Kill);
        self.check_alive(attempt)?;
        let attempt = attempt.to_owned();
        match fault {
            Some(Fault::Fail) => Err(HostError::InjectedFault { attempt }),
            Some(Fault::Hang) => Err(HostError::DeadlineExceeded { attempt, after: Duration::from_mins(2) }),
            Some(Fault::KillWithin) => {
                self.is_dead = true;
                Ok(fault)
            }
            Some(Fault::FailAfter | Fault::Kill) | None => Ok(fault),
        }
    }

    /// Fails if the process was killed.
    pub(super) fn check_alive(&self, attempt: &str) -> Result<(), HostError> {
        if self.is_dead {
            return Err(HostError::ProcessKilled { attempt: attempt.to_owned() });
        }
        Ok(())
    }
}
