//! Sizes and times as people read them in a limit.

use std::time::Duration;

/// `256 MiB` where the number of bytes is whole in a larger unit, else bytes.
pub(super) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >> shift > 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

/// `10 s`, `0.5 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole() {
        let table = [
            (0, "0 bytes"),
            (1000, "1000 bytes"),
            (1024, "1 KiB"),
            (256 << 20, "256 MiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size((1 << 30) + (1 << 20)), "1025 MiB");
        assert_eq!(seconds(Duration::from_millis(500)), "0.5 s");
        assert_eq!(seconds(Duration::from_secs(120)), "120 s");
    }
}
