//! The options of the stand-in API, each defined once: the command line, the defaults and
//! `--change` all come from here.

use clap::{Args, FromArgMatches, ValueEnum};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// All options of a server.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = listen_address)]
    pub listen: SocketAddr,

    /// Set another option SECONDS after the server started, as in 30:per-item-ms=9 (repeatable);
    /// bad-key adds to the list, and an empty bad-key clears it
    #[arg(long = "change", value_name = "SECONDS:OPTION=VALUE")]
    pub changes: Vec<Change>,

    /// What the server does until the first change.
    #[command(flatten)]
    pub behaviour: Behaviour,
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

/// What a server does with a request: every option that `--change` can set.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(allow_negative_numbers = true)]
pub struct Behaviour {
    /// How latency grows with the requests in flight, beyond or around --knee
    #[arg(long, value_enum, default_value = "knee")]
    pub shape: Shape,

    /// Requests in flight that the server bears well, at least 1; without it, latency does not
    /// depend on them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub knee: Option<u32>,

    /// Shape knee: what each request in flight beyond the knee adds, as a share of the latency
    #[arg(long, value_name = "F", default_value = "0.4", value_parser = amount)]
    pub slope: f64,

    /// Latency of a request, whatever its size, in milliseconds
    #[arg(long, value_name = "F", default_value = "20", value_parser = amount)]
    pub overhead_ms: f64,

    /// Latency of each item, in milliseconds
    #[arg(long, value_name = "F", default_value = "1", value_parser = amount)]
    pub per_item_ms: f64,

    /// Noise: the standard deviation of the logarithm of the latency
    #[arg(long, value_name = "F", default_value = "0", value_parser = amount)]
    pub sigma: f64,

    /// Seed of the noise: request k of a seed draws the same in every run
    #[arg(long, value_name = "N", default_value = "0")]
    pub seed: u64,

    /// Most items in a batch, at least 1; a larger one is refused with 413
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_batch: Option<u32>,

    /// Most requests accepted in any one second, at least 1; the others are refused
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_per_sec: Option<u32>,

    /// Status of a request refused for its rate: 429 or 503
    #[arg(long, value_name = "STATUS", default_value = "429", value_parser = reject_status)]
    pub reject_status: u16,

    /// Retry-After of a request refused for its rate: seconds, date:SECONDS (as an HTTP date), none,
    /// or raw:TEXT (sent as it is)
    #[arg(long, value_name = "S", default_value = "1")]
    pub retry_after: RetryAfter,

    /// Key of a bad item (repeatable)
    #[arg(long = "bad-key", value_name = "K")]
    pub bad_keys: Vec<String>,

    /// What a bad item does: reject the whole batch with 422, or fail alone in a 207
    #[arg(long, value_enum, default_value = "reject")]
    pub bad_mode: BadMode,

    /// Answer every request with this status (400 to 599), after its latency, and store nothing
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(400..=599))]
    pub status: Option<u16>,

    /// Answer every Kth request with 500, after its latency, and store nothing of it
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub fail_every: Option<u64>,

    /// Store the items of every Kth request, but close its connection instead of answering
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub drop_every: Option<u64>,
}

impl Default for Behaviour {
    fn default() -> Self {
        defaults()
    }
}

/// How the penalty for requests in flight grows, with the knee k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// None up to k, then the slope for each further one: throughput falls beyond k
    Knee,
    /// None up to k, then in proportion: throughput stays level beyond k
    Plateau,
    /// From the first one on: throughput grows ever more slowly
    Concave,
}

/// What a bad item does to its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BadMode {
    /// The whole batch is refused with 422
    Reject,
    /// The batch is answered with 207, a status an item
    #[value(name = "207")]
    Each,
}

/// The Retry-After header of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryAfter {
    /// No header.
    None,
    /// This text.
    Text(String),
    /// The HTTP date that is so long after the refusal.
    Date(Duration),
}

