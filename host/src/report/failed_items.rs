//! The file `failed_items`: a row an item that failed, ready to be run again with `format = "failed"`.
//!
//! Invariant: once [`FailedItemsFile::write`] has returned, the rows survive the end of the process, and the file holds
//! whole rows of items that failed, one an item. A run over the file itself writes beside it, and what it
//! wrote takes the file's place only when every row of it has come to its end.

use super::appended::Appended;
use crate::source::failed::{FailedRow, read_index, write_row};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The file of a run, open for adding rows.
#[derive(Debug)]
pub struct FailedItemsFile {
    file: Appended,
    path: PathBuf,
    /// The input, whose place `path` takes in the end.
    replaces: Option<PathBuf>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FailedItemsError {
    /// It cannot be opened, read or written.
    #[error("failed_items {}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is something else.
    #[error(
        "failed_items {}: exists and line {line} is no row of failed items; name another file, or move it away", path.display()
    )]
    OtherFile {
        /// The file.
        path: PathBuf,
        /// Its first line that does not fit.
        line: u64,
    },
}

impl FailedItemsFile {
    /// Opens or creates the file for a run that reads `input`. Of rows that are there, those of which `keep` says so are kept.
    pub fn open(
        path: &Path,
        input: Option<&Path>,
        keep: impl Fn(u64, Place) -> bool,
    ) -> Result<FailedItemsFile, FailedItemsError> {
        let is_input = input.is_some_and(|input| is_same(input, path));
        let (place, written) = match is_input {
            true => (Place::BesideInput, beside(path, ".next")),
            false => (Place::Itself, path.to_owned()),
        };
        let failed = |cause| FailedItemsError::Io {
            path: written.clone(),
            cause,
        };
        if !is_special(&written) {
            tidy(&written, |index| keep(index, place))?;
        }
        let file = Appended::open(&written).map_err(failed)?;
        Ok(FailedItemsFile {
            file,
            path: written,
            replaces: is_input.then(|| path.to_owned()),
        })
    }

    /// Finds out whether a file that is there holds failed items.
    pub fn check(path: &Path) -> Result<(), FailedItemsError> {
        match is_special(path) {
            true => Ok(()),
            false => rows(path).map(drop),
        }
    }

    /// Adds rows, in one write.
    pub fn write<'a>(&mut self, rows: impl Iterator<Item = FailedRow<'a>>) -> io::Result<()> {
        let mut text = Vec::new();
        for row in rows {
            write_row(&mut text, &row)?;
        }
        self.file.write_all(&text)
    }

    /// The run is over; `complete` if every row of its input came to an end in it.
    pub fn finish(self, complete: bool) -> Result<(), FailedItemsError> {
        let failed = |cause| FailedItemsError::Io {
            path: self.path.clone(),
            cause,
        };
        self.file.check().map_err(failed)?;
        let Some(input) = self.replaces else {
            return Ok(());
        };
        if !complete {
            tracing::info!(
                "failed_items: what failed is in {}; it takes the place of {} when a run over that comes to its end",
                self.path.display(),
                input.display()
            );
            return Ok(());
        }
        // A link stays: what it points to is replaced.
        let target = input.canonicalize().map_err(failed)?;
        self.file.sync().map_err(failed)?;
        fs::rename(&self.path, target).map_err(failed)
    }
}

/// Where the rows of a run go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// To the file itself.
    Itself,
    /// To a file beside it, because it is the input.
    BesideInput,
}

/// The lines of a file of failed items: how many, and which is the last of each item. None if there is no file.
struct Rows {
    lines: u64,
    last: HashMap<u64, u64>,
}

fn rows(path: &Path) -> Result<Option<Rows>, FailedItemsError> {
    let failed = |cause| FailedItemsError::Io {
        path: path.to_owned(),
        cause,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut rows = Rows {
        lines: 0,
        last: HashMap::new(),
    };
    each_line(&mut BufReader::new(&file), |number, line| {
        rows.lines = number;
        match read_index(line) {
            Some(index) => {
                rows.last.insert(index, number);
                Ok(())
            }
            None if !line.ends_with(b"\n") && number > 1 => Ok(()),
            None => Err(number),
        }
    })
    .map_err(failed)?
    .map_err(|line| FailedItemsError::OtherFile {
        path: path.to_owned(),
        line,
    })?;
    Ok(Some(rows))
}

/// Leaves the last row of each item that is to be kept; what a crash left of a row goes.
fn tidy(path: &Path, keep: impl Fn(u64) -> bool) -> Result<(), FailedItemsError> {
    let failed = |cause| FailedItemsError::Io {
        path: path.to_owned(),
        cause,
    };
    let Some(Rows {
        lines,
        last: mut last_row,
    }) = rows(path)?
    else {
        return Ok(());
    };
    last_row.retain(|&index, _| keep(index));
    if last_row.len() as u64 == lines {
        return Ok(());
    }
    let dropped = lines - last_row.len() as u64;
    tracing::info!(
        "failed_items {}: {dropped} rows of former runs go, {} stay",
        path.display(),
        last_row.len()
    );
    let new = beside(path, ".new");
    let copy = || -> io::Result<()> {
        let mut to = BufWriter::new(File::create(&new)?);
        let mut reader = BufReader::new(File::open(path)?);
        let copied = each_line(&mut reader, |number, line| {
            let is_kept = read_index(line).and_then(|index| last_row.get(&index)) == Some(&number);
            let written = match is_kept {
                true => to.write_all(line),
                false => Ok(()),
            };
            written.map_err(|error| (number, error))
        })?;
        copied.map_err(|(_, error)| error)?;
        let file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&new, path.canonicalize()?)
    };
    copy()
        .inspect_err(|_| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&new);
        })
        .map_err(failed)
}

