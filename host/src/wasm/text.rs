//! What the host lets through of a text that a guest wrote: not its job's secrets, and not more
//! than a limit.

use super::sandbox::ConfigValue;
use std::fmt::Write as _;

/// Shorter values are not struck out: they would be found in ordinary words.
const SHORTEST_SECRET: usize = 4;

/// The values that must not be seen, by the keys that may stand for them.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    /// (a line of the value, what is shown instead), the longest first.
    lines: Vec<(String, String)>,
}

impl Secrets {
    pub(super) fn new(config: &[ConfigValue]) -> Self {
        let mut lines: Vec<_> = config
            .iter()
            .filter(|value| value.secret)
            // A guest's lines reach us one at a time, so a value of several lines has to be found by each.
            .flat_map(|value| value.value.lines().map(|line| (line.trim(), &value.key)))
            .filter(|(line, _)| line.len() >= SHORTEST_SECRET)
            // A host's name is shown in lower case.
            .flat_map(|(line, key)| {
                [line.to_owned(), line.to_ascii_lowercase()].map(|line| (line, key))
            })
            .map(|(line, key)| (line, format!("(secret {key})")))
            .collect();
        lines.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        lines.dedup();
        Self { lines }
    }

    /// Strikes the secrets out.
    pub(super) fn strike(&self, mut text: String) -> String {
        for (line, shown) in &self.lines {
            if text.contains(line) {
                text = text.replace(line, shown);
            }
        }
        text
    }

    /// Length of the longest one.
    pub(super) fn longest(&self) -> usize {
        self.lines.first().map_or(0, |(line, _)| line.len())
    }
}

/// Cuts a text that is longer than `max` bytes, and says how much is gone. `beyond` bytes of it were
/// never here.
pub(super) fn cut(mut text: String, max: usize, beyond: usize) -> String {
    if text.len() > max || beyond > 0 {
        let kept = text.floor_char_boundary(max);
        let gone = text.len() - kept + beyond;
        text.truncate(kept);
        // The rest of a long text need not stay allocated.
        text.shrink_to_fit();
        let _ = write!(text, "… ({gone} bytes cut)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[(&str, &str)]) -> Secrets {
        let config: Vec<_> = values
            .iter()
            .map(|&(key, value)| ConfigValue {
                key: key.into(),
                value: value.into(),
                secret: key != "open",
            })
            .collect();
        Secrets::new(&config)
    }

    #[test]
    fn secrets_are_struck_out() {
        let secrets = secrets(&[
            ("token", "abcd"),
            ("long", "abcd-efgh"),
            ("open", "plain"),
            ("pem", "one line\nother\n"),
            ("upper", "KEY-of-Mine"),
        ]);
        let table = [
            (
                "Bearer abcd-efgh, abcd",
                "Bearer (secret long), (secret token)",
            ),
            ("plain", "plain"),
            ("the other one", "the (secret pem) one"),
            (
                "http://key-of-mine.example",
                "http://(secret upper).example",
            ),
        ];
        for (text, shown) in table {
            assert_eq!(secrets.strike(text.to_owned()), shown);
        }
        assert_eq!(secrets.longest(), 11);
    }

    #[test]
    fn a_debugged_secret_is_hidden() {
        let value = ConfigValue {
            key: "token".into(),
            value: "abcd".into(),
            secret: true,
        };
        assert!(!format!("{value:?}").contains("abcd"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short".to_owned(), 5, 0), "short");
        assert_eq!(cut("longer".to_owned(), 4, 0), "long… (2 bytes cut)");
        assert_eq!(cut("aé".to_owned(), 2, 0), "a… (2 bytes cut)");
        assert_eq!(cut("short".to_owned(), 9, 7), "short… (7 bytes cut)");
    }
}
