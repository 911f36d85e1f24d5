use std::time::Duration;

use crate::HostError;

/// What shall go wrong, and when.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// How many steps were asked for since the last change of what shall go wrong.
    asked: usize,
    fault: Option<(usize, Fault)>,
    is_dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Fail,
    Cut,
    Hang,
}

impl Faults {
    /// `fault` at step number `at`, counted from 0 from now on.
    pub(super) fn plan(&mut self, at: usize, fault: Fault) {
        *self = Self { asked: 0, fault: Some((at, fault)), is_dead: self.is_dead };
    }

    /// Whether `attempt`, the next step, goes ahead.
    pub(super) fn check_step(&mut self, attempt: &str) -> Result<(), HostError> {
        let fault = self.fault.filter(|(at, _)| *at == self.asked).map(|(_, fault)| fault);
        self.asked += 1;
        self.is_dead |= fault == Some(Fault::Cut);
        self.check_alive(attempt)?;
        let attempt = attempt.to_owned();
        match fault {
            Some(Fault::Fail) => Err(HostError::Injected { attempt }),
            Some(Fault::Hang) => Err(HostError::Deadline { attempt, after: Duration::from_mins(2) }),
            Some(Fault::Cut) | None => Ok(()),
        }
    }

    /// A process that was cut off does nothing at all.
    pub(super) fn check_alive(&self, attempt: &str) -> Result<(), HostError> {
        if self.is_dead {
            return Err(HostError::CutOff { attempt: attempt.to_owned() });
        }
        Ok(())
    }
}
