//! `[rate_limit]`: how often the server may be called, and what a refusal means.

use std::path::PathBuf;

use batchgate_policy::attempt::OnBreach;
use jiff::civil::Time;
use jiff::tz::TimeZone;

use super::error::Problem;
use super::filled::Filled;
use super::kind::{FilePath, Optional, Own, Switch, Text, Word, words};
use super::number::{Number, REPEATS, SECONDS, TIMER, Whole};
use super::size::Size;
use super::table::table;

table! {
    /// How often the server may be called, and what its refusal means. Without this table
    /// there are no caps, and the cooldown after a refusal still works.
    RateLimit = "rate_limit";
    /// Most starts a second; 0.5 means one every 2 seconds.
    max_per_sec: Option<f64> = None, Optional(PER_SECOND);
    /// Most bytes sent and received in a minute.
    max_bytes_per_min: Option<u64> = None, Optional(Size::range(1, 1 << 50));
    /// Most starts in a day of the provider's calendar.
    max_per_day: Option<u64> = None, Optional(Whole::range(1, 1 << 50));
    /// The calendar's time zone: `local`, `UTC`, or a name such as `America/Los_Angeles`.
    day_time_zone: String = "local".to_owned(), TIME_ZONE;
    /// When the provider's day starts.
    day_resets_at: Time = Time::midnight(), TIME_OF_DAY;
    /// Keeps the day's count across restarts; hosts that name the same file share one quota.
    state_file: Option<PathBuf> = None, Optional(FilePath);
    /// The wait after a first refusal, in seconds.
    breach_base_cooldown: f64 = 60.0, TIMER;
    /// How often the wait may double: with the defaults from 60 to 960 seconds.
    breach_max_doublings: u32 = 4, Whole::range(0, 32);
    /// Seconds without a refusal after which the wait starts from its base again.
    breach_quiet_window: f64 = 300.0, SECONDS;
    /// A longer wait, in seconds, or a spent day, parks the run.
    max_cooldown: f64 = 3600.0, SECONDS;
    /// A parked run waits and says until when; with `false` it stops instead, exit code 1.
    park: bool = true, Switch;
    /// A refused batch: `resend` sends the same again after the wait, `fail` takes it as failed.
    on_breach: OnBreach = OnBreach::Resend, Word::<OnBreach>::of();
    /// How often a refused batch is sent again before it counts as failed.
    max_breach_resends: u32 = 8, REPEATS;
    /// What the caps count: `call`, or `http` for the requests that calls make.
    scope: Scope = Scope::Call, Word::<Scope>::of();
    /// Whether the host takes a 429, or a 503 with Retry-After, as a refusal by itself.
    watch_http: bool = true, Switch;
    /// Whether the host counts bytes itself; what the component reports is then ignored.
    count_http_bytes: bool = true, Switch;
    /// A limiter of the host file, `[limiters.NAME]`, shared with other jobs.
    name: Option<String> = None, Optional(Text);
}

words! { OnBreach { Resend = "resend", Fail = "fail", } }

/// What the caps count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Calls of the component.
    Call,
    /// HTTP requests that calls make.
    Http,
}

words! { Scope { Call = "call", Http = "http", } }

/// Starts a second. The slowest is one in about a day.
const PER_SECOND: Number = Number::between("a number", 0.00001, 1_000_000.0);

const TIME_ZONE: Own<String> = Own {
    expects: "\"local\", \"UTC\" or a known time zone such as \"America/Los_Angeles\"",
    placeholder: "ZONE",
    parse: |raw| {
        let name = raw.text()?;
        (name == "local" || TimeZone::get(name).is_ok()).then(|| name.to_owned())
    },
    show: |name| format!("{name:?}"),
};

const TIME_OF_DAY: Own<Time> = Own {
    expects: "a time of day from \"00:00\" to \"23:59\"",
    placeholder: "HH:MM",
    parse: |raw| {
        let (hour, minute) = raw.text()?.split_once(':')?;
        let two_digits = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        if !two_digits(hour) || !two_digits(minute) {
            return None;
        }
        Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
    },
    show: |time| format!("\"{:02}:{:02}\"", time.hour(), time.minute()),
};

/// What makes a limiter; a job that takes a shared one cannot also make its own.
const LIMITER_KEYS: [&str; 10] = [
    "max_per_sec",
    "max_bytes_per_min",
    "max_per_day",
    "day_time_zone",
    "day_resets_at",
    "state_file",
    "breach_base_cooldown",
    "breach_max_doublings",
    "breach_quiet_window",
    "scope",
];

impl RateLimit {
    /// Takes from a shared limiter what the job could say beside it and does not.
    pub(super) fn adopt(&mut self, limiter: &RateLimit, filled: &Filled) {
        let is_own = |key| filled.given("rate_limit", key);
        if !is_own("max_cooldown") {
            self.max_cooldown = limiter.max_cooldown;
        }
        if !is_own("park") {
            self.park = limiter.park;
        }
        if !is_own("on_breach") {
            self.on_breach = limiter.on_breach;
        }
        if !is_own("max_breach_resends") {
            self.max_breach_resends = limiter.max_breach_resends;
        }
        if !is_own("watch_http") {
            self.watch_http = limiter.watch_http;
        }
        if !is_own("count_http_bytes") {
            self.count_http_bytes = limiter.count_http_bytes;
        }
    }

    pub(super) fn check(&self, filled: &Filled, problems: &mut Vec<Problem>) {
        let Some(name) = &self.name else { return };
        for key in LIMITER_KEYS
            .into_iter()
            .filter(|key| filled.given("rate_limit", key))
        {
            let message = format!(
                "this job takes the limiter {name:?} from the host file, where {key} belongs; \
                 move it to [limiters.NAME] or remove name"
            );
            problems.push(filled.problem("rate_limit", &[key], message));
        }
    }
}
