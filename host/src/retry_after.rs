//! Reads the value of a Retry-After header: seconds, or an HTTP date.
//!
//! Invariant: what is returned is at most [`LONGEST`]; whatever cannot be meant, a longer wait included, is [`Nonsense`],
//! for the caller to ignore and say once.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A longer wait is nonsense: no provider counts over more than a month.
pub const LONGEST: Duration = batchgate_policy::limiter::MAX_COOLDOWN;
/// How much of a senseless value is shown.
const SHOWN_CHARS: usize = 60;

/// A value that says no time to come back at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonsense {
    value: String,
    why: &'static str,
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retry-After: {:?} is ignored: {}", self.value, self.why)
    }
}

impl std::error::Error for Nonsense {}

/// How long to wait from `now` on. Fractions of a second, which the standard does not have but
/// servers send, are understood. 0 is a wait of nothing.
pub fn parse(value: &[u8], now: SystemTime) -> Result<Duration, Nonsense> {
    let nonsense = |why| Nonsense {
        value: String::from_utf8_lossy(value)
            .chars()
            .take(SHOWN_CHARS)
            .collect(),
        why,
    };
    let text = std::str::from_utf8(value)
        .map_err(|_| nonsense("it is not text"))?
        .trim_matches([' ', '\t']);
    let wait = if text.starts_with(|c: char| c.is_ascii_digit()) {
        seconds(text).ok_or_else(|| nonsense("it is not a number of seconds"))?
    } else {
        let until = httpdate::parse_http_date(text)
            .map_err(|_| nonsense("it is neither a number of seconds nor an HTTP date"))?;
        until
            .duration_since(now)
            .map_err(|_| nonsense("that date is past"))?
    };
    match wait <= LONGEST {
        true => Ok(wait),
        false => Err(nonsense("it is more than 31 days away")),
    }
}

/// Digits, and perhaps a point and more digits: no sign, exponent or word, as a float would allow.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // More digits than fit are as far away as can be.
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    // The fraction is at most 1.0, which its last digits may round to.
    Some(Duration::from_secs(whole).saturating_add(Duration::from_secs_f64(fraction)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nonsense_is_named() {
        // Wed, 11 Mar 2026 12:00:00 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_773_230_400);
        let cases: &[(&str, Result<f64, &str>)] = &[
            ("0", Ok(0.0)),
            ("120", Ok(120.0)),
            (" 7\t", Ok(7.0)),
            ("007", Ok(7.0)),
            ("0.5", Ok(0.5)),
            ("1.25", Ok(1.25)),
            ("Wed, 11 Mar 2026 12:01:30 GMT", Ok(90.0)),
            ("Wednesday, 11-Mar-26 12:01:30 GMT", Ok(90.0)),
            ("Wed Mar 11 12:01:30 2026", Ok(90.0)),
            ("Wed, 11 Mar 2026 12:00:00 GMT", Ok(0.0)),
            ("2678400", Ok(LONGEST.as_secs_f64())),
            ("2678401", Err("31 days")),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Err("31 days")),
            ("18446744073709551615", Err("31 days")),
            ("18446744073709551616", Err("31 days")),
            ("Wed, 11 Mar 2026 11:59:59 GMT", Err("past")),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Err("past")),
            ("-1", Err("neither")),
            ("+5", Err("neither")),
            ("", Err("neither")),
            ("soon", Err("neither")),
            ("inf", Err("neither")),
            ("NaN", Err("neither")),
            ("1e3", Err("number of seconds")),
            ("1.", Err("number of seconds")),
            ("1.2.3", Err("number of seconds")),
            (".5", Err("neither")),
            ("5 s", Err("number of seconds")),
            ("0x10", Err("number of seconds")),
            ("Wed, 32 Mar 2026 12:00:00 GMT", Err("neither")),
            ("٣", Err("neither")),
        ];
        for (value, expected) in cases {
            let got = parse(value.as_bytes(), now);
            match (got, expected) {
                (Ok(wait), Ok(seconds)) => assert_eq!(wait.as_secs_f64(), *seconds, "{value}"),
                (Err(nonsense), Err(why)) => {
                    assert!(nonsense.why.contains(why), "{value}: {nonsense}");
                }
                (got, _) => panic!("{value}: {got:?}"),
            }
        }
    }

    #[test]
    fn what_is_shown_of_nonsense_is_short_and_printable() {
        let text = |value: &[u8]| {
            parse(value, SystemTime::now())
                .expect_err("nonsense")
                .to_string()
        };
        assert_eq!(
            text(b"a\x1b[2J\n"),
            r#"Retry-After: "a\u{1b}[2J\n" is ignored: it is neither a number of seconds nor an HTTP date"#
        );
        assert!(text(&[b'z'; 10_000]).len() < 200);
        assert!(text(b"\xff\xfe").contains("not text"));
    }
}
