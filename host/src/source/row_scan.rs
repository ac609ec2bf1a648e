//! Finds the fields of one CSV row by RFC 4180, and can stop and go on at any byte.
//!
//! It is strict where leniency loses data: behind a closing quote must stand a delimiter, a line end or
//! the end. Lenient parsers take anything there, and so join rows after a quote that was never closed.
//! A quote inside an unquoted field is an ordinary character. A line ends with LF, CRLF or CR.

use memchr::{memchr, memchr2, memchr3};

/// Where a field stands in its row.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Without the quotes around it.
    pub start: usize,
    pub end: usize,
    /// It contains doubled quotes.
    pub doubled: bool,
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan {
    /// A row that ends before `end`; the line end's first byte, if there is one, is there.
    Row { end: usize },
    /// More bytes are needed.
    Unfinished,
    /// Text behind a closing quote, at `at`.
    TextAfterQuote { at: usize },
    /// A quoted field that will not be closed: clear `at` this byte, the line's or the input's end.
    UnclosedQuote { at: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Unquoted,
    Quoted,
    /// Behind a quote in a quoted field: its end, or half of a doubled quote.
    QuoteInQuoted,
}

/// The scan of one row. Positions count from the row's start.
pub struct RowScan {
    delimiter: u8,
    /// Fields beyond this many are counted, not kept.
    keep: usize,
    state: State,
    at: usize,
    field_start: usize,
    doubled: bool,
    fields: Vec<Field>,
    count: usize,
    has_quotes: bool,
}

impl RowScan {
    pub fn new(delimiter: u8, keep: usize) -> RowScan {
        RowScan {
            delimiter,
            keep,
            state: State::FieldStart,
            at: 0,
            field_start: 0,
            doubled: false,
            fields: Vec::new(),
            count: 0,
            has_quotes: false,
        }
    }

    /// Keeps at most this many fields of the rows to come.
    pub fn keep(&mut self, fields: usize) {
        self.keep = fields;
    }

    /// Starts with another row.
    pub fn restart(&mut self) {
        self.state = State::FieldStart;
        self.at = 0;
        self.doubled = false;
        self.fields.clear();
        self.count = 0;
        self.has_quotes = false;
    }

    /// The fields found, as many as are kept.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The number of fields found.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether any field is quoted; only these can contain a line end.
    pub fn has_quotes(&self) -> bool {
        self.has_quotes
    }

    /// Whether the scan stands inside a quoted field.
    pub fn is_quoted(&self) -> bool {
        self.state == State::Quoted
    }

    /// Goes on with `row`, which begins where it did before and may have grown; `is_all`: it will not grow.
    ///
    /// A quote that is open at a line end before `lone_until` counts as never closed.
    pub fn resume(&mut self, row: &[u8], is_all: bool, lone_until: usize) -> Scan {
        loop {
            let rest = &row[self.at..];
            match self.state {
                State::FieldStart => {
                    self.field_start = self.at;
                    self.doubled = false;
                    match rest.first() {
                        None if is_all => return self.row(self.at),
                        None => return Scan::Unfinished,
                        Some(b'"') => {
                            self.at += 1;
                            self.field_start += 1;
                            self.has_quotes = true;
                            self.state = State::Quoted;
                        }
                        Some(_) => self.state = State::Unquoted,
                    }
                }
                State::Unquoted => match memchr3(self.delimiter, b'\n', b'\r', rest) {
                    None => {
                        self.at = row.len();
                        return if is_all {
                            self.row(self.at)
                        } else {
                            Scan::Unfinished
                        };
                    }
                    Some(length) => {
                        let end = self.at + length;
                        if row[end] != self.delimiter {
                            return self.row(end);
                        }
                        self.field(end);
                        self.at = end + 1;
                    }
                },
                State::Quoted => {
                    let quote = memchr(b'"', rest);
                    let open = &rest[..quote.unwrap_or(rest.len())];
                    let lone = lone_until.saturating_sub(self.at).min(open.len());
                    if let Some(length) = memchr2(b'\n', b'\r', &open[..lone]) {
                        let at = self.at + length + 1;
                        return Scan::UnclosedQuote { at };
                    }
                    self.at += open.len();
                    match quote {
                        Some(_) => {
                            self.at += 1;
                            self.state = State::QuoteInQuoted;
                        }
                        None if is_all => return Scan::UnclosedQuote { at: self.at },
                        None => return Scan::Unfinished,
                    }
                }
                State::QuoteInQuoted => match rest.first() {
                    None if is_all => return self.row(self.at - 1),
                    None => return Scan::Unfinished,
                    Some(b'"') => {
                        self.at += 1;
                        self.doubled = true;
                        self.state = State::Quoted;
                    }
                    Some(&byte) if byte == self.delimiter => {
                        self.field(self.at - 1);
                        self.at += 1;
                    }
                    Some(b'\n' | b'\r') => return self.row(self.at - 1),
                    Some(_) => return Scan::TextAfterQuote { at: self.at },
                },
            }
        }
    }

    fn field(&mut self, end: usize) {
        if self.count < self.keep {
            self.fields.push(Field {
                start: self.field_start,
                end,
                doubled: self.doubled,
            });
        }
        self.count += 1;
        self.state = State::FieldStart;
    }

    /// Ends the last field, and with it the row.
    fn row(&mut self, field_end: usize) -> Scan {
        let closing_quote = usize::from(self.state == State::QuoteInQuoted);
        self.field(field_end);
        Scan::Row {
            end: field_end + closing_quote,
        }
    }
}
