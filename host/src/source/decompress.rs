//! Unpacks gzip and zstd while reading.
//!
//! The first bytes decide, not the name: a misnamed file and stdin are unpacked as well. A name that
//! promises a compression which the bytes lack is an error, so that a damaged file is not taken for text.
//! Concatenated gzip members and zstd frames are read through. Memory does not depend on what is unpacked.
//! Damage is found where the checksum behind it is read, so that items just before it may be wrong.

use super::error::SourceError;
use super::format::{GZIP_EXTENSIONS, ZSTD_EXTENSIONS, lower_extension};
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

/// Bytes asked of the file at once.
const READ_BYTES: usize = 64 * 1024;

/// A compression we unpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952, one or more members.
    Gzip,
    /// RFC 8878, one or more frames.
    Zstd,
}

/// A reader that can move to the reading thread.
pub type BoxRead = Box<dyn Read + Send>;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A zstd skippable frame, whose first byte's low half is free.
const ZSTD_SKIPPABLE: &[u8] = &[0x50, 0x2a, 0x4d, 0x18];

/// Unpacks `raw` if its first bytes say that it is packed; says what was found.
pub fn unpack(mut raw: BoxRead) -> io::Result<(BoxRead, Option<Compression>)> {
    let magic = peek(&mut raw, |start| {
        is_incomplete(start, GZIP)
            || is_incomplete(start, ZSTD)
            || is_incomplete(&without_low_half(start), ZSTD_SKIPPABLE)
    })?;
    let found = if magic == GZIP {
        Some(Compression::Gzip)
    } else if magic == ZSTD || without_low_half(&magic) == ZSTD_SKIPPABLE {
        Some(Compression::Zstd)
    } else {
        None
    };
    let whole = Cursor::new(magic).chain(raw);
    let reader: BoxRead = match found {
        None => Box::new(whole),
        Some(Compression::Gzip) => Box::new(flate2::bufread::MultiGzDecoder::new(
            BufReader::with_capacity(READ_BYTES, whole),
        )),
        Some(Compression::Zstd) => Box::new(zstd::stream::read::Decoder::with_buffer(
            BufReader::with_capacity(READ_BYTES, whole),
        )?),
    };
    Ok((reader, found))
}

/// Refuses a file whose name promises a compression that was not found.
pub fn check_name(
    path: Option<&Path>,
    input: &str,
    found: Option<Compression>,
    is_empty: bool,
) -> Result<(), SourceError> {
    let extension = path.and_then(lower_extension).unwrap_or_default();
    let compression = if GZIP_EXTENSIONS.contains(&extension.as_str()) {
        "gzip"
    } else if ZSTD_EXTENSIONS.contains(&extension.as_str()) {
        "zstd"
    } else {
        return Ok(());
    };
    if found.is_some() {
        return Ok(());
    }
    Err(SourceError::NotCompressed {
        input: input.to_owned(),
        extension,
        compression,
        advice: if is_empty {
            "the file is empty; get it again"
        } else {
            "get the file again, or rename it if it is not packed"
        },
    })
}

fn without_low_half(start: &[u8]) -> Vec<u8> {
    let mut start = start.to_vec();
    if let Some(first) = start.first_mut() {
        *first &= 0xf0;
    }
    start
}

/// Whether `start` is a beginning of `magic`, and not yet all of it.
pub fn is_incomplete(start: &[u8], magic: &[u8]) -> bool {
    start.len() < magic.len() && magic.starts_with(start)
}

/// Takes bytes off the front of `reader` as long as it `needs_more` to decide.
///
/// Never reads further than it must: a pipe may hold a single short line for a long time.
pub fn peek(reader: &mut BoxRead, needs_more: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    let mut byte = [0];
    while needs_more(&start) {
        match reader.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => start.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(start)
}
