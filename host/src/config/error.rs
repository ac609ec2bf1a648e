//! What is wrong with a configuration, one line a problem.
//!
//! Invariant: a line names the place, the key, what is wrong and what to do; it never holds
//! a value of `[config]`.

use std::fmt;

use super::origin::Origin;

/// A configuration that cannot be used: every problem found, at least one.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    /// The problems, in the order in which they were found.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// `Ok` if there is nothing to complain about.
    pub(super) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Self { problems })
        }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}

/// One thing that is wrong: `job.toml:4: [pool] workers: must be ...`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    place: String,
    subject: Option<String>,
    message: String,
}

impl Problem {
    /// A problem with a whole file or option.
    pub(super) fn at(place: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            subject: None,
            message: message.into(),
        }
    }

    /// A problem with a key. An option names its key already, so the subject is left out there.
    pub(super) fn with(origin: &Origin, subject: String, message: impl Into<String>) -> Self {
        let subject = match origin {
            Origin::File { .. } => Some(subject),
            Origin::Option(_) => None,
        };
        Self {
            place: origin.to_string(),
            subject,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(subject) = &self.subject {
            write!(f, "{subject}: ")?;
        }
        f.write_str(&self.message)
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}
