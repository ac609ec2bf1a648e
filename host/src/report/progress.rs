//! Shows how far each job is: a bar a job on a terminal, elsewhere an INFO line now and then.
//!
//! Invariant: telling it something never waits for the terminal. A thread of its own draws, from the
//! status told last.

use super::log::escape_line;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Between two drawings on a terminal.
const DRAW_EVERY: Duration = Duration::from_millis(125);

/// Between two lines of a job that are logged where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// The rate is of about so many seconds.
const RATE_SECONDS: f64 = 10.0;

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Items that have come to their end in this run, failed ones included.
    pub done: u64,
    /// Items of the run; unknown until the input was read to its end.
    pub total: Option<u64>,
    /// Items that failed.
    pub failed: u64,
    /// The setting.
    pub workers: u32,
    /// See `workers`.
    pub batch_size: u32,
    /// Calls in flight.
    pub in_flight: u32,
    /// What else to know, as in "cooldown until 12:03:10" or "paused".
    pub note: Option<String>,
    /// What the controller decided last, in words.
    pub decision: Option<String>,
}

/// Where progress is shown; all jobs of a process share one. Cloning it gives the same one.
#[derive(Clone)]
pub struct Display(Arc<Inner>);

struct Inner {
    /// None where there is no terminal.
    bars: Option<MultiProgress>,
    every: Duration,
    jobs: Mutex<Jobs>,
    ended: Condvar,
}

#[derive(Default)]
struct Jobs {
    shown: Vec<Arc<Job>>,
    ticking: bool,
}

/// A job on the display, until it is dropped.
pub struct Progress {
    job: Arc<Job>,
    display: Display,
}

struct Job {
    label: String,
    bar: Option<ProgressBar>,
    started: Instant,
    latest: Mutex<Status>,
    /// What only the drawing thread uses.
    drawn: Mutex<Drawn>,
}

#[derive(Default)]
struct Drawn {
    pace: Pace,
    status: Status,
}

impl Display {
    /// Bars if stderr is a terminal, log lines otherwise.
    pub fn stderr() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if std::io::stderr().is_terminal() && !dumb {
            Self::bars(ProgressDrawTarget::stderr())
        } else {
            Self::lines()
        }
    }

    /// Log lines.
    pub fn lines() -> Self {
        Self::new(None, LINE_EVERY)
    }

    fn bars(target: ProgressDrawTarget) -> Self {
        Self::new(Some(MultiProgress::with_draw_target(target)), DRAW_EVERY)
    }

    fn new(bars: Option<MultiProgress>, every: Duration) -> Self {
        Self(Arc::new(Inner {
            bars,
            every,
            jobs: Mutex::default(),
            ended: Condvar::new(),
        }))
    }

    /// Whether there are bars.
    pub fn is_terminal(&self) -> bool {
        self.0.bars.is_some()
    }

    /// Runs `write`, which writes whole lines to stderr, with the bars out of the way.
    pub fn suspend<R>(&self, write: impl FnOnce() -> R) -> R {
        match &self.0.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    /// Adds a job. Nothing is shown of it before its first status.
    pub fn job(&self, label: &str) -> Progress {
        let job = Arc::new(Job {
            label: escape_line(label).into_owned(),
            bar: self
                .0
                .bars
                .as_ref()
                .map(|bars| bars.add(ProgressBar::no_length())),
            started: Instant::now(),
            latest: Mutex::default(),
            drawn: Mutex::default(),
        });
        let mut jobs = lock(&self.0.jobs);
        jobs.shown.push(job.clone());
        if !jobs.ticking {
            let inner = self.0.clone();
            let thread = std::thread::Builder::new().name("batchgate-progress".to_owned());
            match thread.spawn(move || inner.tick()) {
                Ok(_) => jobs.ticking = true,
                Err(e) => tracing::warn!("progress is not shown: no thread for it: {e}"),
            }
        }
        drop(jobs);
        Progress {
            job,
            display: self.clone(),
        }
    }
}

impl Progress {
    /// Tells the job's status. Cheap enough for every call.
    pub fn update(&self, status: Status) {
        *lock(&self.job.latest) = status;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let mut jobs = lock(&self.display.0.jobs);
        jobs.shown.retain(|job| !Arc::ptr_eq(job, &self.job));
        drop(jobs);
        self.display.0.ended.notify_all();
        if let (Some(bar), Some(bars)) = (&self.job.bar, &self.display.0.bars) {
            bar.finish_and_clear();
            bars.remove(bar);
        }
    }
}

