//! The files and databases that a job writes its records to.
//!
//! Invariant: whatever cannot be written is found before anything is sent, and a run that will send nothing leaves
//! them as they are: none is created, and no row of a former run goes.

use super::PrepareError;
use crate::config;
use crate::report::failed_items::{FailedItemsError, FailedItemsFile, Place};
use crate::report::failures::FailuresFile;
use crate::report::writable;
use crate::source::{Input, RejectsFile};
use crate::store::UsageWriter;
use crate::store::journal::{self, Journal, JournalError, Subject};
use std::path::Path;

/// What a run writes to, opened.
#[derive(Default)]
pub struct Outputs {
    pub rejects: Option<RejectsFile>,
    pub failures: Option<FailuresFile>,
    pub failed_items: Option<FailedItemsFile>,
    pub journal: Option<Journal>,
    pub usage: Option<UsageWriter>,
}

impl Outputs {
    /// Opens all that the job names, and creates what is not there.
    pub fn open(config: &config::Job, accept_changes: bool) -> Result<Outputs, PrepareError> {
        let rejects = config.top.rejects_csv.as_deref().map(RejectsFile::open);
        let failures = config.pool.failures_csv.as_deref().map(|path| {
            FailuresFile::open(path).map_err(|cause| PrepareError::File {
                key: "failures_csv",
                path: path.to_owned(),
                cause,
            })
        });
        let (rejects, failures) = (rejects.transpose()?, failures.transpose()?);
        let journal = journal(config, accept_changes)?;
        let failed_items = failed_items(config, journal.as_ref())?;
        let usage = config.usage.db.as_deref().map(UsageWriter::open);
        Ok(Outputs {
            rejects,
            failures,
            failed_items,
            journal,
            usage: usage.transpose()?,
        })
    }

    /// Finds what could not be opened. Databases that are there are opened for it, so that a journal of another input
    /// is noticed.
    pub fn check(config: &config::Job, accept_changes: bool) -> Result<Outputs, PrepareError> {
        let files = [
            ("rejects_csv", &config.top.rejects_csv),
            ("failures_csv", &config.pool.failures_csv),
            ("failed_items", &config.pool.failed_items),
            ("[usage] db", &config.usage.db),
            ("[journal] db", &config.journal.db),
        ];
        for (key, path) in files {
            if let Some(path) = path {
                writable(path).map_err(|cause| PrepareError::File {
                    key,
                    path: path.clone(),
                    cause,
                })?;
            }
        }
        if let Some(path) = &config.top.rejects_csv {
            RejectsFile::check(path)?;
        }
        if let Some(path) = &config.pool.failures_csv {
            FailuresFile::check(path).map_err(|cause| PrepareError::File {
                key: "failures_csv",
                path: path.clone(),
                cause,
            })?;
        }
        if let Some(path) = &config.pool.failed_items {
            FailedItemsFile::check(path)?;
        }
        let is_there = |path: &Option<_>| path.as_deref().is_some_and(Path::exists);
        if is_there(&config.journal.db) {
            journal(config, accept_changes)?;
        }
        if is_there(&config.usage.db) {
            config
                .usage
                .db
                .as_deref()
                .map(UsageWriter::open)
                .transpose()?;
        }
        Ok(Outputs::default())
    }
}

/// The journal, if the job has one. Reading a large input for its digest takes seconds.
fn journal(config: &config::Job, accept_changes: bool) -> Result<Option<Journal>, JournalError> {
    let Some(path) = &config.journal.db else {
        return Ok(None);
    };
    let options = journal::Options {
        path,
        label: &config.top.label,
        unknown: match config.journal.unknown {
            config::Unknown::Resend => journal::OnUnknown::Resend,
            config::Unknown::Hold => journal::OnUnknown::Hold,
        },
        accept_changes,
    };
    let top = &config.top;
    Journal::open(&options, |known| {
        Subject::take(&top.label, &top.source_config(), &top.component, known)
    })
    .map(Some)
}

/// The file of failed items, if the job has one. Without a journal a run starts anew, so that rows of former ones go.
fn failed_items(
    config: &config::Job,
    journal: Option<&Journal>,
) -> Result<Option<FailedItemsFile>, FailedItemsError> {
    let Some(path) = &config.pool.failed_items else {
        return Ok(None);
    };
    let input = match &config.top.input {
        Input::Path(path) => Some(path.as_path()),
        Input::Stdin => None,
    };
    let keep = |index, place| match (journal, place) {
        (None, _) => false,
        (Some(journal), Place::Itself) => journal.has_failed(index),
        (Some(journal), Place::BesideInput) => journal.has_failed_again(index),
    };
    FailedItemsFile::open(path, input, keep).map(Some)
}
