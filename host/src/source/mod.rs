//! Turns an input, a file or stdin, into items.
//!
//! A source is read by one thread that may block. Items come in the order of the input, from index 0;
//! what is no item is rejected with its line number and takes no index. Memory does not grow with the
//! input: beside the chunk that is given out, one line (`max_item_bytes`) and one block are held.
//!
//! All formats pass over empty lines, and strip a UTF-8 byte order mark.

mod csv;
mod decompress;
mod error;
pub mod failed;
mod format;
mod jsonl;
mod key;
mod line_splitter;
mod lines;
mod progress;
mod rejects;
mod row_scan;
mod text;

#[cfg(test)]
mod tests;

pub use error::SourceError;
pub use format::{Format, parse_delimiter};
pub use progress::Progress;
pub use rejects::{RejectReason, Rejected, RejectsError, RejectsFile};

use crate::item::Item;
use decompress::BoxRead;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use text::{Opened, Text};

/// Where items come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file, plain or packed with gzip or zstd; a pipe is fine.
    Path(PathBuf),
    /// Standard input, packed or not.
    Stdin,
}

impl Input {
    fn path(&self) -> Option<&Path> {
        match self {
            Input::Path(path) => Some(path),
            Input::Stdin => None,
        }
    }

    fn name(&self) -> String {
        match self {
            Input::Path(path) => path.display().to_string(),
            Input::Stdin => "stdin".to_owned(),
        }
    }
}

/// What a job says about its input.
#[derive(Debug, Clone)]
pub struct SourceConfig {
    /// Where the items come from.
    pub input: Input,
    /// How the input is cut into items.
    pub format: Format,
    /// What separates the fields of CSV. Files called `.tsv` are separated by tabs if this is a comma.
    pub delimiter: u8,
    /// The column or field that names an item; `None`: its index does. Rows of failed items have
    /// their own keys.
    pub key: Option<String>,
    /// The longest line, or CSV row, that can become an item.
    pub max_item_bytes: u64,
}

impl SourceConfig {
    /// All that decides where an item begins and ends, in words: with other words, an index may mean
    /// another item.
    pub fn cut(&self) -> String {
        let (format, implied) = self
            .format
            .resolve(self.input.path())
            .unwrap_or((self.format, None));
        let delimiter = match implied {
            Some(implied) if self.delimiter == b',' => implied,
            _ => self.delimiter,
        };
        let limit = self.max_item_bytes;
        match format {
            Format::Csv => format!(
                "csv, delimiter {:?}, max_item_bytes {limit}",
                char::from(delimiter)
            ),
            Format::Jsonl => format!("jsonl, max_item_bytes {limit}"),
            Format::Failed => format!("failed, max_item_bytes {limit}"),
            Format::Auto | Format::Lines => format!("lines, max_item_bytes {limit}"),
        }
    }
}

/// A part of the input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The next items.
    pub items: Vec<Item>,
    /// What was no item.
    pub rejected: Vec<Rejected>,
    /// There is nothing after this.
    pub end: bool,
}

/// Items that a part has space for from the start: growing it step by step costs as much as cutting them.
const USUAL_ITEMS: usize = 1024;

/// An input that is being read.
pub struct Source {
    name: String,
    text: Text,
    parser: Parser,
    progress: Progress,
    next_index: u64,
    /// Once reading has failed it stays failed: a decompressor might go on as if nothing was amiss.
    failure: Option<SourceError>,
    is_all: bool,
}

enum Parser {
    Csv(Box<csv::Csv>),
    Jsonl(jsonl::Jsonl),
    Lines(lines::Lines),
    Failed(failed::Failed),
}

impl Source {
    /// Opens the input, and reads and checks the header if it has one.
    pub fn open(config: &SourceConfig) -> Result<Source, SourceError> {
        let name = config.input.name();
        let failed = |error: io::Error| SourceError::Open {
            input: name.clone(),
            cause: error.to_string(),
        };
        let (reader, total): (BoxRead, _) = match &config.input {
            Input::Stdin => (Box::new(io::stdin()), None),
            Input::Path(path) => {
                let file = File::open(path).map_err(failed)?;
                let facts = file.metadata().map_err(failed)?;
                if facts.is_dir() {
                    return Err(failed(io::ErrorKind::IsADirectory.into()));
                }
                let total = facts.is_file().then_some(facts.len());
                (Box::new(file), total)
            }
        };
        Source::start(reader, total, config)
    }

    /// Reads `reader` as if it were the input that `config` names.
    pub fn from_reader(
        reader: impl io::Read + Send + 'static,
        config: &SourceConfig,
    ) -> Result<Source, SourceError> {
        Source::start(Box::new(reader), None, config)
    }

    fn start(
        reader: BoxRead,
        total: Option<u64>,
        config: &SourceConfig,
    ) -> Result<Source, SourceError> {
        let name = config.input.name();
        let (parser, key) = Parser::new(config, &name)?;
        let progress = Progress::new(total);
        let Opened { text, wide } =
            Text::open(progress.count(reader)).map_err(|cause| SourceError::Read {
                input: name.clone(),
                line: 0,
                byte: 0,
                cause,
            })?;
        let is_empty = progress.read() == 0;
        decompress::check_name(config.input.path(), &name, text.compression(), is_empty)?;
        if wide {
            return Err(SourceError::Utf16 { input: name });
        }
        let mut source = Source {
            name,
            text,
            parser,
            progress,
            next_index: 0,
            failure: None,
            is_all: false,
        };
        source.read_header(key)?;
        Ok(source)
    }

