//! The reader: a thread of its own that fills the buffer while there is room, and at a stop reads on
//! for a moment to count what is left.

use super::Flow;
use crate::report::summary::Stopped;
use crate::slot::Plugin;
use crate::source::{Chunk, RejectsFile, Source};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Items and bytes that are read at once: enough that the lock is taken rarely, little enough that
/// it is held briefly.
const CHUNK_ITEMS: usize = 1024;
const CHUNK_BYTES: u64 = 4 << 20;

/// How long a stopping run reads on, to know what it leaves behind: enough for all but long inputs.
pub(super) const COUNT_ON: Duration = Duration::from_millis(250);

/// Starts the reader of a run. What is returned resolves when it has come to its end.
pub(super) fn start<P: Plugin>(
    source: Source,
    limit: Option<u64>,
    rejects: Option<RejectsFile>,
    flow: Arc<Flow<P>>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (ended, end) = oneshot::channel();
    let mut reader = Reader {
        source,
        left: limit,
        rejects,
        flow,
    };
    let thread = std::thread::Builder::new().name("batchgate-reader".into());
    thread.spawn(move || {
        reader.run();
        // Nobody waits for it if the run did not stop early.
        let _ = ended.send(());
    })?;
    Ok(end)
}

struct Reader<P: Plugin> {
    source: Source,
    left: Option<u64>,
    rejects: Option<RejectsFile>,
    flow: Arc<Flow<P>>,
}

impl<P: Plugin> Reader<P> {
    fn run(&mut self) {
        let mut count_until = None;
        loop {
            let counting = self.wait_for_room() == Room::Stopping;
            if counting {
                let until = *count_until.get_or_insert_with(|| Instant::now() + COUNT_ON);
                if Instant::now() >= until {
                    return;
                }
            }
            let most = self
                .left
                .map_or(CHUNK_ITEMS, |left| left.min(CHUNK_ITEMS as u64) as usize);
            let read = match most {
                0 => Ok(Chunk {
                    end: true,
                    ..Chunk::default()
                }),
                _ => self.source.read(most, CHUNK_BYTES),
            };
            match read {
                Ok(chunk) => {
                    if !self.keep_rejected(&chunk) || !self.hand_over(chunk, counting) {
                        return;
                    }
                }
                Err(error) => {
                    if self.flow.stop.stop(Stopped::InputError) {
                        tracing::error!(label = %self.flow.label, "{error}. Stopping.");
                    }
                    self.flow.changed.notify_one();
                    return;
                }
            }
        }
    }

    fn wait_for_room(&self) -> Room {
        let mut state = self.flow.lock();
        loop {
            if state.stopping || self.flow.stop.is_stopping() {
                return Room::Stopping;
            }
            if state.has_room() {
                return Room::Free;
            }
            state.reader_waits = true;
            state = self
                .flow
                .room
                .wait(state)
                .unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Every rejected line is named, in the log and in the file if there is one.
    fn keep_rejected(&mut self, chunk: &Chunk) -> bool {
        for rejected in &chunk.rejected {
            tracing::warn!(label = %self.flow.label, "line {} rejected: {}", rejected.line, rejected.reason);
        }
        let Some(rejects) = &mut self.rejects else {
            return true;
        };
        let written = chunk
            .rejected
            .iter()
            .try_for_each(|rejected| rejects.write(rejected))
            .and_then(|()| rejects.flush())
            .and_then(|()| match chunk.end {
                true => rejects.is_there(),
                false => Ok(()),
            });
        if let Err(error) = &written {
            let reason = format!("rejects_csv cannot be written: {error}");
            self.flow.records.cannot_go_on(&reason);
            self.flow.changed.notify_one();
        }
        written.is_ok()
    }

    /// Returns false at the end of the input. What is only counted is not kept: nothing will be
    /// dispatched any more.
    fn hand_over(&mut self, chunk: Chunk, counting: bool) -> bool {
        let count = chunk.items.len() as u64;
        let mut state = self.flow.lock();
        // Under the lock, so that whoever closes the account finds an item either here or there.
        let items = self.flow.records.admit(chunk.items, !counting);
        state.read += items.len() as u64;
        state.rejected += chunk.rejected.len() as u64;
        if !counting {
            state.buffer.push(items);
        }
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        let more = !chunk.end;
        if !more {
            state.buffer.end();
        }
        // Whoever ends a call looks for items by itself.
        let awaited = state.has_worker() || !more;
        drop(state);
        if awaited {
            self.flow.changed.notify_one();
        }
        more
    }
}

#[derive(PartialEq, Eq)]
enum Room {
    Free,
    /// The run stops.
    Stopping,
}
