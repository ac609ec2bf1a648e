//! The unpacked bytes of one input, in blocks, without a byte order mark.

use super::decompress::{BoxRead, Compression, is_incomplete, peek, unpack};
use std::io::{self, Read};

/// Bytes a block has at most. Items are slices of such blocks, so that a slow batch keeps one alive.
const BLOCK_BYTES: usize = 64 * 1024;

const UTF8_MARK: &[u8] = &[0xef, 0xbb, 0xbf];
/// UTF-16 and, with two zero bytes more, UTF-32, little end first.
const WIDE_LITTLE: &[u8] = &[0xff, 0xfe];
const WIDE_BIG: &[u8] = &[0xfe, 0xff];
const WIDEST_BIG: &[u8] = &[0, 0, 0xfe, 0xff];

/// The unpacked bytes of one input.
pub struct Text {
    reader: BoxRead,
    block: Box<[u8]>,
    /// Bytes that were looked at for a mark and turned out to be text.
    start: Vec<u8>,
    byte: u64,
    ended: bool,
    compression: Option<Compression>,
}

/// What the first bytes told.
pub struct Opened {
    pub text: Text,
    /// It begins as UTF-16 or UTF-32 do.
    pub wide: bool,
}

impl Text {
    /// The error says what went wrong.
    pub fn open(raw: BoxRead) -> Result<Opened, String> {
        let (mut reader, compression) = unpack(raw).map_err(|error| error.to_string())?;
        let mut start = peek(&mut reader, |start| {
            [UTF8_MARK, WIDE_LITTLE, WIDE_BIG, WIDEST_BIG]
                .iter()
                .any(|mark| is_incomplete(start, mark))
        })
        .map_err(|error| cause(&error, compression))?;
        let wide = [WIDE_LITTLE, WIDE_BIG, WIDEST_BIG].contains(&start.as_slice());
        let mut byte = 0;
        if start == UTF8_MARK {
            byte = start.len() as u64;
            start.clear();
        }
        let text = Text {
            reader,
            block: vec![0; BLOCK_BYTES].into_boxed_slice(),
            start,
            byte,
            ended: false,
            compression,
        };
        Ok(Opened { text, wide })
    }

    /// How the input is packed.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Bytes given so far, the mark included.
    pub fn byte(&self) -> u64 {
        self.byte
    }

    /// Waits for the next bytes and gives them; empty at the end. The error says what went wrong.
    pub fn block(&mut self) -> Result<&[u8], String> {
        let mut length = 0;
        if !self.start.is_empty() {
            length = self.start.len();
            self.block[..length].copy_from_slice(&self.start);
            self.start.clear();
        } else if !self.ended {
            length = read(&mut self.reader, &mut self.block)
                .map_err(|error| cause(&error, self.compression))?;
            self.ended = length == 0;
        }
        self.byte += length as u64;
        Ok(&self.block[..length])
    }
}

fn read(reader: &mut BoxRead, block: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The error for people. A decompressor's own words do not say that the file is damaged.
fn cause(error: &io::Error, compression: Option<Compression>) -> String {
    let packed = match compression {
        Some(Compression::Gzip) => "gzip",
        Some(Compression::Zstd) => "zstd",
        None => return error.to_string(),
    };
    // What the system reports is about the file, everything else about what it holds.
    if error.raw_os_error().is_some() {
        return error.to_string();
    }
    format!("the {packed} data is cut off or damaged ({error})")
}
