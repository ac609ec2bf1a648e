//! How an input is cut into items, and how its name tells.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// How the input is cut into items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// By the file's extension, see [`Format::resolve`].
    #[default]
    Auto,
    /// A header, then rows; an item is a JSON object of strings.
    Csv,
    /// A JSON value a line; an item is the line.
    Jsonl,
    /// An item a line, whatever its bytes.
    Lines,
    /// The rows of a `failed_items` file; an item is what it was when it failed.
    Failed,
}

/// Extensions that `auto` refuses: cut at line ends, these files would be sent as garbage.
const NOT_LINES: [&str; 10] = [
    "json", "xlsx", "xls", "ods", "parquet", "zip", "tar", "bz2", "xz", "7z",
];

/// Compressions and their usual extensions.
pub(super) const GZIP_EXTENSIONS: [&str; 2] = ["gz", "gzip"];
pub(super) const ZSTD_EXTENSIONS: [&str; 2] = ["zst", "zstd"];

impl Format {
    /// The format of the file at `path`, and the delimiter if the extension implies one.
    ///
    /// After `.gz` or `.zst`: `.csv`, `.tsv` and `.tab` (delimited by tabs), `.jsonl` and `.ndjson`;
    /// anything else, and stdin (`None`), is lines. The error is an extension that cannot be lines.
    pub(super) fn resolve(self, path: Option<&Path>) -> Result<(Format, Option<u8>), String> {
        if self != Format::Auto {
            return Ok((self, None));
        }
        match path.and_then(unpacked_extension).as_deref() {
            Some("csv") => Ok((Format::Csv, None)),
            Some("tsv" | "tab") => Ok((Format::Csv, Some(b'\t'))),
            Some("jsonl" | "ndjson") => Ok((Format::Jsonl, None)),
            Some(other) if NOT_LINES.contains(&other) => Err(other.to_owned()),
            _ => Ok((Format::Lines, None)),
        }
    }
}

/// The extension in lower case, below that of a compression.
fn unpacked_extension(path: &Path) -> Option<String> {
    let last = lower_extension(path)?;
    if GZIP_EXTENSIONS.contains(&last.as_str()) || ZSTD_EXTENSIONS.contains(&last.as_str()) {
        lower_extension(Path::new(path.file_stem()?))
    } else {
        Some(last)
    }
}

pub(super) fn lower_extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// Reads a `delimiter` setting: one ASCII character, or `\t` or `tab`.
///
/// The error says what is allowed.
pub fn parse_delimiter(text: &str) -> Result<u8, String> {
    let byte = match text {
        "tab" | "\\t" => b'\t',
        _ => match text.as_bytes() {
            [byte] => *byte,
            _ => {
                return Err(format!(
                    "the delimiter {text:?} is not one ASCII character; use for example \",\", \";\", \"|\" or \"tab\""
                ));
            }
        },
    };
    check_delimiter(byte)?;
    Ok(byte)
}

pub(super) fn check_delimiter(byte: u8) -> Result<(), String> {
    if byte.is_ascii() && !matches!(byte, b'"' | b'\r' | b'\n' | 0) {
        Ok(())
    } else {
        Err(format!(
            "the delimiter {:?} cannot separate fields; use for example \",\", \";\", \"|\" or \"tab\"",
            char::from(byte)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_tells_the_format() {
        for (name, expected) in [
            ("a.csv", Ok((Format::Csv, None))),
            ("A.CSV.GZ", Ok((Format::Csv, None))),
            ("a.tsv.zst", Ok((Format::Csv, Some(b'\t')))),
            ("a.jsonl", Ok((Format::Jsonl, None))),
            ("a.b.ndjson.gz", Ok((Format::Jsonl, None))),
            ("a.txt", Ok((Format::Lines, None))),
            ("a.gz", Ok((Format::Lines, None))),
            ("a", Ok((Format::Lines, None))),
            ("csv", Ok((Format::Lines, None))),
            ("a.json", Err("json".to_owned())),
            ("a.xlsx", Err("xlsx".to_owned())),
            ("a.tar.gz", Err("tar".to_owned())),
        ] {
            assert_eq!(
                Format::Auto.resolve(Some(Path::new(name))),
                expected,
                "{name}"
            );
        }
        assert_eq!(Format::Auto.resolve(None), Ok((Format::Lines, None)));
        let given = Format::Jsonl.resolve(Some(Path::new("a.csv")));
        assert_eq!(given, Ok((Format::Jsonl, None)));
    }

    #[test]
    fn a_delimiter_is_one_ascii_character() {
        for (text, expected) in [(",", b','), (";", b';'), ("tab", b'\t'), ("\\t", b'\t')] {
            assert_eq!(parse_delimiter(text), Ok(expected));
        }
        assert_eq!(parse_delimiter("\t"), Ok(b'\t'));
        for text in ["", ",,", "é", "\"", "\n", "\r", "\0", "comma"] {
            assert!(parse_delimiter(text).is_err(), "{text:?}");
        }
    }
}
