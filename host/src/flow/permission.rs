//! What a long wait for the limiter means: the run is parked, and says so once, or it stops.

use super::record::Records;
use super::stop::Stop;
use crate::limiter::{Limiter, Wait};
use crate::report::summary::Stopped;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the run does when it has to wait very long.
#[derive(Debug, Clone, Copy)]
pub struct Parking {
    /// Wait, rather than stop.
    pub park: bool,
    /// A longer cooldown than this is such a wait.
    pub max_cooldown: Duration,
}

/// Judges the waits of all calls of a run.
pub struct Permission {
    label: Arc<str>,
    parking: Parking,
    records: Arc<Records>,
    stop: Stop,
    /// What was last said of being parked.
    said: Mutex<Option<String>>,
    /// What was last said of a cooldown.
    told: Mutex<Option<String>>,
}

impl Permission {
    /// For the calls of one run.
    pub fn new(label: Arc<str>, parking: Parking, records: Arc<Records>, stop: Stop) -> Self {
        Self {
            label,
            parking,
            records,
            stop,
            said: Mutex::new(None),
            told: Mutex::new(None),
        }
    }

    /// Whether to wait at all: not if nothing will ever start, nor if the run rather stops than parks.
    pub fn may_wait(&self, wait: &Wait) -> bool {
        if let Some(failure) = wait.failure() {
            self.records.cannot_go_on(&failure.to_string());
            return false;
        }
        if !wait.is_long(self.parking.max_cooldown) {
            return true;
        }
        if !self.parking.park {
            if self.stop.stop(Stopped::Parked) {
                tracing::warn!(label = %self.label, "parked: {wait}. Stopping.");
            }
            return false;
        }
        let words = wait.to_string();
        let mut said = self.said();
        if said.as_ref() != Some(&words) {
            tracing::warn!(label = %self.label, "parked: {words}");
            *said = Some(words);
        }
        true
    }

    /// The server refused a call: says which cooldown that began, or made longer.
    pub fn refused(&self, limiter: &Limiter) {
        let Some(words) = limiter.cooldown_note() else {
            return;
        };
        let mut told = self.told.lock().unwrap_or_else(|e| e.into_inner());
        if told.as_ref() != Some(&words) {
            tracing::warn!(label = %self.label, "the server refused a call for our rate: {words}");
            *told = Some(words);
        }
    }

    /// A call started, so no wait lasts any longer.
    pub fn started(&self) {
        if self.said().take().is_some() {
            tracing::info!(label = %self.label, "goes on");
        }
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // Text cannot be left half changed.
        self.said.lock().unwrap_or_else(|e| e.into_inner())
    }
}
