use super::*;
use crate::item::Key;
use proptest::prelude::*;
use std::io::{Read, Write};

fn config(format: Format) -> SourceConfig {
    SourceConfig {
        input: Input::Stdin,
        format,
        delimiter: b',',
        key: None,
        max_item_bytes: 1 << 20,
    }
}

fn keyed(format: Format, key: &str) -> SourceConfig {
    SourceConfig {
        key: Some(key.to_owned()),
        ..config(format)
    }
}

fn limited(format: Format, max_item_bytes: u64) -> SourceConfig {
    SourceConfig {
        max_item_bytes,
        ..config(format)
    }
}

fn at(path: &Path) -> SourceConfig {
    SourceConfig {
        input: Input::Path(path.to_owned()),
        ..config(Format::Auto)
    }
}

/// Gives a few bytes at a time.
struct Drip(io::Cursor<Vec<u8>>, usize);

impl Read for Drip {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = into.len().min(self.1);
        self.0.read(&mut into[..length])
    }
}

fn drip(bytes: &[u8], step: usize) -> Drip {
    Drip(io::Cursor::new(bytes.to_vec()), step)
}

fn drain(source: &mut Source) -> Result<Chunk, Box<(Chunk, SourceError)>> {
    let mut all = Chunk::default();
    while !all.end {
        match source.read(3, 1000) {
            Ok(chunk) => {
                assert!(chunk.end || !chunk.items.is_empty() || !chunk.rejected.is_empty());
                all.items.extend(chunk.items);
                all.rejected.extend(chunk.rejected);
                all.end = chunk.end;
            }
            Err(error) => return Err(Box::new((all, error))),
        }
    }
    Ok(all)
}

/// Reads it all, and makes sure that it does not matter where the reader cuts the bytes.
fn read(bytes: &[u8], config: &SourceConfig) -> Chunk {
    let whole = drain(&mut Source::from_reader(drip(bytes, usize::MAX), config).unwrap()).unwrap();
    for step in [1, 2, 7, 64] {
        let mut source = Source::from_reader(drip(bytes, step), config).unwrap();
        assert_eq!(drain(&mut source).unwrap(), whole, "{step} bytes at a time");
    }
    for (index, item) in whole.items.iter().enumerate() {
        assert!(config.format == Format::Failed || item.index == index as u64);
    }
    whole
}

fn open_error(bytes: &[u8], config: &SourceConfig) -> String {
    match Source::from_reader(drip(bytes, 5), config) {
        Ok(_) => panic!("opened"),
        Err(error) => one_line(&error),
    }
}

