//! Sizes in bytes: `1048576`, `"16 MiB"`, `"10MB"`.
//!
//! Invariant: a size is a whole number of bytes inside the range that its option states.

use super::kind::Kind;
use super::raw::Raw;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Decimal units count by 1000, binary ones by 1024; letter case does not matter.
const UNITS: [(&str, u64); 9] = [
    ("tib", TIB),
    ("gib", GIB),
    ("mib", MIB),
    ("kib", KIB),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
];

/// A number of bytes in a range.
pub struct Size {
    min: u64,
    max: u64,
}

impl Size {
    pub const fn range(min: u64, max: u64) -> Self {
        Self { min, max }
    }
}

/// What fits in the memory of a component: its addresses have 32 bits.
pub const GUEST_SIZE: Size = Size::range(1, 4 * GIB);

impl Kind for Size {
    type Value = u64;

    fn parse(&self, raw: &Raw) -> Result<u64, String> {
        let bytes = match raw.integer() {
            Some(integer) => u64::try_from(integer).ok(),
            None => raw.text().and_then(bytes),
        };
        let inside = bytes.filter(|bytes| (self.min..=self.max).contains(bytes));
        inside.ok_or_else(|| raw.refuse(&self.expects()))
    }

    fn expects(&self) -> String {
        format!(
            "a size from {} to {}, in bytes or as text with a unit, such as \"10 MB\" or \"16 MiB\"",
            shown(self.min),
            shown(self.max)
        )
    }

    fn show(&self, value: &u64) -> String {
        let text = shown(*value);
        if text.ends_with('B') {
            format!("{text:?}")
        } else {
            text
        }
    }

    fn placeholder(&self) -> &'static str {
        "SIZE"
    }
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let with_unit = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (amount, factor) = with_unit.unwrap_or((&text, &1));
    let amount = amount.trim_end();
    if amount.is_empty()
        || !amount
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.' || b == b'_')
    {
        return None;
    }
    let amount = amount.replace('_', "");
    if let Ok(whole) = amount.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    // A part of a unit is rounded to whole bytes; there is no part of a byte. Below 2^53 every
    // whole number is exact.
    let size = (amount.parse::<f64>().ok()? * *factor as f64).round();
    (*factor > 1 && size < 9e15).then_some(size as u64)
}

fn shown(bytes: u64) -> String {
    let units = [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];
    let exact = units
        .iter()
        .find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match exact {
        Some((unit, factor)) => format!("{} {unit}", bytes / factor),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let table = [
            ("0", Some(0)),
            ("1048576", Some(MIB)),
            ("16 MiB", Some(16 * MIB)),
            ("16mib", Some(16 * MIB)),
            ("10MB", Some(10_000_000)),
            ("10 kB", Some(10_000)),
            ("10_000 B", Some(10_000)),
            ("1.5 GiB", Some(GIB + GIB / 2)),
            (" 2 TiB ", Some(2 * TIB)),
            ("", None),
            ("MiB", None),
            ("16M", None),
            ("16 megabytes", None),
            ("-1 MiB", None),
            ("+1 MiB", None),
            ("1.1 KiB", Some(1126)),
            ("1.5 B", None),
            ("1.5", None),
            ("1.2.3 MB", None),
            (".", None),
            ("inf", None),
            ("1e3", None),
            ("99999999999999999999", None),
            ("99999999999 TiB", None),
            ("99999999999999999999 TiB", None),
        ];
        for (text, expected) in table {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for size in [1, 1000, KIB, 1536, 16 * MIB, 3 * GIB, 5 * TIB] {
            assert_eq!(bytes(&shown(size)), Some(size));
        }
    }
}
