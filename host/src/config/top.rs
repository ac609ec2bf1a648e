//! The keys above all tables: what is run, on what input.

use std::path::PathBuf;

use super::kind::{FilePath, Kind, Optional, Own, Required, Text, Word, words};
use super::raw::Raw;
use super::size::GUEST_SIZE;
use super::table::table;
use crate::source::{Format, Input, SourceConfig, parse_delimiter};

table! {
    /// What to run, and on what input. These keys stand at the top of the file, before its
    /// first table.
    Top = "";
    /// Prefix of the job's log lines, and its name in the stores.
    label: String = "batches".to_owned(), Text, one_job;
    /// The WebAssembly component that is sent the batches.
    component: PathBuf = PathBuf::new(), Required(FilePath);
    /// The file with the items; `-` is standard input. Files packed with gzip (`.gz`) or
    /// zstd (`.zst`) are unpacked.
    input: Input = Input::Stdin, Required(InputFile), one_job;
    /// What the input holds; `auto` goes by the file's extension, and takes standard input as
    /// lines.
    format: Format = Format::Auto, Word::<Format>::of();
    /// What separates the fields of a CSV file; in a file called `.tsv` a comma means a tab.
    delimiter: u8 = b',', DELIMITER;
    /// The field of a CSV row or JSON line that names the item; none: its position.
    key: Option<String> = None, Optional(Text);
    /// A longer line or row is rejected.
    max_item_bytes: u64 = 16 << 20, GUEST_SIZE;
    /// Where rejected lines are appended, as CSV with the columns `line,reason,text`.
    rejects_csv: Option<PathBuf> = None, Optional(FilePath), one_job;
    /// Where the summary is written as well, as JSON.
    summary: Option<PathBuf> = None, Optional(FilePath), one_job;
}

words! {
    Format { Auto = "auto", Csv = "csv", Jsonl = "jsonl", Lines = "lines", Failed = "failed", }
}

struct InputFile;

impl Kind for InputFile {
    type Value = Input;

    fn parse(&self, raw: &Raw) -> Result<Input, String> {
        match raw.text() {
            Some("-") => Ok(Input::Stdin),
            _ => match FilePath::resolve(raw) {
                Some(path) => Ok(Input::Path(path)),
                None => Err(raw.refuse(&self.expects())),
            },
        }
    }

    fn expects(&self) -> String {
        "a path, or \"-\" for standard input".to_owned()
    }

    fn show(&self, input: &Input) -> String {
        match input {
            Input::Stdin => "\"-\"".to_owned(),
            Input::Path(path) => FilePath.show(path),
        }
    }

    fn placeholder(&self) -> &'static str {
        FilePath.placeholder()
    }
}

const DELIMITER: Own<u8> = Own {
    expects: "one ASCII character that is no quote and no line end, or \"tab\"",
    placeholder: "CHARACTER",
    parse: |raw| parse_delimiter(raw.text()?).ok(),
    show: |byte| format!("{:?}", char::from(*byte).to_string()),
};

impl Top {
    /// What the job says about its input.
    pub fn source_config(&self) -> SourceConfig {
        SourceConfig {
            input: self.input.clone(),
            format: self.format,
            delimiter: self.delimiter,
            key: self.key.clone(),
            max_item_bytes: self.max_item_bytes,
        }
    }
}