    /// The columns of a CSV that is not empty.
    pub fn header(&self) -> Option<&[String]> {
        match &self.parser {
            Parser::Csv(csv) => csv.columns(),
            _ => None,
        }
    }

    /// How much of the input has been read; may be given to another thread.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The next part of the input: at most `max_items` items and rejected lines together, and no more
    /// once the items have `max_bytes` (so at most one item above it).
    ///
    /// Waits for input only while it has nothing to give, so that a slow pipe delays nothing. After
    /// the end it gives empty chunks, after an error the same error.
    pub fn read(&mut self, max_items: usize, max_bytes: u64) -> Result<Chunk, SourceError> {
        let mut chunk = Chunk {
            items: Vec::with_capacity(max_items.min(USUAL_ITEMS)),
            ..Chunk::default()
        };
        let mut bytes = 0;
        let mut count = 0;
        while count < max_items.max(1) && bytes < max_bytes.max(1) {
            match self.parser.next_item(self.next_index) {
                Some(Ok(item)) => {
                    self.next_index += 1;
                    bytes += item.data.len() as u64;
                    chunk.items.push(item);
                }
                Some(Err(rejected)) => chunk.rejected.push(rejected),
                None if self.is_all => {
                    chunk.end = true;
                    break;
                }
                None if count > 0 => break,
                None => {
                    self.feed()?;
                    continue;
                }
            }
            count += 1;
        }
        Ok(chunk)
    }

    fn read_header(&mut self, key: Option<&str>) -> Result<(), SourceError> {
        loop {
            let Parser::Csv(csv) = &mut self.parser else {
                return Ok(());
            };
            let is_read = csv
                .read_header()
                .map_err(|(line, cause)| SourceError::Header {
                    input: self.name.clone(),
                    line,
                    cause,
                })?;
            if is_read && let Some(key) = key {
                csv.set_key(key).map_err(|columns| SourceError::KeyColumn {
                    input: self.name.clone(),
                    key: key.to_owned(),
                    columns,
                })?;
            }
            // Without a header there are no rows either: an empty input, which is fine.
            if is_read || self.is_all {
                return Ok(());
            }
            self.feed()?;
        }
    }

    /// Waits for more bytes, or the end, and gives them to the parser.
    fn feed(&mut self) -> Result<(), SourceError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let byte = self.text.byte();
        match self.text.block() {
            Ok([]) => {
                self.is_all = true;
                self.parser.end();
                Ok(())
            }
            Ok(block) => {
                self.parser.feed(block);
                Ok(())
            }
            Err(cause) => {
                let failure = SourceError::Read {
                    input: self.name.clone(),
                    line: self.parser.lines(),
                    byte,
                    cause,
                };
                self.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }
}

impl Parser {
    /// The parser for the input, and the key column still to be found in a header.
    fn new<'a>(
        config: &'a SourceConfig,
        name: &str,
    ) -> Result<(Parser, Option<&'a str>), SourceError> {
        let (format, implied) =
            config
                .format
                .resolve(config.input.path())
                .map_err(|extension| SourceError::UnknownFormat {
                    input: name.to_owned(),
                    extension,
                })?;
        let key = config.key.as_deref();
        let splitter = || line_splitter::LineSplitter::new(config.max_item_bytes);
        let parser = match (format, key) {
            (Format::Csv, _) => {
                let delimiter = match implied {
                    Some(implied) if config.delimiter == b',' => implied,
                    _ => config.delimiter,
                };
                format::check_delimiter(delimiter)
                    .map_err(|cause| SourceError::Delimiter { cause })?;
                Parser::Csv(Box::new(csv::Csv::new(delimiter, config.max_item_bytes)))
            }
            (Format::Jsonl, _) => Parser::Jsonl(jsonl::Jsonl {
                splitter: splitter(),
                key: key.map(|key| key::KeyField(key.into())),
            }),
            (Format::Failed, _) => Parser::Failed(failed::Failed::new(config.max_item_bytes)),
            (Format::Auto | Format::Lines, Some(key)) => {
                return Err(SourceError::KeyOfLines {
                    input: name.to_owned(),
                    key: key.to_owned(),
                });
            }
            (Format::Auto | Format::Lines, None) => Parser::Lines(lines::Lines {
                splitter: splitter(),
            }),
        };
        Ok((parser, key))
    }

    fn feed(&mut self, bytes: &[u8]) {
        match self {
            Parser::Csv(csv) => csv.feed(bytes),
            Parser::Jsonl(jsonl) => jsonl.splitter.feed(bytes),
            Parser::Lines(lines) => lines.splitter.feed(bytes),
            Parser::Failed(failed) => failed.splitter.feed(bytes),
        }
    }

    fn end(&mut self) {
        match self {
            Parser::Csv(csv) => csv.end(),
            Parser::Jsonl(jsonl) => jsonl.splitter.end(),
            Parser::Lines(lines) => lines.splitter.end(),
            Parser::Failed(failed) => failed.splitter.end(),
        }
    }

    fn next_item(&mut self, index: u64) -> Option<Result<Item, Rejected>> {
        match self {
            Parser::Csv(csv) => csv.next_item(index),
            Parser::Jsonl(jsonl) => jsonl.next_item(index),
            Parser::Lines(lines) => lines.next_item(index),
            Parser::Failed(failed) => failed.next_item(),
        }
    }

    fn lines(&self) -> u64 {
        match self {
            Parser::Csv(csv) => csv.lines(),
            Parser::Jsonl(jsonl) => jsonl.splitter.lines(),
            Parser::Lines(lines) => lines.splitter.lines(),
            Parser::Failed(failed) => failed.splitter.lines(),
        }
    }
}
