//! What a journal is about, and how a run goes on from it.

use super::subject::{FilePrint, Subject};
use super::table;
use crate::store::fault::{Fault, StoreError};
use rusqlite::Connection;
use std::path::Path;

const SUBJECT: &str = "subject";
const LAST: &str = "last";

/// What the journal was about, at first and in its last run, which may have been over items that failed.
#[derive(Debug, Clone)]
pub struct Subjects {
    pub main: Subject,
    pub last: Subject,
}

impl Subjects {
    pub fn print_of(&self, file: &Path) -> Option<FilePrint> {
        let name = file.display().to_string();
        let mut subjects = [&self.last, &self.main].into_iter();
        let same = subjects.find(|subject| subject.input.name == name);
        same.and_then(|subject| subject.input.file.clone())
    }

    pub fn to_meta(&self) -> Vec<(&'static str, String)> {
        let json = |subject| serde_json::to_string(subject).expect("plain data with text for keys");
        vec![(SUBJECT, json(&self.main)), (LAST, json(&self.last))]
    }
}

/// How a run goes on from the journal.
#[derive(Debug, Clone)]
pub struct Plan {
    pub subjects: Subjects,
    pub changes: Vec<String>,
    /// The input is a new list of items that failed: they are all to be sent again.
    pub new_round: bool,
}

impl Plan {
    pub fn of(stored: Option<Subjects>, now: Subject) -> Plan {
        let Some(Subjects { main, last }) = stored else {
            let main = now.clone();
            return Plan {
                subjects: Subjects { main, last: now },
                changes: Vec::new(),
                new_round: false,
            };
        };
        if now.of_failed && !(main.of_failed && main.input.is(&now.input)) {
            // The indexes are those of the main input, which is not read.
            let main = Subject {
                label: now.label.clone(),
                component: now.component.clone(),
                ..main.clone()
            };
            return Plan {
                changes: last.changes_beside_input(&now),
                new_round: !(last.of_failed && last.input.is(&now.input)),
                subjects: Subjects { main, last: now },
            };
        }
        Plan {
            changes: main.changes(&now),
            new_round: false,
            subjects: Subjects {
                main: now.clone(),
                last: now,
            },
        }
    }
}

/// What the journal was about when it was last written.
pub fn stored(path: &Path, connection: &Connection) -> Result<Option<Subjects>, StoreError> {
    let subject = |name: &str| -> Result<Option<Subject>, StoreError> {
        let text = table::meta(connection, name);
        let text = text.map_err(|error| StoreError::from_sqlite(path, &error))?;
        let read = |text: String| {
            serde_json::from_str(&text).map_err(|error| {
                let what = format!("{name} in journal_meta: {error}");
                StoreError::new(path, Fault::Damaged(what))
            })
        };
        text.map(read).transpose()
    };
    let both = subject(SUBJECT)?.zip(subject(LAST)?);
    Ok(both.map(|(main, last)| Subjects { main, last }))
}
