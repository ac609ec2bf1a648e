//! Where a run stands, in figures and words, for whoever looks at it from outside.

use super::Flow;
use crate::report::progress::Status;
use crate::slot::Plugin;
use batchgate_policy::controller::{Change, Dimension};
use std::sync::Arc;

/// A run in progress, to be looked at from outside.
#[derive(Clone)]
pub struct Watch {
    look: Arc<dyn Fn() -> Status + Send + Sync>,
}

impl Watch {
    pub(super) fn new(look: impl Fn() -> Status + Send + Sync + 'static) -> Watch {
        Watch {
            look: Arc::new(look),
        }
    }

    /// How far the run has come.
    pub fn status(&self) -> Status {
        (self.look)()
    }
}

impl<P: Plugin> Flow<P> {
    pub(super) fn status(&self) -> Status {
        let state = self.lock();
        let setting = state.controller.setting();
        let limiter = &self.recover.limiter;
        let calls = self.recover.calling.count();
        let waiting = || {
            let waiting = [
                (&self.recover.pausing, "to be sent again after a failure"),
                (&self.recover.limited, "for the limiter"),
                (&self.recover.refused, "for a slot of the budget"),
            ];
            let some = waiting.map(|(counted, what)| (counted.count(), what));
            let some = some.into_iter().find(|(count, _)| *count > 0);
            some.map(|(count, what)| format!("held at {calls}: batches that wait {what}: {count}"))
        };
        let note = if state.stopping {
            Some("nothing new starts".to_owned())
        } else if state.paused {
            Some("paused".to_owned())
        } else if let Some(note) = limiter.cooldown_note() {
            Some(note)
        } else if let Some(what) = state.held_by() {
            Some(format!("held at {calls}: {what}"))
        } else if let Some(waiting) = waiting() {
            Some(waiting)
        } else {
            let idle = calls == 0 && state.is_out_of_items();
            idle.then(|| "waits for its input".to_owned())
        };
        Status {
            done: state.tally.done(),
            total: state.buffer.ended().then_some(state.read),
            failed: state.tally.ended.failed,
            workers: setting.workers,
            batch_size: setting.batch_size,
            in_flight: calls,
            note,
            decision: state.last_change.as_ref().map(in_words),
        }
    }
}

/// A controller's decision, as it reads while it holds.
fn in_words(change: &Change) -> String {
    match change {
        Change::Probe {
            dimension: Dimension::Workers,
            to,
            ..
        } => format!("probing {to}"),
        Change::Probe { dimension, to, .. } => format!("probing {dimension} {to}"),
        change => change.to_string(),
    }
}