impl Inner {
    /// Draws all jobs every so often, until there are none.
    fn tick(&self) {
        let mut jobs = lock(&self.jobs);
        loop {
            let some = |jobs: &mut Jobs| !jobs.shown.is_empty();
            jobs = match self.ended.wait_timeout_while(jobs, self.every, some) {
                Ok((jobs, _)) => jobs,
                Err(poisoned) => poisoned.into_inner().0,
            };
            if jobs.shown.is_empty() {
                jobs.ticking = false;
                return;
            }
            let shown = jobs.shown.clone();
            drop(jobs);
            for job in &shown {
                job.draw(job.started.elapsed());
            }
            jobs = lock(&self.jobs);
        }
    }
}

impl Job {
    fn draw(&self, now: Duration) {
        let status = lock(&self.latest).clone();
        let mut drawn = lock(&self.drawn);
        drawn.pace.observe(now.as_secs_f64(), status.done);
        let text = describe(&status, drawn.pace.rate());
        match &self.bar {
            Some(bar) if status != Status::default() => {
                match status.total {
                    Some(total) => bar.set_length(total),
                    None => bar.unset_length(),
                }
                let template = match status.total {
                    Some(_) => "{prefix} {bar:10} {wide_msg}",
                    None => "{prefix} {wide_msg}",
                };
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.set_prefix(format!("[{}]", self.label));
                bar.set_position(status.done);
                bar.set_message(text);
                bar.tick();
            }
            Some(_) => {}
            // A job that waits says so once.
            None if status != drawn.status => {
                tracing::info!(label = self.label, "progress: {text}");
            }
            None => {}
        }
        drawn.status = status;
    }
}

/// The rate at which items are done, with the recent past counting most.
#[derive(Debug, Default)]
pub struct Pace {
    at: f64,
    done: u64,
    mean: f64,
    /// How much of `mean` is of observations, not of its start at 0.
    weight: f64,
}

impl Pace {
    /// So many items were done by that time, in seconds since any moment before.
    pub fn observe(&mut self, at: f64, done: u64) {
        let seconds = at - self.at;
        if seconds <= 0.0 {
            return;
        }
        let rate = done.saturating_sub(self.done) as f64 / seconds;
        let share = 1.0 - (-seconds / RATE_SECONDS).exp();
        self.mean += share * (rate - self.mean);
        self.weight += share * (1.0 - self.weight);
        self.at = at;
        self.done = done;
    }

    /// Items a second.
    pub fn rate(&self) -> f64 {
        if self.weight > 0.0 {
            self.mean / self.weight
        } else {
            0.0
        }
    }
}

/// The most important first, since a narrow terminal shows only the start.
fn describe(status: &Status, rate: f64) -> String {
    let mut text = status.done.to_string();
    // Writing to a String cannot fail.
    let _ = match status.total {
        Some(total) => write!(text, "/{total} items"),
        None => write!(text, " items"),
    };
    let decimals = usize::from(rate < 10.0);
    let _ = write!(text, ", {rate:.decimals$}/s");
    let left = status.total.map(|total| total.saturating_sub(status.done));
    // What holds everything up says nothing of the pace after it.
    let moves = rate > 0.0 && status.note.is_none();
    if let Some(left) = left.filter(|left| *left > 0 && moves) {
        let _ = write!(text, ", {} left", in_words(left as f64 / rate));
    }
    if status.failed > 0 {
        let _ = write!(text, ", {} failed", status.failed);
    }
    if let Some(note) = &status.note {
        let _ = write!(text, ", {}", escape_line(note));
    }
    let Status {
        workers,
        batch_size,
        in_flight,
        ..
    } = status;
    let _ = write!(
        text,
        ", {workers} workers x {batch_size}, {in_flight} in flight"
    );
    text
}

fn in_words(seconds: f64) -> String {
    // A float beyond the range ends at its bound.
    let seconds = seconds.ceil() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{minutes} min"),
        6000..172_800 => format!("{hours} h {:02} min", minutes % 60),
        _ if days < 10_000 => format!("{days} days"),
        _ => "over 10000 days".to_owned(),
    }
}