impl FromStr for RetryAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(raw) = text.strip_prefix("raw:") {
            return match http::HeaderValue::from_str(raw) {
                Ok(_) => Ok(Self::Text(raw.to_owned())),
                Err(_) => Err("the text after raw: cannot stand in a header".to_owned()),
            };
        }
        if let Some(seconds) = text.strip_prefix("date:") {
            return Ok(Self::Date(seconds_from_now(seconds)?));
        }
        seconds_from_now(text)
            .map(|_| Self::Text(text.to_owned()))
            .map_err(|e| format!("{e}; or date:SECONDS, none, raw:TEXT"))
    }
}

/// One option that is set while the server runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// When, counted from the server's start.
    pub at: Duration,
    option: String,
    value: String,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, setting) = text
            .split_once(':')
            .ok_or("write SECONDS:OPTION=VALUE, as in 30:per-item-ms=9")?;
        let (option, value) = setting
            .split_once('=')
            .ok_or("write SECONDS:OPTION=VALUE, as in 30:per-item-ms=9")?;
        let change = Self {
            at: seconds_from_now(at)?,
            option: option.trim_start_matches("--").to_owned(),
            value: value.to_owned(),
        };
        // Whether a value fits does not depend on the other options, so the defaults do for the check.
        change.apply(&mut Behaviour::default())?;
        Ok(change)
    }
}

impl Change {
    /// Sets the option.
    pub(super) fn apply(&self, behaviour: &mut Behaviour) -> Result<(), String> {
        if self.option == "bad-key" {
            if self.value.is_empty() {
                behaviour.bad_keys.clear();
            } else {
                behaviour.bad_keys.push(self.value.clone());
            }
            return Ok(());
        }
        // The defaults are taken out, or they would overwrite what is set.
        let command = Behaviour::augment_args_for_update(command())
            .mut_args(|arg| arg.default_value(None::<&str>));
        let known: Vec<&str> = command
            .get_arguments()
            .filter_map(|a| a.get_long())
            .collect();
        if !known.contains(&self.option.as_str()) {
            return Err(format!(
                "no option {:?} to change; there are {}",
                self.option,
                known.join(", ")
            ));
        }
        let argument = format!("--{}={}", self.option, self.value);
        command
            .try_get_matches_from([argument])
            .and_then(|matches| behaviour.update_from_arg_matches(&matches))
            .map_err(|e| {
                let text = e.to_string();
                let line = text.lines().next().unwrap_or_default();
                line.trim_start_matches("error: ").to_owned()
            })
    }
}

/// Options that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The shape is a function of the knee.
    #[error("--shape {shape} needs --knee N{}", at_text(.at))]
    ShapeNeedsKnee {
        /// The shape's name.
        shape: String,
        /// From when on, counted from the server's start.
        at: Duration,
    },
    /// A change that does not fit.
    #[error("--change: {0}")]
    Change(String),
}

fn at_text(at: &Duration) -> String {
    if at.is_zero() {
        String::new()
    } else {
        format!(" (from {} s on, by --change)", at.as_secs_f64())
    }
}

fn command() -> clap::Command {
    clap::Command::new("mock-api")
        .no_binary_name(true)
        .disable_help_flag(true)
}

/// The values that the definitions above give to options not named.
fn defaults<T: Args>() -> T {
    T::augment_args(command())
        .try_get_matches_from(std::iter::empty::<&str>())
        .and_then(|matches| T::from_arg_matches(&matches))
        .expect("every option has a valid default or is optional")
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "write IP:PORT, as in 127.0.0.1:8080".to_owned())
}

fn amount(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("write a number of at least 0".to_owned()),
    }
}

fn reject_status(text: &str) -> Result<u16, String> {
    match text {
        "429" => Ok(429),
        "503" => Ok(503),
        _ => Err("write 429 or 503".to_owned()),
    }
}

