//! Why an input cannot be read, or not any further.

/// Why an input cannot be read, or not any further. One line each, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is no such file, or we may not read it.
    #[error("cannot open the input {input}: {cause}")]
    Open {
        /// The input as it was given.
        input: String,
        /// What the system says.
        cause: String,
    },
    /// Reading or unpacking failed midway. Everything before was delivered.
    #[error("{input}: cannot read on after line {line} (byte {byte} unpacked): {cause}")]
    Read {
        /// The input as it was given.
        input: String,
        /// Lines that were read to their end.
        line: u64,
        /// Bytes read so far, after unpacking.
        byte: u64,
        /// What the system or the decompressor says.
        cause: String,
    },
    /// `auto` does not know the extension, and guessing lines would send garbage.
    #[error(
        "{input}: a .{extension} file cannot be cut into items; convert or unpack it, or set `format` (csv, jsonl, lines) if it is one of these"
    )]
    UnknownFormat {
        /// The input as it was given.
        input: String,
        /// Its extension, below that of a compression.
        extension: String,
    },
    /// The name promises a compression that the bytes do not have.
    #[error("{input}: named .{extension}, but the bytes are not {compression}; {advice}")]
    NotCompressed {
        /// The input as it was given.
        input: String,
        /// Its extension.
        extension: String,
        /// What it promises.
        compression: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// The text is UTF-16 or UTF-32.
    #[error(
        "{input}: the text is UTF-16 or UTF-32; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"
    )]
    Utf16 {
        /// The input as it was given.
        input: String,
    },
    /// The delimiter cannot separate fields.
    #[error("delimiter: {cause}")]
    Delimiter {
        /// Why, and what may.
        cause: String,
    },
    /// The CSV header cannot be used.
    #[error("{input}: line {line}: the CSV header cannot be used: {cause}")]
    Header {
        /// The input as it was given.
        input: String,
        /// Where the header starts.
        line: u64,
        /// What is wrong with it.
        cause: String,
    },
    /// `key` names no column.
    #[error("{input}: no column is called {key:?}, which `key` names; the columns are {columns}")]
    KeyColumn {
        /// The input as it was given.
        input: String,
        /// The value of `key`.
        key: String,
        /// The columns there are, the first ones of many.
        columns: String,
    },
    /// Lines have no fields.
    #[error(
        "{input}: `key` is {key:?}, but the format is lines, which have no fields; remove `key` or set `format` (csv, jsonl)"
    )]
    KeyOfLines {
        /// The input as it was given.
        input: String,
        /// The value of `key`.
        key: String,
    },
}
