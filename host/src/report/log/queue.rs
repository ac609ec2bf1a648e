//! Carries log lines to a thread of their own that writes them, so that a slow or broken stderr never
//! holds a call up.
//!
//! Invariant: at most twice [`CAPACITY`] bytes are kept; a line that finds no room is counted, and the
//! count is written as a line as soon as there is room again.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Bytes that wait for the writer.
pub const CAPACITY: usize = 1 << 20;

/// How long one line waits for room, so that a burst loses nothing to a writer that works. Once a
/// line has waited in vain, the others are dropped at once until something was written.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long the writer waits when stderr was made non-blocking by someone else and is full.
const RETRY: Duration = Duration::from_millis(10);

/// See the module.
pub struct Queue {
    state: Mutex<State>,
    /// There is something to write, or the queue is closing.
    filled: Condvar,
    /// There is room, or all is written.
    drained: Condvar,
}

#[derive(Default)]
struct State {
    text: String,
    dropped: u64,
    writing: bool,
    stalled: bool,
    closing: bool,
}

impl Queue {
    /// Starts the thread that writes to `sink`. `dropped_line` says how many lines were lost.
    pub fn start(
        sink: impl Write + Send + 'static,
        dropped_line: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
        });
        let writer = queue.clone();
        std::thread::Builder::new()
            .name("batchgate-log".to_owned())
            .spawn(move || writer.write_all(sink, dropped_line))?;
        Ok(queue)
    }

    /// Adds a line, without its line end.
    pub fn push(&self, line: &str) {
        let full =
            |state: &State| !state.text.is_empty() && state.text.len() + line.len() >= CAPACITY;
        let mut state = self.lock();
        if full(&state) && !state.stalled {
            let waits = |state: &mut State| full(state) && !state.stalled;
            state = match self.drained.wait_timeout_while(state, PATIENCE, waits) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        if full(&state) {
            state.stalled = true;
            state.dropped += 1;
            return;
        }
        state.text.push_str(line);
        state.text.push('\n');
        drop(state);
        self.filled.notify_one();
    }

    /// Waits until all lines are written, at most for `patience`. Whether they are.
    pub fn flush(&self, patience: Duration) -> bool {
        let pending =
            |state: &mut State| state.writing || state.dropped > 0 || !state.text.is_empty();
        let waited = self
            .drained
            .wait_timeout_while(self.lock(), patience, pending);
        !waited.is_ok_and(|(_, result)| result.timed_out())
    }

    /// Ends the writer once all is written, and waits for that at most for `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        self.lock().closing = true;
        self.filled.notify_one();
        self.flush(patience)
    }

    fn write_all(&self, mut sink: impl Write, dropped_line: impl Fn(u64) -> String) {
        loop {
            let mut state = self.lock();
            while state.text.is_empty() && state.dropped == 0 {
                if state.closing {
                    return;
                }
                state = self.filled.wait(state).unwrap_or_else(|e| e.into_inner());
            }
            let mut text = std::mem::take(&mut state.text);
            let dropped = std::mem::take(&mut state.dropped);
            state.writing = true;
            drop(state);
            self.drained.notify_all();

            if dropped > 0 {
                text.push_str(&dropped_line(dropped));
                text.push('\n');
            }
            // A closed stderr or a full disk must not end the run, and there is nowhere else to say it. The
            // next lines are tried again.
            let _ = write_all(&mut sink, text.as_bytes());
            let mut state = self.lock();
            state.writing = false;
            state.stalled = false;
            drop(state);
            self.drained.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn write_all(sink: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    /// Takes each write only when told to, and how.
    struct Gated {
        gate: mpsc::Receiver<io::Result<usize>>,
        started: mpsc::Sender<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.started.send(());
            // The gate left open: everything is taken.
            let most = self.gate.recv().unwrap_or(Ok(usize::MAX))?;
            let taken = bytes.len().min(most);
            self.written.lock().unwrap().extend(&bytes[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Test {
        queue: Arc<Queue>,
        gate: mpsc::Sender<io::Result<usize>>,
        started: mpsc::Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    fn gated() -> Test {
        let (gate, gate_receiver) = mpsc::channel();
        let (started_sender, started) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Gated {
            gate: gate_receiver,
            started: started_sender,
            written: written.clone(),
        };
        let queue = Queue::start(sink, |n| format!("{n} dropped")).unwrap();
        Test {
            queue,
            gate,
            started,
            written,
        }
    }

    fn text(test: &Test) -> String {
        String::from_utf8(test.written.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_stuck_writer_costs_one_wait_and_the_loss_is_said() {
        let test = gated();
        test.queue.push("first");
        test.started.recv().unwrap(); // stuck in its write from here on
        let line = "x".repeat(1023);
        let started = Instant::now();
        for _ in 0..3000 {
            test.queue.push(&line);
        }
        // 1024 lines fit. Had each of the other 1976 lines waited, it were over three minutes.
        assert!(
            started.elapsed() < PATIENCE * 100,
            "{:?}",
            started.elapsed()
        );
        assert!(!test.queue.flush(Duration::ZERO));
        drop(test.gate);
        assert!(test.queue.flush(LONG));
        let written = String::from_utf8(test.written.lock().unwrap().clone()).unwrap();
        assert!(
            written.ends_with("\n1976 dropped\n"),
            "{}",
            &written[written.len() - 50..]
        );
        assert_eq!(written.lines().count(), 1 + 1024 + 1);
        test.queue.push("after");
        assert!(test.queue.close(LONG));
        assert!(test.written.lock().unwrap().ends_with(b"dropped\nafter\n"));
    }

    #[test]
    fn a_burst_waits_for_a_writer_that_works() {
        let (sink, written) = {
            let test = gated();
            drop(test.gate);
            (test.queue.clone(), test.written)
        };
        for number in 0..200_000 {
            sink.push(&format!(
                "line {number} of a burst that is larger than what is kept"
            ));
        }
        assert!(sink.close(LONG));
        assert_eq!(
            written
                .lock()
                .unwrap()
                .iter()
                .filter(|b| **b == b'\n')
                .count(),
            200_000
        );
    }

    #[test]
    fn errors_of_the_sink_end_nothing() {
        let test = gated();
        for (answer, expected) in [
            (vec![Err(io::ErrorKind::BrokenPipe.into())], ""),
            (vec![Err(io::ErrorKind::StorageFull.into())], ""),
            (vec![Ok(0)], ""),
            (
                vec![
                    Ok(2),
                    Err(io::ErrorKind::WouldBlock.into()),
                    Err(io::ErrorKind::Interrupted.into()),
                    Ok(9),
                ],
                "line\n",
            ),
        ] {
            test.queue.push("line");
            for step in answer {
                test.gate.send(step).unwrap();
            }
            assert!(test.queue.flush(LONG));
            assert_eq!(text(&test), expected);
        }
    }

    #[test]
    fn closing_does_not_wait_for_a_stuck_sink() {
        let test = gated();
        test.queue.push("stuck");
        test.started.recv().unwrap();
        assert!(!test.queue.close(Duration::from_millis(1)));
    }
}
