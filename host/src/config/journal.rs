//! `[journal]`: the record of what is done, from which an interrupted run goes on.

use std::path::PathBuf;

use super::kind::{FilePath, Optional, Word, words};
use super::table::table;

table! {
    /// The record of what is done, from which an interrupted run goes on.
    Journal = "journal";
    /// The database that makes the run resumable.
    db: Option<PathBuf> = None, Optional(FilePath), one_job;
    /// Items whose end a crash or timeout left unknown: `resend` sends them again when the
    /// run is resumed, `hold` leaves them to you.
    unknown: Unknown = Unknown::Resend, Word::<Unknown>::of();
}

/// What a resumed run does with items whose end is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Sends them again: every item at least once.
    Resend,
    /// Sends none of them: every item at most once.
    Hold,
}

words! { Unknown { Resend = "resend", Hold = "hold", } }
