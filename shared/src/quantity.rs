//! Durations and sizes as people write them: `10m`, `1h30m`, `250ms`; `64KiB`, `1MB`, `4096`.

use std::time::Duration;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a duration.
    #[error("{0:?} is not a duration; write 250ms, 30s, 10m, 1h30m or 2d")]
    Duration(String),
    /// Not a size.
    #[error("{0:?} is not a size; write 4096, 64KiB, 1MB or 2GiB")]
    Size(String),
    /// Not a number.
    #[error("{text:?} is not a number of {unit}")]
    Number {
        /// What was written.
        text: String,
        /// What is counted.
        unit: String,
    },
}

const UNITS_MS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

const UNITS_BYTES: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
];

/// A number in this unit of [`crate::limits::Limits::table`]: plain, or as a duration or size where it is one.
pub fn quantity(text: &str, unit: &str) -> Result<u64, QuantityError> {
    let plain: Result<u64, _> = text.trim().replace('_', "").parse();
    match (plain, unit) {
        (Ok(number), _) => Ok(number),
        (Err(_), "ms") => duration_ms(text),
        (Err(_), "bytes") => size_bytes(text),
        (Err(_), unit) => Err(QuantityError::Number { text: text.to_owned(), unit: unit.to_owned() }),
    }
}

/// A duration in milliseconds: one or more of number and unit, `0` alone too.
pub fn duration_ms(text: &str) -> Result<u64, QuantityError> {
    let broken = || QuantityError::Duration(text.to_owned());
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(broken());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (number, after) = leading(rest, |c| c.is_ascii_digit());
        let (unit, after) = leading(after, |c| c.is_ascii_alphabetic());
        let number: u64 = number.parse().map_err(|_| broken())?;
        let (_, ms) = UNITS_MS.iter().find(|(name, _)| *name == unit).ok_or_else(broken)?;
        total = number.checked_mul(*ms).and_then(|part| total.checked_add(part)).ok_or_else(broken)?;
        rest = after;
    }
    Ok(total)
}

/// [`duration_ms`] as a [`Duration`]: what clap calls.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    duration_ms(text).map(Duration::from_millis)
}

/// A size in bytes. `KiB` counts 1024, `kB` 1000, a bare letter 1024.
pub fn size_bytes(text: &str) -> Result<u64, QuantityError> {
    let broken = || QuantityError::Size(text.to_owned());
    let (number, unit) = leading(text.trim(), |c| c.is_ascii_digit());
    let unit = unit.trim().to_ascii_lowercase();
    let (_, bytes) = UNITS_BYTES.iter().find(|(name, _)| *name == unit).ok_or_else(broken)?;
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(*bytes)).ok_or_else(broken)
}

fn leading(text: &str, fits: fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !fits(c)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        for (text, ms) in
            [("250ms", 250), ("10m", 600_000), ("1h30m", 5_400_000), ("0", 0), ("2d", 172_800_000)]
        {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for (text, bytes) in [("4096", 4096), ("64KiB", 65_536), ("1 MB", 1_000_000), ("2g", 2 << 30)] {
            assert_eq!(size_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "m", "10", "10x", "-1s", "1.5s", "99999999999999999999h", "1h-2m"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
        for bad in ["", "KiB", "1XB", "-1", "99999999999999999999", "18446744073709551615k"] {
            assert!(size_bytes(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,30}") {
            let _either = (duration_ms(&text), size_bytes(&text));
        }

        #[test]
        fn what_is_written_is_read_back(h in 0_u64..1000, m in 0_u64..60, ms in 0_u64..1000) {
            prop_assert_eq!(duration_ms(&format!("{h}h{m}m{ms}ms")), Ok(h * 3_600_000 + m * 60_000 + ms));
            prop_assert_eq!(size_bytes(&format!("{h}KiB")), Ok(h * 1024));
        }
    }
}