fn seconds_from_now(text: &str) -> Result<Duration, String> {
    const A_YEAR: f64 = 366.0 * 86_400.0;
    match text.parse::<f64>() {
        Ok(value) if (0.0..=A_YEAR).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err(format!(
            "{text:?} is not a number of seconds from 0 to a year"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        Options::augment_args(command())
            .try_get_matches_from(arguments)
            .and_then(|m| Options::from_arg_matches(&m))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn options_are_read() {
        let options = parse(&[
            "--shape=plateau",
            "--knee=8",
            "--bad-key=a",
            "--bad-key=b",
            "--bad-mode=207",
            "--reject-status=503",
            "--change=1.5:per-item-ms=9",
        ])
        .unwrap();
        let b = &options.behaviour;
        assert_eq!((b.shape, b.knee), (Shape::Plateau, Some(8)));
        assert_eq!(b.bad_keys, ["a", "b"]);
        assert_eq!((b.bad_mode, b.reject_status), (BadMode::Each, 503));
        assert_eq!(options.changes[0].at, Duration::from_millis(1500));
        assert_eq!(b.per_item_ms, Behaviour::default().per_item_ms);
    }

    #[test]
    fn bad_values_are_named() {
        for (argument, says) in [
            ("--knee=0", "0 is not in 1"),
            ("--max-batch=x", "invalid value 'x' for '--max-batch"),
            ("--slope=-1", "at least 0"),
            ("--sigma=NaN", "at least 0"),
            ("--overhead-ms=inf", "at least 0"),
            ("--shape=square", "knee, plateau, concave"),
            ("--bad-mode=maybe", "reject, 207"),
            ("--reject-status=500", "429 or 503"),
            ("--retry-after=soon", "date:SECONDS, none, raw:TEXT"),
            ("--retry-after=raw:a\nb", "cannot stand in a header"),
            ("--status=200", "200 is not in 400..=599"),
            ("--listen=localhost", "IP:PORT"),
            ("--fail-every=0", "0 is not in 1"),
            ("--change=5", "SECONDS:OPTION=VALUE"),
            ("--change=5:knee", "SECONDS:OPTION=VALUE"),
            ("--change=-5:knee=1", "\"-5\" is not a number of seconds"),
            (
                "--change=1e300:knee=1",
                "\"1e300\" is not a number of seconds",
            ),
            (
                "--change=5:kne=1",
                "no option \"kne\" to change; there are shape, knee",
            ),
            (
                "--change=5:listen=1.1.1.1:1",
                "no option \"listen\" to change",
            ),
            ("--change=5:help=1", "no option \"help\" to change"),
            ("--change=5:knee=0", "0 is not in 1"),
            ("--change=5:shape=", "--shape"),
        ] {
            let error = parse(&[argument]).expect_err(argument);
            assert!(error.contains(says), "{argument}: {error}");
        }
    }

    #[test]
    fn a_change_sets_its_option_alone() {
        let mut behaviour = parse(&["--knee=8", "--overhead-ms=7", "--bad-key=a", "--sigma=0.3"])
            .unwrap()
            .behaviour;
        let mut expected = behaviour.clone();
        for text in [
            "5:per-item-ms=9",
            "5:max-batch=60",
            "5:retry-after=none",
            "5:bad-key=b",
        ] {
            text.parse::<Change>()
                .unwrap()
                .apply(&mut behaviour)
                .unwrap();
        }
        expected.per_item_ms = 9.0;
        expected.max_batch = Some(60);
        expected.retry_after = RetryAfter::None;
        expected.bad_keys.push("b".to_owned());
        assert_eq!(behaviour, expected);
        "5:bad-key="
            .parse::<Change>()
            .unwrap()
            .apply(&mut behaviour)
            .unwrap();
        assert!(behaviour.bad_keys.is_empty());
    }

    #[test]
    fn every_option_can_be_changed() {
        for (option, value) in [
            ("shape", "concave"),
            ("knee", "1"),
            ("slope", "0.1"),
            ("overhead-ms", "0.5"),
            ("per-item-ms", "3"),
            ("sigma", "1"),
            ("seed", "9"),
            ("max-batch", "2"),
            ("max-per-sec", "2"),
            ("reject-status", "503"),
            ("retry-after", "date:3"),
            ("bad-key", "k"),
            ("bad-mode", "207"),
            ("status", "500"),
            ("fail-every", "2"),
            ("drop-every", "2"),
        ] {
            let mut behaviour = Behaviour::default();
            let change: Change = format!("0:{option}={value}").parse().unwrap();
            change.apply(&mut behaviour).unwrap();
            assert_ne!(behaviour, Behaviour::default(), "{option}");
        }
        let options = Behaviour::augment_args(command()).get_arguments().count();
        assert_eq!(options, 16, "add the new option to the table above");
    }
}