fn one_line(error: &SourceError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

fn datas(chunk: &Chunk) -> Vec<String> {
    let text = |item: &Item| String::from_utf8_lossy(&item.data).into_owned();
    chunk.items.iter().map(text).collect()
}

fn rejects(chunk: &Chunk) -> Vec<String> {
    chunk.rejected.iter().map(|r| r.to_string()).collect()
}

/// For each input what becomes an item, and what is rejected.
fn check(config: &SourceConfig, cases: &[(&[u8], &[&str], &[&str])]) {
    for (bytes, items, rejected) in cases {
        let chunk = read(bytes, config);
        let input = String::from_utf8_lossy(bytes);
        assert_eq!(datas(&chunk), *items, "{input:?}");
        assert_eq!(rejects(&chunk), *rejected, "{input:?}");
    }
}

#[test]
fn csv_rows_become_objects() {
    check(
        &config(Format::Csv),
        &[
            (b"", &[], &[]),
            (b"\n\r\n", &[], &[]),
            (b"a,b", &[], &[]),
            (b"a,b\n", &[], &[]),
            (b"a,b\n1,2", &[r#"{"a":"1","b":"2"}"#], &[]),
            (
                b"\xef\xbb\xbfa,b\r\n1,2\r\n",
                &[r#"{"a":"1","b":"2"}"#],
                &[],
            ),
            (b"\xef\xbb\xbf\"a\"\n1\n", &[r#"{"a":"1"}"#], &[]),
            (
                b"a,b\r1,2\r3,4\r",
                &[r#"{"a":"1","b":"2"}"#, r#"{"a":"3","b":"4"}"#],
                &[],
            ),
            (b"b,a\n,\n", &[r#"{"b":"","a":""}"#], &[]),
            (b"a,b\n\n\r\n1,2\n\n", &[r#"{"a":"1","b":"2"}"#], &[]),
            (
                b"a,b\n\"x,\"\"y\"\"\r\nz\",\"\"\n",
                &["{\"a\":\"x,\\\"y\\\"\\r\\nz\",\"b\":\"\"}"],
                &[],
            ),
            (
                "\"ä \"\"q\"\"\",b\\c\n5\" pipe,\u{1}\u{7f}é😀\\\n".as_bytes(),
                &["{\"ä \\\"q\\\"\":\"5\\\" pipe\",\"b\\\\c\":\"\\u0001\u{7f}é😀\\\\\"}"],
                &[],
            ),
            (
                b"a\n\"\"\n \n\"1\"",
                &[r#"{"a":""}"#, r#"{"a":" "}"#, r#"{"a":"1"}"#],
                &[],
            ),
        ],
    );
    let tabs = SourceConfig {
        delimiter: b'\t',
        ..config(Format::Csv)
    };
    check(
        &tabs,
        &[(
            b"a\tb\n1,2\t\"3\t4\"\n",
            &[r#"{"a":"1,2","b":"3\t4"}"#],
            &[],
        )],
    );
}

#[test]
fn bad_csv_rows_are_rejected_by_line_and_the_rest_goes_on() {
    let good = r#"{"a":"1","b":"2"}"#;
    check(
        &config(Format::Csv),
        &[
            (
                b"a,b\n1\n1,2\n1,2,3\n1,2\n",
                &[good, good],
                &[
                    "line 2: fields: 1, but the header has 2",
                    "line 4: fields: 3, but the header has 2",
                ],
            ),
            (
                b"a,b\n\"x\ny\r\nz\",2\r\n\r\n,,\r\n",
                &["{\"a\":\"x\\ny\\r\\nz\",\"b\":\"2\"}"],
                &["line 6: fields: 3, but the header has 2"],
            ),
            (
                b"a,b\n1,\xff\n1,2\n",
                &[good],
                &["line 2: not valid UTF-8 at byte 3"],
            ),
            (
                b"a,b\n1,\xc3\n1,2\n",
                &[good],
                &["line 2: not valid UTF-8 at byte 3"],
            ),
            (
                b"a,b\n\"x\"y,2\n1,2\n",
                &[good],
                &[
                    "line 2: text after the closing quote of field 1; quotes inside a quoted field are doubled",
                ],
            ),
            // Open to the end of the input: only its own line is lost.
            (
                b"a,b\n1,\"x\n1,2\n1,2\n",
                &[good, good],
                &["line 2: the quote that opens field 2 is never closed"],
            ),
            // A later quote closes it by accident, which text behind that one gives away.
            (
                b"a,b\n1,\"x\n1,2\n1,\"2\"\n1,2",
                &[good, good, good],
                &[
                    "line 2: text after the closing quote of field 2; quotes inside a quoted field are doubled",
                ],
            ),
            // Several of them, with an accident each.
            (
                b"a,b\n1,\"x\n1,\"y\n1,2\n\"1\",2\n",
                &[good, good],
                &[
                    "line 2: text after the closing quote of field 2; quotes inside a quoted field are doubled",
                    "line 3: text after the closing quote of field 2; quotes inside a quoted field are doubled",
                ],
            ),
            // A quoted field that is as it should be, just before the end of a bad one's reach.
            (
                b"a,b\n1,\"x\n\"1\",2\n\"\n1\",2\n",
                &[good, "{\"a\":\"\\n1\",\"b\":\"2\"}"],
                &[
                    "line 2: text after the closing quote of field 2; quotes inside a quoted field are doubled",
                ],
            ),
        ],
    );
    let chunk = read(b"a,b\r\n1,\"x\r\n1,2\r\n", &config(Format::Csv));
    assert_eq!(&*chunk.rejected[0].text, b"1,\"x");
    // The whole line is kept, not only what was scanned.
    let chunk = read(b"a,b\n1,\"x\"yz,w\n", &config(Format::Csv));
    assert_eq!(&*chunk.rejected[0].text, b"1,\"x\"yz,w");
    let chunk = read(b"a,b\n1,caf\xe9\n", &config(Format::Csv));
    assert_eq!(chunk.rejected[0].safe_text(), "1,caf\u{fffd}");
}

#[test]
fn csv_rows_above_the_limit_are_rejected() {
    let config = limited(Format::Csv, 8);
    let long = "x".repeat(200_000);
    check(
        &config,
        &[
            (
                b"a,b\n1,345678\n1,345678\r\n1,3456789\n1,2",
                &[
                    r#"{"a":"1","b":"345678"}"#,
                    r#"{"a":"1","b":"345678"}"#,
                    r#"{"a":"1","b":"2"}"#,
                ],
                &["line 4: longer than 8 bytes (max_item_bytes)"],
            ),
            (
                format!("a,b\n1,{long}\r\n1,\"{long}\"\n1,2\n").as_bytes(),
                &[r#"{"a":"1","b":"2"}"#],
                &[
                    "line 2: longer than 8 bytes (max_item_bytes)",
                    "line 3: longer than 8 bytes (max_item_bytes)",
                ],
            ),
            // A quote that stays open up to the limit.
            (
                b"a,b\n1,\"x\n1,2\n1,2\n1,2\n",
                &[r#"{"a":"1","b":"2"}"#; 3],
                &["line 2: the quote that opens field 2 is never closed"],
            ),
            // Closed in time, but too long behind it.
            (
                b"a,b\n\"1\n2\",3456789\n1,2\n1\n",
                &[r#"{"a":"1","b":"2"}"#],
                &[
                    "line 2: longer than 8 bytes (max_item_bytes)",
                    "line 5: fields: 1, but the header has 2",
                ],
            ),
            (
                b"a,b\n1,2345678901234",
                &[],
                &["line 2: longer than 8 bytes (max_item_bytes)"],
            ),
            // Closed beyond it: its inner lines are no rows, wherever the limit falls.
            (
                b"a,b\n1,\"x\nx,y\nx,y\nx,y\n\"\n1,2\n\"12345678901\nx,y\",\"z\n\"\n1,2\n1\n",
                &[r#"{"a":"1","b":"2"}"#; 2],
                &[
                    "line 2: longer than 8 bytes (max_item_bytes)",
                    "line 8: longer than 8 bytes (max_item_bytes)",
                    "line 12: fields: 1, but the header has 2",
                ],
            ),
        ],
    );
}

/// Wherever the limit falls in a row (in a quote, behind half of a doubled one, before a field with line ends), the rest of
/// it is none.
#[test]
fn nothing_of_a_csv_row_above_the_limit_is_a_row() {
    let long = "\"a\"\"\nb\"\"\",ccccc,\"d\n\"\"e,f,g\n\"";
    let csv = format!("k,l,m\n{long}\n1,2,3\n");
    for limit in 5..long.len() as u64 {
        let chunk = read(csv.as_bytes(), &limited(Format::Csv, limit));
        assert_eq!(chunk.items.len(), 1, "{limit}: {chunk:?}");
        let rejected: Vec<_> = chunk.rejected.iter().map(ToString::to_string).collect();
        let expected = format!("line 2: longer than {limit} bytes (max_item_bytes)");
        assert_eq!(rejected, [expected]);
    }
    let chunk = read(csv.as_bytes(), &limited(Format::Csv, long.len() as u64));
    assert_eq!((chunk.items.len(), chunk.rejected.len()), (2, 0));
}

/// Without care, each of these lines would be scanned up to the limit, which takes minutes.
#[test]
fn many_open_quotes_cost_about_what_as_many_rows_do() {
    let lines = 200_000;
    let time = |line: &str, items| {
        let bytes = format!("a,b\n{}", line.repeat(lines));
        let config = limited(Format::Csv, 16 << 20);
        let mut source = Source::from_reader(io::Cursor::new(bytes), &config).unwrap();
        let started = std::time::Instant::now();
        let chunk = drain(&mut source).unwrap();
        assert_eq!(chunk.items.len(), items);
        assert_eq!(chunk.rejected.len(), lines - items);
        (started.elapsed(), chunk.rejected.last().map(|r| r.line))
    };
    let (rows, _) = time("xx,yy\n", lines);
    let (open, last) = time("x\",\"y\n", 0);
    assert_eq!(last, Some(lines as u64 + 1));
    assert!(open < rows * 50, "{open:?} against {rows:?}");
}

#[test]
fn a_csv_header_must_name_its_columns() {
    for (bytes, expected) in [
        (
            &b"a,b,a\n"[..],
            "line 1: the CSV header cannot be used: columns 1 and 3 are both called \"a\"; rename one",
        ),
        (
            b"\n\na,,c\n1,2,3\n",
            "line 3: the CSV header cannot be used: column 2 has no name",
        ),
        (b"a, ,c\n", "column 2 has no name"),
        (b"a,b,\n", "column 3 has no name"),
        (
            b"a,\xe4\n",
            "not valid UTF-8 at byte 3; convert the file to UTF-8",
        ),
        (
            b"a,\"b\n1,2\n",
            "the quote that opens field 2 is never closed",
        ),
        (b"\"a\"b,c\n", "text after the closing quote of field 1"),
        (
            &b"x".repeat(2 << 20),
            "longer than 1048576 bytes (max_item_bytes)",
        ),
        (&b"x,".repeat(100_000), "it has more than 65536 columns"),
    ] {
        let error = open_error(bytes, &config(Format::Csv));
        assert!(
            error.starts_with("stdin: line ") && error.contains(expected),
            "{error}"
        );
    }
    let source = Source::from_reader(drip(b"a,\"b\nc\"\n1,2\n", 1), &config(Format::Csv)).unwrap();
    assert_eq!(source.header().unwrap(), ["a", "b\nc"]);
    let source = Source::from_reader(drip(b"", 1), &config(Format::Csv)).unwrap();
    assert_eq!(source.header(), None);
}

#[test]
fn the_key_column_names_items() {
    let chunk = read(b"a,id\n1,\"x\"\"y\"\n2,\n", &keyed(Format::Csv, "id"));
    let keys: Vec<_> = chunk.items.iter().map(|i| i.key.clone()).collect();
    assert_eq!(keys, [Key::Text("x\"y".into()), Key::Text("".into())]);
    assert_eq!(
        read(b"a\n1\n", &config(Format::Csv)).items[0].key,
        Key::Index
    );
    assert_eq!(read(b"", &keyed(Format::Csv, "id")).items, []);

    let error = open_error(b"a,b\n1,2\n", &keyed(Format::Csv, "id"));
    assert_eq!(
        error,
        r#"stdin: no column is called "id", which `key` names; the columns are "a", "b""#
    );
    let error = open_error(b"id;name\n1;2\n", &keyed(Format::Csv, "id"));
    assert!(
        error.ends_with(r#""id;name"; if ';' separates the fields, set `delimiter`"#),
        "{error}"
    );
    let many: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
    let error = open_error(many.join(",").as_bytes(), &keyed(Format::Csv, "id"));
    assert!(
        error.ends_with("… (1000 in all)") && error.len() < 300,
        "{error}"
    );
    let error = open_error(b"a\n", &keyed(Format::Lines, "id"));
    assert!(error.contains("the format is lines"), "{error}");
}

#[test]
fn a_delimiter_that_cannot_be_one_is_refused() {
    for delimiter in [b'"', b'\n', b'\r', 0, 0xe4] {
        let config = SourceConfig {
            delimiter,
            ..config(Format::Csv)
        };
        assert!(open_error(b"a\n", &config).starts_with("delimiter: "));
    }
}

#[test]
fn json_lines_are_checked_and_kept_as_they_are() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let (deepest, too_deep, endless) = (deep(127), deep(128), "[".repeat(500_000));
    let brackets_in_text = format!("\"\\\"{}\"", "[".repeat(1000));
    check(
        &config(Format::Jsonl),
        &[
            (b"", &[], &[]),
            (
                b"\xef\xbb\xbf{\"a\": 1 , \"a\":2}\r\n\n \t\r\n[1e999]\n\"x\"\n  null \n-0",
                &["{\"a\": 1 , \"a\":2}", "[1e999]", "\"x\"", "  null ", "-0"],
                &[],
            ),
            (
                b"1\n{a}\n2\n{\"a\":\n\"b\xff\"\n1 2\nNaN\n\"\\x\"\n3",
                &["1", "2", "3"],
                &[
                    "line 2: not JSON: key must be a string at byte 2",
                    "line 4: not JSON: EOF while parsing a value at byte 5",
                    "line 5: not valid UTF-8 at byte 3",
                    "line 6: not JSON: trailing characters at byte 3",
                    "line 7: not JSON: expected value at byte 1",
                    "line 8: not JSON: invalid escape at byte 3",
                ],
            ),
            (
                format!("{deepest}\n{too_deep}\n{endless}\n{brackets_in_text}").as_bytes(),
                &[&deepest, &brackets_in_text],
                &[
                    "line 2: JSON nested deeper than 127 levels",
                    "line 3: not JSON: EOF while parsing a list at byte 500000",
                ],
            ),
        ],
    );
}

#[test]
fn the_key_field_names_json_items() {
    for (line, key) in [
        (r#"{"id":"a"}"#, "a"),
        (r#" { "x" : {"id":1}, "id" : "a\"\u00e9\n" } "#, "a\"é\n"),
        (r#"{"\u0069d":true}"#, "true"),
        (r#"{"id":false}"#, "false"),
        (r#"{"id":1.50}"#, "1.50"),
        (
            r#"{"id":-123456789012345678901234567890}"#,
            "-123456789012345678901234567890",
        ),
        (r#"{"id":1,"id":"last"}"#, "last"),
        (r#"{"id":""}"#, ""),
    ] {
        let chunk = read(line.as_bytes(), &keyed(Format::Jsonl, "id"));
        assert_eq!(chunk.items[0].key, Key::Text(key.into()), "{line}");
        assert_eq!(chunk.items[0].data, line, "{line}");
    }
    for (line, reason) in [
        ("{}", "no field \"id\", which `key` names"),
        (r#"{"ID":1}"#, "no field"),
        (r#"["id"]"#, "no field"),
        ("\"id\"", "no field"),
        (r#"{"id":null}"#, "is null, not"),
        (r#"{"id":[1]}"#, "is an array"),
        (r#"{"id":{}}"#, "is an object"),
        (r#"{"id":"\ud800"}"#, "half a surrogate"),
        (r#"{"id":1"#, "not JSON"),
        (r#"{"id":1}}"#, "not JSON: trailing"),
        ("[1", "not JSON"),
    ] {
        let chunk = read(line.as_bytes(), &keyed(Format::Jsonl, "id"));
        assert_eq!(chunk.items, [], "{line}");
        let found = chunk.rejected[0].to_string();
        assert!(
            found.starts_with("line 1: ") && found.contains(reason),
            "{found}"
        );
    }
    let deep = format!("{{\"id\":{}", "{\"id\":".repeat(200_000));
    let chunk = read(deep.as_bytes(), &keyed(Format::Jsonl, "id"));
    assert_eq!(chunk.rejected.len(), 1);
}

#[test]
fn lines_are_kept_whatever_their_bytes() {
    let long = "x".repeat(300_000);
    check(
        &config(Format::Lines),
        &[
            (b"", &[], &[]),
            (b"\n\n\r\n", &[], &[]),
            (
                b"a\r\n\nb\rc\n d \n\x00\ne\r",
                &["a", "b\rc", " d ", "\0", "e\r"],
                &[],
            ),
            (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", &["a", "\u{feff}b"], &[]),
            (b"\xef\xbb\n", &["\u{fffd}"], &[]),
            (format!("{long}\n{long}").as_bytes(), &[&long, &long], &[]),
        ],
    );
    assert_eq!(
        read(b"\xff\n", &config(Format::Lines)).items[0].data,
        &b"\xff"[..]
    );
    let too_long = "longer than 4 bytes (max_item_bytes)";
    check(
        &limited(Format::Lines, 4),
        &[(
            format!("1234\r\n12345\n1234\n{long}\n\n12345\r\n1\n12345").as_bytes(),
            &["1234", "1234", "1"],
            &[
                &format!("line 2: {too_long}"),
                &format!("line 4: {too_long}"),
                &format!("line 6: {too_long}"),
                &format!("line 8: {too_long}"),
            ],
        )],
    );
}

/// Endless lines from a reader that would fill any memory.
#[test]
fn a_huge_line_is_passed_over_in_little_memory() {
    for (format, start, expected) in [
        (Format::Lines, "", "1"),
        (Format::Jsonl, "", "1"),
        (Format::Csv, "a\n", r#"{"a":"1"}"#),
        (Format::Csv, "a\n\"", r#"{"a":"1"}"#),
    ] {
        let huge = io::repeat(b'x').take(300 << 20);
        let input = start.as_bytes().chain(huge).chain(&b"\n1\n"[..]);
        let mut source = Source::from_reader(input, &limited(format, 1 << 20)).unwrap();
        let before = resident();
        let chunk = drain(&mut source).unwrap();
        // Other tests run beside this one.
        assert!(resident() < before + (150 << 20), "{format:?}");
        assert_eq!(datas(&chunk), [expected]);
        let line = start.lines().next().map_or(1, |_| 2);
        assert_eq!(chunk.rejected[0].line, line);
        assert_eq!(chunk.rejected[0].text.len(), 200);
    }
}

fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn failed_items_come_back_as_they_were() {
    let items = [
        (7, Key::Text("k\"é".into()), &b"{\"a\":1}"[..]),
        (3, Key::Index, b"\xff\x00\n"),
        (1 << 40, Key::Text("".into()), b""),
        (4, Key::Text("5".into()), "tab\t\u{1}é😀\u{2028}".as_bytes()),
    ]
    .map(|(index, key, data)| Item {
        index,
        key,
        data: data.into(),
    });
    let mut file = Vec::new();
    for item in &items {
        let row = failed::FailedRow {
            item,
            reason: "two\nlines",
            outcome: "failed",
            attempts: 2,
        };
        failed::write_row(&mut file, &row).unwrap();
    }
    let text = String::from_utf8(file.clone()).unwrap();
    let first = r#"{"index":7,"key":"k\"é","data":"{\"a\":1}","reason":"two\nlines","outcome":"failed","attempts":2}"#;
    assert_eq!(text.lines().next(), Some(first));
    assert_eq!(
        text.lines().nth(1).unwrap().split(',').nth(2),
        Some("\"data_base64\":\"/wAK\"")
    );
    // The job keeps its `key`, which is about the original input.
    let chunk = read(&file, &keyed(Format::Failed, "id"));
    assert_eq!(chunk.items, items);
    assert_eq!(chunk.rejected, []);
}

#[test]
fn an_item_of_the_greatest_length_fits_a_row() {
    let limit = 1 << 20;
    let mut csv = b"a\n".to_vec();
    csv.extend(vec![1; limit]);
    let item = &read(
        &csv,
        &SourceConfig {
            max_item_bytes: limit as u64,
            ..keyed(Format::Csv, "a")
        },
    )
    .items[0];
    let mut row = Vec::new();
    failed::write_row(
        &mut row,
        &failed::FailedRow {
            item,
            reason: "",
            outcome: "failed",
            attempts: 1,
        },
    )
    .unwrap();
    let again = read(&row, &limited(Format::Failed, limit as u64));
    assert_eq!(&again.items[0], item);
}

#[test]
fn bad_rows_of_failed_items_are_rejected() {
    for (row, reason) in [
        ("x", "expected value at byte 1"),
        ("[]", "not a row of failed items"),
        (r#"{"data":"a"}"#, "missing field `index`"),
        (r#"{"index":-1,"data":"a"}"#, "integer `-1`"),
        (r#"{"index":1.5,"data":"a"}"#, "1.5"),
        (
            r#"{"index":9223372036854775808,"data":"a"}"#,
            "above 9223372036854775807",
        ),
        (r#"{"index":1}"#, "neither `data` nor `data_base64`"),
        (r#"{"index":1,"data":"a","data_base64":"YQ=="}"#, "both"),
        (r#"{"index":1,"data_base64":"Y"}"#, "data_base64: "),
        (r#"{"index":1,"data":7}"#, "expected a string"),
        (r#"{"index":1,"key":7,"data":""}"#, "expected a string"),
        (r#"{"index":0,"data":"again"}"#, "item 0 has been read"),
    ] {
        let text =
            format!("{{\"index\":0,\"data\":\"a\"}}\n\n{row}\n{{\"index\":64,\"data\":\"b\"}}");
        let chunk = read(text.as_bytes(), &config(Format::Failed));
        assert_eq!(datas(&chunk), ["a", "b"], "{row}");
        let found = chunk.rejected[0].to_string();
        assert!(
            found.starts_with("line 3: ") && found.contains(reason),
            "{row}: {found}"
        );
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut packer = ::zstd::Encoder::new(Vec::new(), 1).unwrap();
    packer.include_checksum(true).unwrap();
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

#[test]
fn packed_input_is_unpacked_whatever_its_name() {
    let skippable = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc";
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("a.csv", b"a\n1\n2\n".to_vec()),
        ("a.csv.gz", gzip(b"a\n1\n2\n")),
        (
            "a.CSV.GZ",
            [gzip(b"a\n1"), gzip(b""), gzip(b"\n2\n")].concat(),
        ),
        ("a.csv.zst", [zstd(b"a\n1"), zstd(b"\n2\n")].concat()),
        (
            "b.csv.zst",
            [skippable.to_vec(), zstd(b"\xef\xbb\xbfa\n1\n2\n")].concat(),
        ),
        ("b.csv", gzip(b"a\n1\n2\n")),
        ("b.csv.gz", zstd(b"a\n1\n2\n")),
        ("a.tsv.gz", gzip(b"a\n1\n2\n")),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let mut source = Source::open(&at(&path)).unwrap();
        let chunk = drain(&mut source).unwrap();
        assert_eq!(datas(&chunk), [r#"{"a":"1"}"#, r#"{"a":"2"}"#], "{name}");
        let progress = source.progress();
        assert_eq!(progress.total(), Some(bytes.len() as u64));
        assert_eq!(progress.read(), bytes.len() as u64);
        assert_eq!(read(&bytes, &config(Format::Csv)), chunk, "stdin");
    }
    // What only looks like the beginning of something is text.
    for bytes in [
        &b"\x1f"[..],
        b"\x1f\n",
        b"(\xb5/",
        b"P*M",
        b"\xef\xbb",
        b"\xff",
    ] {
        let lines = read(bytes, &config(Format::Lines));
        assert_eq!(lines.items[0].data, bytes.trim_ascii_end());
    }
    assert_eq!(read(&gzip(b""), &config(Format::Lines)).items, []);
}

#[test]
fn damaged_input_fails_behind_what_was_read() {
    let text: Vec<u8> = (0..50_000)
        .flat_map(|n| format!("{}\n", n * 7919).into_bytes())
        .collect();
    let whole = read(&text, &config(Format::Lines));
    for (packed, name) in [(gzip(&text), "gzip"), (zstd(&text), "zstd")] {
        let mut flipped = packed.clone();
        flipped[packed.len() / 2..][..8].fill(0xa5);
        let garbage = [&packed[..], b"garbage"].concat();
        let cut = packed[..packed.len() - 3].to_vec();
        for bytes in [
            flipped,
            garbage,
            cut,
            packed[..packed.len() * 2 / 3].to_vec(),
        ] {
            let mut source =
                Source::from_reader(drip(&bytes, 999), &config(Format::Lines)).unwrap();
            let (before, error) = *drain(&mut source).unwrap_err();
            let text = one_line(&error);
            assert!(
                text.contains(&format!("the {name} data is cut off or damaged")),
                "{text}"
            );
            let SourceError::Read { line, byte, .. } = &error else {
                panic!("{error}");
            };
            // Damaged bytes may hold empty lines as well.
            assert!(*line >= before.items.len() as u64);
            assert!(*byte > 0 || before.items.is_empty());
            // A damaged block may hold wrong bytes, which only the checksum at the end tells.
            let sure = before.items.len() / 3;
            assert_eq!(before.items[..sure], whole.items[..sure]);
            assert_eq!(source.read(9, 9), Err(error), "stays failed");
        }
    }
}

#[test]
fn input_that_cannot_be_opened_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for (path, expected) in [
        (dir.path().join("none.csv"), "No such file"),
        (dir.path().to_owned(), "is a directory"),
        (
            file("a.json", b"[]"),
            "a .json file cannot be cut into items",
        ),
        (
            file("a.csv.gz", b"a\n1\n"),
            "named .gz, but the bytes are not gzip",
        ),
        (file("b.csv.zst", b""), "not zstd; the file is empty"),
        (file("c.gz", b"\x1f\x8b\x08"), "the gzip data is cut off"),
        (file("a.txt", b"\xff\xfea\0\n\0"), "UTF-16"),
        (file("b.csv", b"\xfe\xff\0a\0\n"), "UTF-16"),
        (file("c.csv", b"\0\0\xfe\xff\0\0\0a"), "UTF-16"),
    ] {
        let error = match Source::open(&at(&path)) {
            Ok(_) => panic!("{} opened", path.display()),
            Err(error) => one_line(&error),
        };
        let name = path.display().to_string();
        assert!(error.contains(expected) && error.contains(&name), "{error}");
    }
    let path = file("d.json", b"1\n");
    let config = SourceConfig {
        format: Format::Jsonl,
        ..at(&path)
    };
    assert!(Source::open(&config).is_ok());
}

/// A reader that fails after some bytes.
struct Broken(&'static [u8]);

impl Read for Broken {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::Error::from_raw_os_error(5)),
            count => Ok(count),
        }
    }
}

#[test]
fn a_read_error_comes_behind_the_items_before_it() {
    for format in [Format::Lines, Format::Jsonl, Format::Csv] {
        let mut source = Source::from_reader(Broken(b"1\n2\n3"), &config(format)).unwrap();
        let (before, error) = *drain(&mut source).unwrap_err();
        let items = if format == Format::Csv { 1 } else { 2 };
        assert_eq!(before.items.len(), items, "{format:?}");
        let text = one_line(&error);
        let expected =
            "stdin: cannot read on after line 2 (byte 5 unpacked): Input/output error (os error 5)";
        assert_eq!(text, expected);
    }
}

#[test]
fn a_chunk_keeps_its_bounds_and_does_not_wait() {
    let mut source = Source::from_reader(&b"12345\n2\n3\n4\n"[..], &config(Format::Lines)).unwrap();
    assert_eq!(datas(&source.read(10, 5).unwrap()), ["12345"]);
    assert_eq!(datas(&source.read(2, 100).unwrap()), ["2", "3"]);
    assert_eq!(datas(&source.read(0, 0).unwrap()), ["4"]);
    assert!(source.read(1, 1).unwrap().end && source.read(1, 1).unwrap().end);

    let rejected = b"x\n".repeat(5);
    let mut source =
        Source::from_reader(io::Cursor::new(rejected), &config(Format::Jsonl)).unwrap();
    assert_eq!(source.read(3, 100).unwrap().rejected.len(), 3);

    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"a\n1\n2\n").unwrap();
    let mut source = Source::from_reader(reader, &config(Format::Csv)).unwrap();
    // The pipe stays open: waiting for a third row would never end.
    let chunk = source.read(3, 1000).unwrap();
    assert_eq!((chunk.items.len(), chunk.end), (2, false));
    drop(writer);
    // Reading is for a thread of its own.
    let reading = std::thread::spawn(move || source.read(3, 1000).unwrap());
    assert!(reading.join().unwrap().end);
}

fn json_row(header: &[String], row: &[String]) -> String {
    let fields = header.iter().zip(row).map(|(name, value)| {
        let text = |text: &String| serde_json::to_string(text).unwrap();
        format!("{}:{}", text(name), text(value))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What the csv crate writes comes back, however the bytes are cut.
    #[test]
    fn written_csv_comes_back(
        rows in (1_usize..5).prop_flat_map(|columns| {
            prop::collection::vec(prop::collection::vec("[ab,;\"\n\r\t\\\\é\u{1}]{0,6}", columns), 0..6)
        }),
        delimiter in prop::sample::select(vec![b',', b';', b'\t']),
        crlf in any::<bool>(),
        always_quoted in any::<bool>(),
        step in 1_usize..20,
    ) {
        let columns = rows.first().map_or(1, Vec::len);
        let header: Vec<String> = (0..columns).map(|n| format!("c\"{n}")).collect();
        let mut writer = ::csv::WriterBuilder::new()
            .delimiter(delimiter)
            .terminator(if crlf { ::csv::Terminator::CRLF } else { ::csv::Terminator::Any(b'\n') })
            .quote_style(if always_quoted { ::csv::QuoteStyle::Always } else { ::csv::QuoteStyle::Necessary })
            .from_writer(Vec::new());
        for row in std::iter::once(&header).chain(&rows) {
            writer.write_record(row).unwrap();
        }
        let bytes = writer.into_inner().unwrap();
        let config = SourceConfig { delimiter, ..keyed(Format::Csv, &header[0]) };
        let mut source = Source::from_reader(drip(&bytes, step), &config).unwrap();
        let chunk = drain(&mut source).unwrap();
        prop_assert_eq!(&chunk.rejected, &[]);
        prop_assert_eq!(chunk.items.len(), rows.len());
        for (item, row) in chunk.items.iter().zip(&rows) {
            prop_assert_eq!(&item.data, &json_row(&header, row));
            prop_assert_eq!(&*item.key(), &row[0]);
        }
    }

    /// Anything at all: no panic, no difference by where it is cut, and no line that is unaccounted for.
    #[test]
    fn any_bytes_give_the_same_wherever_they_are_cut(
        bytes in prop::collection::vec(prop::sample::select(b"ab,\"\n\r{}[]1:\\\xff\xc3\xa9".to_vec()), 0..80),
        limit in 0_u64..40,
        step in 1_usize..9,
    ) {
        for format in [Format::Csv, Format::Jsonl, Format::Lines, Format::Failed] {
            let bytes = match format {
                Format::Csv => [&b"x,y\n"[..], &bytes].concat(),
                _ => bytes.clone(),
            };
            let config = limited(format, limit.max(3));
            let all = |step| {
                let mut source = Source::from_reader(drip(&bytes, step), &config).unwrap();
                drain(&mut source).unwrap()
            };
            let whole = all(usize::MAX);
            prop_assert_eq!(&whole, &all(step));
            let lines = whole.rejected.iter().map(|r| r.line).collect::<Vec<_>>();
            prop_assert!(lines.is_sorted(), "{:?}", lines);
            if matches!(format, Format::Jsonl | Format::Lines | Format::Failed) {
                let filled = bytes.split(|b| *b == b'\n').filter(|line| {
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    !line.trim_ascii().is_empty()
                });
                if format != Format::Lines {
                    prop_assert_eq!(whole.items.len() + whole.rejected.len(), filled.count());
                }
            }
        }
    }
}