/// A panic elsewhere leaves nothing half changed here: every change is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::mpsc;

    fn status(done: u64, total: Option<u64>) -> Status {
        Status {
            done,
            total,
            workers: 8,
            batch_size: 50,
            in_flight: 7,
            ..Status::default()
        }
    }

    #[test]
    fn the_text_says_all_there_is() {
        let noted = Status {
            failed: 3,
            note: Some("cooldown until 12:03:10\n".to_owned()),
            ..status(5, Some(9))
        };
        let setting = "8 workers x 50, 7 in flight";
        for (status, rate, expected) in [
            (
                status(1200, Some(5000)),
                310.2,
                format!("1200/5000 items, 310/s, 13 s left, {setting}"),
            ),
            (
                status(1200, None),
                0.25,
                format!("1200 items, 0.2/s, {setting}"),
            ),
            (
                status(0, Some(5000)),
                0.0,
                format!("0/5000 items, 0.0/s, {setting}"),
            ),
            (
                status(9, Some(9)),
                5.0,
                format!("9/9 items, 5.0/s, {setting}"),
            ),
            (
                status(9, Some(8)),
                50.0,
                format!("9/8 items, 50/s, {setting}"),
            ),
            (
                noted,
                2.0,
                format!("5/9 items, 2.0/s, 3 failed, cooldown until 12:03:10\\n, {setting}"),
            ),
        ] {
            assert_eq!(describe(&status, rate), expected);
        }
        for (seconds, words) in [
            (0.2, "1 s"),
            (99.0, "99 s"),
            (100.0, "1 min"),
            (5999.0, "99 min"),
            (6000.0, "1 h 40 min"),
            (172_800.0, "2 days"),
            (f64::INFINITY, "over 10000 days"),
            (f64::NAN, "0 s"),
        ] {
            assert_eq!(in_words(seconds), words);
        }
    }

    #[test]
    fn the_rate_follows_the_recent_past() {
        let mut pace = Pace::default();
        assert_eq!(pace.rate(), 0.0);
        pace.observe(0.0, 0);
        pace.observe(0.125, 50);
        assert!(
            (pace.rate() - 400.0).abs() < 1e-6,
            "true from the first observation: {}",
            pace.rate()
        );
        for step in 1..=400 {
            pace.observe(0.125 + f64::from(step) * 0.125, 50 + step as u64);
        }
        assert!(
            (pace.rate() - 8.0).abs() < 3.0,
            "after 50 s at 8 a second: {}",
            pace.rate()
        );
        pace.observe(1000.0, 451);
        assert!(pace.rate() < 0.1, "after a long stop: {}", pace.rate());
        pace.observe(1001.0, 0);
        assert!(pace.rate() >= 0.0, "a count that falls is no rate");
    }

    /// Sends what is drawn.
    #[derive(Debug)]
    struct Terminal(mpsc::Sender<String>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            200
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            let _ = self.0.send(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write_str("<clear>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bars_are_drawn_from_the_latest_status_and_make_way() {
        let (sender, drawn) = mpsc::channel();
        let display = Display::bars(ProgressDrawTarget::term_like(Box::new(Terminal(
            sender.clone(),
        ))));
        assert!(display.is_terminal());
        let orders = display.job("orders");
        let loans = display.job("loans\u{1b}");
        orders.update(status(1, None));
        orders.update(status(30, Some(40)));
        loans.update(status(5, None));
        let wait_for = |text: &str| {
            let found = |drawing: &String| drawing.contains(text);
            let limit = Duration::from_secs(60);
            while !found(
                &drawn
                    .recv_timeout(limit)
                    .unwrap_or_else(|_| panic!("never drawn: {text}")),
            ) {}
        };
        wait_for("[orders] ███████░░░ 30/40 items");
        wait_for("[loans\\x1b] 5 items");
        display.suspend(|| sender.send("a log line".to_owned()).unwrap());
        wait_for("<clear>");
        wait_for("a log line");
        wait_for("[orders]");
        drop(orders);
        drop(loans);
        while let Ok(drawing) = drawn.try_recv() {
            drop(drawing);
        }
        display.job("again").update(Status::default());
        assert_eq!(
            drawn.try_recv().ok(),
            None,
            "nothing is drawn without a status"
        );
    }

    #[test]
    fn without_a_terminal_a_job_logs_where_it_is_unless_nothing_moved() {
        let (sender, logged) = mpsc::channel();
        let writer = move || Sender(sender.clone());
        let subscriber = tracing_subscriber::fmt()
            .with_writer(writer)
            .without_time()
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let progress = Display::lines().job("orders");
            progress.update(status(30, Some(60)));
            progress.job.draw(Duration::from_secs(30));
            progress.job.draw(Duration::from_secs(60));
            progress.update(status(60, Some(60)));
            progress.job.draw(Duration::from_secs(90));
        });
        let lines: Vec<String> = logged.try_iter().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let expected = "progress: 30/60 items, 1.0/s, 30 s left, 8 workers x 50, 7 in flight";
        assert!(
            lines[0].contains("INFO") && lines[0].contains(expected),
            "{lines:?}"
        );
        assert!(lines[0].contains("label=\"orders\""), "{lines:?}");
        assert!(lines[1].contains("progress: 60/60 items"), "{lines:?}");
    }

    struct Sender(mpsc::Sender<String>);

    impl io::Write for Sender {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn jobs_end_the_thread_and_start_it_again() {
        let display = Display::lines();
        for _ in 0..3 {
            let job = display.job("a");
            assert!(lock(&display.0.jobs).ticking);
            drop(job);
            for _ in 0..10_000 {
                if !lock(&display.0.jobs).ticking {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!lock(&display.0.jobs).ticking);
        }
    }
}
