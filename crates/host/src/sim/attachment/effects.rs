//! Effects of attachments, and faults at them.

use std::sync::Arc;

use super::super::faults::{Fault, Faults};
use super::super::host::{SimHost, lock};
use super::super::kernel::Kernel;
use crate::HostError;

type EffectHook = Arc<dyn Fn(usize, &str) + Send + Sync>;

/// Fault of a process at an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectFault {
    /// The effect fails without a change.
    Fail,
    /// The effect takes place, but an error is reported.
    FailAfter,
    /// The process is killed before the effect.
    KillBefore,
    /// The process is killed after the effect.
    KillAfter,
}

impl EffectFault {
    /// Lists all faults.
    pub const ALL: [Self; 4] = [Self::Fail, Self::FailAfter, Self::KillBefore, Self::KillAfter];

    /// Returns whether the process is dead after the fault.
    pub const fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillAfter)
    }
}

/// Effects of one process.
#[derive(Default)]
pub(in crate::sim) struct AttachmentEffects {
    pub(in crate::sim) faults: Faults,
    executed: Vec<String>,
    before: Option<EffectHook>,
}

impl SimHost {
    /// Makes the effect with number `number`, counted from 0 from now on, fail or kill the process.
    pub fn inject_at_effect(&self, number: usize, fault: EffectFault) {
        let fault = match fault {
            EffectFault::Fail => Fault::Fail,
            EffectFault::FailAfter => Fault::FailAfter,
            EffectFault::KillBefore => Fault::Kill,
            EffectFault::KillAfter => Fault::KillWithin,
        };
        lock(&self.process).effects.faults.inject(number, fault);
    }

    /// Calls `hook` before each effect with its number and text, and waits for its return, to act at a certain effect.
    pub fn set_effect_hook(&self, hook: impl Fn(usize, &str) + Send + Sync + 'static) {
        lock(&self.process).effects.before = Some(Arc::new(hook));
    }

    /// Returns the effects of this process, as text, including those that failed.
    pub fn executed_effects(&self) -> Vec<String> {
        lock(&self.process).effects.executed.clone()
    }

    /// Executes an effect on the kernel.
    pub(super) fn effect<T>(
        &self,
        attempt: &str,
        request: impl FnOnce(&mut Kernel) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        self.effect_outside(attempt, || self.machine.request(request))
    }

    /// Executes an effect without locking the kernel.
    pub(super) fn effect_outside<T>(
        &self,
        attempt: &str,
        act: impl FnOnce() -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let (hook, number) = {
            let effects = &lock(&self.process).effects;
            (effects.before.clone(), effects.executed.len())
        };
        if let Some(hook) = hook {
            hook(number, attempt);
        }
        let boots = lock(&self.machine.kernel).boots;
        let fault = {
            let mut process = lock(&self.process);
            process.check_alive(attempt, boots)?;
            let fault = process.effects.faults.check_step(attempt)?;
            process.effects.executed.push(attempt.to_owned());
            fault
        };
        let result = act();
        match fault {
            Some(Fault::KillWithin) => Err(HostError::ProcessKilled { attempt: attempt.to_owned() }),
            Some(_) => result.and(Err(HostError::InjectedFault { attempt: attempt.to_owned() })),
            None => result,
        }
    }
}
