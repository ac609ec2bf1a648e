//! Log lines on stderr, for people or as JSON, one event a line.
//!
//! Invariant: an event is exactly one line, whatever text is in it, and writing it never stops or delays
//! a run.
//!
//! As text, a line at INFO is the message alone, the others have their level in front. A terminal also
//! shows the time; elsewhere the reader of the stream (journal, container) adds its own, and the lines
//! stay as `[orders] tune: probe workers 2->3 -> workers=3, batch_size=1`. As JSON, a line is
//! `{timestamp, level, label?, message, fields?}`.
//!
//! The label in front comes from the event's field `label`, or from the innermost span that has
//! one. Open such spans at ERROR, so that no level filters them out.

mod escape;
mod queue;

pub use escape::{escape_bytes, escape_json, escape_line};

use super::progress::Display;
use queue::Queue;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, span};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Names the level where the command line does not.
const LEVEL_VARIABLE: &str = "BATCHGATE_LOG";

/// Longest message, in bytes; the rest is cut off and its length said.
const MAX_MESSAGE: usize = 16 << 10;

/// How long the program's end waits for a stderr that does not move.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One object a line
    Json,
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level, from the command line or the environment, is none.
    #[error(
        "{origin}: {value:?} is none of off, error, warn, info, debug, trace, nor a list such as batchgate=debug,hyper=info"
    )]
    Level {
        /// Where it was given.
        origin: &'static str,
        /// What was given.
        value: String,
    },
    /// The writing thread did not start.
    #[error("the log's thread could not be started: {0}")]
    Thread(io::Error),
    /// Logging was started before.
    #[error("logging was started twice in one process")]
    Twice,
}

/// Logging as long as it lives; dropping it writes what is left.
pub struct Log(Arc<Queue>);

impl Log {
    /// Starts logging for the whole process. `level` is a level for our own lines, or a list of
    /// `target=level`; without one, `BATCHGATE_LOG` counts, and without that it is `info`.
    pub fn start(
        format: LogFormat,
        level: Option<&str>,
        display: &Display,
    ) -> Result<Self, LogError> {
        let filter = filter(level, std::env::var_os(LEVEL_VARIABLE).as_deref())?;
        let style = match format {
            LogFormat::Json => Style::Json,
            LogFormat::Text if !display.is_terminal() => Style::Plain,
            LogFormat::Text => Style::Terminal {
                colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            },
        };
        let (lines, log) = Lines::start(style, Stderr(display.clone()))?;
        let subscriber = Registry::default().with(lines.with_filter(filter));
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
        Ok(log)
    }

    /// Writes what is left, unless stderr does not move.
    pub fn flush(&self) {
        self.0.flush(FLUSH_PATIENCE);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.close(FLUSH_PATIENCE);
    }
}

/// Our own lines at the level given, those of libraries from WARN on.
fn filter(level: Option<&str>, variable: Option<&std::ffi::OsStr>) -> Result<EnvFilter, LogError> {
    let (origin, value) = match (level, variable) {
        (Some(level), _) => ("--log-level", level.to_owned()),
        (None, Some(value)) if !value.is_empty() => {
            (LEVEL_VARIABLE, value.to_string_lossy().into_owned())
        }
        _ => ("--log-level", "info".to_owned()),
    };
    let directives = match value.to_ascii_lowercase().as_str() {
        quiet @ ("off" | "error") => quiet.to_owned(),
        one @ ("warn" | "info" | "debug" | "trace") => format!("warn,batchgate={one}"),
        _ if value.contains('=') => value.clone(),
        _ => return Err(LogError::Level { origin, value }),
    };
    let parsed = EnvFilter::builder().parse(directives);
    parsed.map_err(|_| LogError::Level { origin, value })
}

/// Stderr below the progress bars, which make way for each write.
struct Stderr(Display);

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Terminal { colours: bool },
    Json,
}

/// Turns events into lines.
struct Lines {
    style: Style,
    queue: Arc<Queue>,
}

impl Lines {
    fn start(style: Style, sink: impl Write + Send + 'static) -> Result<(Self, Log), LogError> {
        let dropped_line = move |dropped| {
            let content = Content {
                message: format!(
                    "{dropped} log lines were dropped, since stderr did not take them"
                ),
                ..Content::default()
            };
            render(style, &jiff::ZonedDateTime::now(), Level::WARN, content)
        };
        let queue = Queue::start(sink, dropped_line).map_err(LogError::Thread)?;
        Ok((
            Self {
                style,
                queue: queue.clone(),
            },
            Log(queue),
        ))
    }
}

