//! Makes text that others wrote safe to print: it stays on its line, moves no cursor and shows in the order
//! it is stored in.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes what could end a line, command a terminal or reorder what is shown: control characters,
/// line and paragraph separators, bidirectional controls and characters that show as nothing. All other
/// text, backslashes included, stays as it is.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    // Nearly all text is clean; of the multi-byte characters, only some are not.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c if is_unsafe(c) && c.is_ascii() => {
                push(&mut escaped, format_args!("\\x{:02x}", c as u32))
            }
            c if is_unsafe(c) => push(&mut escaped, format_args!("\\u{{{:x}}}", c as u32)),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// [`escape_line`] for bytes: what is not UTF-8 shows as U+FFFD.
pub fn escape_bytes(bytes: &[u8]) -> String {
    escape_line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// The same for JSON text, where such characters can only stand inside strings: written as JSON escapes,
/// so that the value stays what it was.
pub fn escape_json(json: String) -> String {
    if !json.chars().any(is_unsafe) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                push(&mut escaped, format_args!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(arguments);
}

fn is_unsafe(c: char) -> bool {
    c.is_control() // C0, DEL and C1
        || matches!(c,
            '\u{2028}' | '\u{2029}' // line and paragraph separator
            | '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' // bidi
            | '\u{200b}' | '\u{2060}' | '\u{feff}' // no width
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}') // annotations and tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_escaped_and_nothing_else() {
        for (text, expected) in [
            ("", ""),
            ("plain [orders] 100 % \\n", "plain [orders] 100 % \\n"),
            (
                "Zürich 東京 👩\u{200d}👧 \u{fffd}",
                "Zürich 東京 👩\u{200d}👧 \u{fffd}",
            ),
            ("a\r\n[orders] tune: forged", "a\\r\\n[orders] tune: forged"),
            ("\u{1b}[2J\u{7}\t\0\u{7f}", "\\x1b[2J\\x07\\t\\x00\\x7f"),
            ("\u{85}\u{9b}31m", "\\u{85}\\u{9b}31m"),
            (
                "a\u{202e}b\u{2066}c\u{200f}",
                "a\\u{202e}b\\u{2066}c\\u{200f}",
            ),
            (
                "\u{2028}\u{2029}\u{feff}\u{e0041}",
                "\\u{2028}\\u{2029}\\u{feff}\\u{e0041}",
            ),
        ] {
            assert_eq!(escape_line(text), expected);
            let clean = text == expected;
            assert_eq!(
                matches!(escape_line(text), Cow::Borrowed(_)),
                clean,
                "{text:?}"
            );
            assert_eq!(
                escape_line(expected),
                expected,
                "escaping twice changes nothing"
            );
        }
        assert_eq!(escape_bytes(b"a\xff\n\xc2\x9b"), "a\u{fffd}\\n\\u{9b}");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"m": "a\n\u{9b}\u{7f}\u{202e}\u{e0041}é"});
        let escaped = escape_json(value.to_string());
        assert_eq!(escaped, r#"{"m":"a\n\u009b\u007f\u202e\udb40\udc41é"}"#);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
            value
        );
    }
}