/// Calls `each` with the number, from 1, and the bytes of each line, its end included, until it has an error.
fn each_line<E>(
    reader: &mut impl BufRead,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> io::Result<Result<(), E>> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Err(error) = each(number, &line) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// A pipe or a device, which is not to be read.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| !facts.is_file())
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::item::{Item, Key};

    fn add(file: &mut FailedItemsFile, indexes: &[u64], reason: &str) {
        let items: Vec<Item> = indexes
            .iter()
            .map(|&index| Item {
                index,
                key: Key::Index,
                data: "x".into(),
            })
            .collect();
        let row = |item| FailedRow {
            item,
            reason,
            outcome: "failed",
            attempts: 1,
        };
        file.write(items.iter().map(row)).unwrap();
    }

    fn rows(path: &Path) -> Vec<(u64, String)> {
        let text = fs::read_to_string(path).unwrap();
        let row = |line| -> serde_json::Value { serde_json::from_str(line).unwrap() };
        text.lines()
            .map(row)
            .map(|row| {
                let reason = row["reason"].as_str().unwrap().to_owned();
                (row["index"].as_u64().unwrap(), reason)
            })
            .collect()
    }

    #[test]
    fn rows_that_are_to_be_kept_stay_and_one_an_item() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("failed.jsonl");
        let mut file = FailedItemsFile::open(&path, None, |_, _| true).unwrap();
        add(&mut file, &[1, 2, 3], "a");
        add(&mut file, &[3], "b");
        drop(file);
        let torn = fs::read_to_string(&path).unwrap() + "{\"index\":9,\"ke";
        fs::write(&path, torn).unwrap();
        let keep = |index, place| {
            assert_eq!(place, Place::Itself);
            index != 2
        };
        let mut file = FailedItemsFile::open(&path, None, keep).unwrap();
        add(&mut file, &[4], "c");
        file.finish(true).unwrap();
        let expected = [(1, "a"), (3, "b"), (4, "c")];
        assert_eq!(rows(&path), expected.map(|(i, r)| (i, r.to_owned())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input.csv");
        for text in [
            "id,name\n",
            "no end",
            "{\"index\":-1}\n",
            "{\"index\":1,\"data\":\"\"}\nx\n",
        ] {
            fs::write(&path, text).unwrap();
            let error = FailedItemsFile::open(&path, None, |_, _| true).unwrap_err();
            assert!(
                error.to_string().contains("no row of failed items"),
                "{error}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let nowhere = folder.path().join("no/failed.jsonl");
        assert!(FailedItemsFile::open(&nowhere, None, |_, _| true).is_err());
        let mut full = FailedItemsFile::open(Path::new("/dev/full"), None, |_, _| true).unwrap();
        let item = Item {
            index: 1,
            key: Key::Index,
            data: "x".into(),
        };
        let row = FailedRow {
            item: &item,
            reason: "",
            outcome: "",
            attempts: 1,
        };
        assert!(full.write([row].into_iter()).is_err());
    }

    #[test]
    fn a_run_over_the_file_itself_replaces_it_when_it_is_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("failed.jsonl");
        let mut file = FailedItemsFile::open(&path, None, |_, _| true).unwrap();
        add(&mut file, &[1, 2], "first");
        let keep = |index, place| place == Place::BesideInput && index == 1;
        for (complete, expected) in [(false, "first"), (true, "again")] {
            let mut file = FailedItemsFile::open(&path, Some(&path), keep).unwrap();
            assert_eq!(rows(&path).len(), 2, "it is not touched while it is read");
            add(&mut file, &[1], "again");
            file.finish(complete).unwrap();
            assert_eq!(rows(&path)[0].1, expected);
        }
        assert_eq!(
            rows(&path).len(),
            2,
            "the row of the first run and the last one"
        );
    }
}
