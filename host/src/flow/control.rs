//! Live control: reads new rows of the control store by a timer and applies them.
//!
//! The timer alone bounds how late a change is seen, also while nothing ends: in a cooldown, in
//! a pause. Reading happens off the tasks that make calls.

use super::Flow;
use crate::aside::aside_with;
use crate::slot::Plugin;
use crate::store::ControlReader;
use batchgate_policy::controller::Override;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The key that holds everything back; the others are the controller's.
const PAUSE: &str = "pause";

/// A control store and how often to read it.
pub struct ControlPoll {
    /// Reads it.
    pub reader: ControlReader,
    /// The time between two reads.
    pub every: Duration,
}

/// Applies what the store holds now, and goes on doing so.
pub(super) async fn start<P: Plugin>(poll: ControlPoll, flow: Arc<Flow<P>>) -> JoinHandle<()> {
    let reader = Arc::new(Mutex::new(poll.reader));
    read_once(&reader, &flow).await;
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(poll.every).await;
            read_once(&reader, &flow).await;
        }
    })
}

async fn read_once<P: Plugin>(reader: &Arc<Mutex<ControlReader>>, flow: &Flow<P>) {
    let label = Arc::clone(&flow.label);
    let rows = aside_with("batchgate-control", reader, move |reader| {
        reader.poll_or_warn(Some(&label))
    });
    // No thread for it now: the next time.
    let rows = rows.await.unwrap_or_default();
    if rows.is_empty() {
        return;
    }
    let mut state = flow.lock();
    for row in rows.iter().filter(|row| row.key == PAUSE) {
        apply_pause(row, &mut state.paused, &flow.label);
    }
    for change in state.apply(&rows) {
        tracing::info!(label = %flow.label, "control override: {change}");
        state.last_change = Some(change);
    }
    drop(state);
    flow.room.notify_one();
    flow.changed.notify_one();
}

fn apply_pause(row: &Override, paused: &mut bool, label: &str) {
    let value = row.value.trim().to_ascii_lowercase();
    let wanted = match value.as_str() {
        "true" | "1" | "yes" | "on" => true,
        "false" | "0" | "no" | "off" | "__cleared__" => false,
        _ => {
            let said = &row.value;
            tracing::info!(label = %label, "control override: ignored pause={said}: not true or false");
            return;
        }
    };
    if *paused != wanted {
        *paused = wanted;
        let words = if wanted {
            "pause: nothing new starts"
        } else {
            "pause cleared"
        };
        tracing::info!(label = %label, "control override: {words}");
    }
}