/// The label that a span gives to the events in it.
struct SpanLabel(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let mut content = Content::default();
        attributes.record(&mut content);
        if let (Some(label), Some(span)) = (content.label, context.span(id)) {
            span.extensions_mut().insert(SpanLabel(label));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut content = Content::default();
        event.record(&mut content);
        if content.label.is_none() {
            content.label = context.event_scope(event).and_then(|mut scope| {
                scope.find_map(|span| span.extensions().get::<SpanLabel>().map(|l| l.0.clone()))
            });
        }
        let line = render(
            self.style,
            &jiff::ZonedDateTime::now(),
            *event.metadata().level(),
            content,
        );
        self.queue.push(&line);
    }
}

/// What an event says.
#[derive(Default)]
struct Content {
    label: Option<String>,
    message: String,
    fields: Map<String, Value>,
}

impl Content {
    fn set(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("label", Value::String(text)) => self.label = Some(text),
            (name, Value::String(mut text)) => {
                cut(&mut text);
                self.fields.insert(name.to_owned(), Value::String(text));
            }
            (name, value) => {
                self.fields.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Content {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, Value::String(format!("{value:?}")));
    }
}

fn render(style: Style, now: &jiff::ZonedDateTime, level: Level, content: Content) -> String {
    let mut message = match &content.label {
        Some(label) => format!("[{label}] {}", content.message),
        None => content.message,
    };
    cut(&mut message);
    let colours = match style {
        Style::Json => {
            let line = JsonLine {
                timestamp: format!("{:.3}", now.timestamp()),
                level: level.as_str(),
                label: content.label,
                message,
                fields: content.fields,
            };
            let text = serde_json::to_string(&line).expect("plain data with text for keys");
            return escape_json(text);
        }
        Style::Plain => None,
        Style::Terminal { colours } => Some(colours),
    };
    for (name, value) in content.fields {
        // Writing to a String cannot fail.
        let _ = match value {
            Value::String(text) => write!(message, " {name}={text}"),
            value => write!(message, " {name}={value}"),
        };
    }
    let paint = |colour: &str, text: &str| match colours {
        Some(true) => format!("\u{1b}[{colour}m{text}\u{1b}[0m "),
        _ => format!("{text} "),
    };
    let time = match colours {
        Some(_) => paint("2", &now.strftime("%H:%M:%S").to_string()),
        None => String::new(),
    };
    let word = match level {
        Level::INFO => String::new(),
        Level::ERROR => paint("31", "ERROR"),
        Level::WARN => paint("33", "WARN"),
        other => paint("2", other.as_str()),
    };
    format!("{time}{word}{}", escape_line(&message))
}

#[derive(Serialize)]
struct JsonLine {
    timestamp: String,
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: Map<String, Value>,
}

fn cut(text: &mut String) {
    if text.len() > MAX_MESSAGE {
        let end = text.floor_char_boundary(MAX_MESSAGE);
        let cut = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("... ({cut} bytes cut)"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `events` logs, filtered as without any option.
    fn logged(style: Style, events: impl FnOnce()) -> String {
        let written = Written::default();
        let (lines, log) = Lines::start(style, written.clone()).unwrap();
        let subscriber = Registry::default().with(lines.with_filter(filter(None, None).unwrap()));
        tracing::subscriber::with_default(subscriber, events);
        drop(log);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn events() {
        tracing::info!(target: "batchgate::run", label = "orders", "tune: probe workers 2->3 -> workers=3, batch_size=1");
        tracing::warn!(target: "batchgate::run", rows = 3, path = "a b", "kept back\n[orders] forged\u{1b}[2J");
        tracing::debug!(target: "batchgate::run", "routine");
        tracing::info!(target: "hyper::client", "routine");
        tracing::warn!(target: "hyper::client", "odd");
        let job = tracing::error_span!(target: "batchgate::run", "job", label = "loans");
        job.in_scope(|| {
            tracing::error_span!(target: "batchgate::run", "call", number = 3)
                .in_scope(|| tracing::error!(target: "batchgate::wasm", "SYSTEMATIC FAILURE"));
        });
    }

    #[test]
    fn text_lines_are_the_messages() {
        assert_eq!(
            logged(Style::Plain, events),
            "[orders] tune: probe workers 2->3 -> workers=3, batch_size=1\n\
             WARN kept back\\n[orders] forged\\x1b[2J path=a b rows=3\n\
             WARN odd\n\
             ERROR [loans] SYSTEMATIC FAILURE\n"
        );
    }

    #[test]
    fn json_lines_are_objects() {
        let text = logged(Style::Json, events);
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert!(text.starts_with("{\"timestamp\":\""), "{text}");
        let rest: Vec<Value> = lines
            .into_iter()
            .map(|mut line| {
                let timestamp = line["timestamp"].as_str().unwrap().to_owned();
                timestamp.parse::<jiff::Timestamp>().unwrap();
                assert_eq!(timestamp.len(), "2025-01-01T00:00:00.000Z".len());
                line.as_object_mut().unwrap().remove("timestamp");
                line
            })
            .collect();
        let expected = json!([
            {"level": "INFO", "label": "orders",
             "message": "[orders] tune: probe workers 2->3 -> workers=3, batch_size=1"},
            {"level": "WARN", "message": "kept back\n[orders] forged\u{1b}[2J",
             "fields": {"rows": 3, "path": "a b"}},
            {"level": "WARN", "message": "odd"},
            {"level": "ERROR", "label": "loans", "message": "[loans] SYSTEMATIC FAILURE"},
        ]);
        assert_eq!(Value::from(rest), expected);
    }

    #[test]
    fn a_terminal_shows_time_and_colour() {
        let now: jiff::ZonedDateTime = "2025-03-04T05:06:07[UTC]".parse().unwrap();
        let line = |colours, level| {
            let content = Content {
                message: "m".to_owned(),
                ..Content::default()
            };
            render(Style::Terminal { colours }, &now, level, content)
        };
        assert_eq!(line(false, Level::INFO), "05:06:07 m");
        assert_eq!(line(false, Level::ERROR), "05:06:07 ERROR m");
        assert_eq!(
            line(true, Level::WARN),
            "\u{1b}[2m05:06:07\u{1b}[0m \u{1b}[33mWARN\u{1b}[0m m"
        );
    }

    #[test]
    fn long_messages_are_cut_and_it_is_said() {
        let text = logged(Style::Plain, || {
            tracing::info!(target: "batchgate", "{}", "é".repeat(MAX_MESSAGE));
        });
        assert!(
            text.len() < MAX_MESSAGE + 40 && text.ends_with("é... (16384 bytes cut)\n"),
            "{}",
            text.len()
        );
    }

    #[test]
    fn levels_come_from_the_command_line_then_the_environment() {
        for (level, variable, expected) in [
            (None, None, Ok("batchgate=info,warn")),
            (None, Some(""), Ok("batchgate=info,warn")),
            (Some("DEBUG"), Some("nonsense"), Ok("batchgate=debug,warn")),
            (None, Some("trace"), Ok("batchgate=trace,warn")),
            (Some("off"), None, Ok("off")),
            (
                Some("batchgate=trace,hyper=info"),
                None,
                Ok("batchgate=trace,hyper=info"),
            ),
            (
                Some("loud"),
                None,
                Err("--log-level: \"loud\" is none of off, error, warn, info"),
            ),
            (Some(""), None, Err("--log-level: \"\" is none of")),
            (
                Some("a=b=c"),
                None,
                Err("--log-level: \"a=b=c\" is none of"),
            ),
            (None, Some("5"), Err("BATCHGATE_LOG: \"5\" is none of")),
        ] {
            let got = filter(level, variable.map(OsStr::new));
            match (got, expected) {
                (Ok(filter), Ok(expected)) => {
                    let sorted = |text: &str| {
                        let mut parts: Vec<String> = text.split(',').map(str::to_owned).collect();
                        parts.sort();
                        parts
                    };
                    assert_eq!(
                        sorted(&filter.to_string()),
                        sorted(expected),
                        "{level:?} {variable:?}"
                    );
                }
                (Err(error), Err(says)) => assert!(error.to_string().starts_with(says), "{error}"),
                (got, expected) => panic!("{level:?} {variable:?}: {got:?}, not {expected:?}"),
            }
        }
    }
}
