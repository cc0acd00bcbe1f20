//! How times, spans and sizes look. Times are in UTC.

use posthouse_shared::clock::Stamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A span of seconds: `41s`, `2m48s`, `18m`, `1h05m`, `3d04h`.
pub fn span(seconds: u64) -> String {
    match seconds {
        s if s < MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => format!("{}m{:02}s", s / MINUTE, s % MINUTE),
        s if s < HOUR => format!("{}m", s / MINUTE),
        s if s < DAY => format!("{}h{:02}m", s / HOUR, s % HOUR / MINUTE),
        s => format!("{}d{:02}h", s / DAY, s % DAY / HOUR),
    }
}

/// How long ago that was.
pub fn ago(stamp: Stamp, now: Stamp) -> String {
    span(now.since(stamp).as_secs())
}

/// A size: `512 B`, `2.1 KiB`.
pub fn bytes(count: u64) -> String {
    let mut tenths = count.saturating_mul(10);
    if count < 1024 {
        return format!("{count} B");
    }
    for unit in ["KiB", "MiB", "GiB"] {
        tenths /= 1024;
        if tenths < 10 * 1024 || unit == "GiB" {
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{count} B")
}

/// The time of day with milliseconds; with the date where it is another day than `now`.
pub fn time(stamp: Stamp, now: Stamp) -> String {
    let same_day = date(stamp) == date(now);
    let format = if same_day { "%H:%M:%S%.3f" } else { "%Y-%m-%d %H:%M:%S" };
    stamp.timestamp().strftime(format).to_string()
}

fn date(stamp: Stamp) -> String {
    stamp.timestamp().strftime("%Y-%m-%d").to_string()
}

/// Milliseconds as `0.3s`; below a tenth of a second as `40ms`.
pub fn age(ms: u64) -> String {
    if (1..100).contains(&ms) {
        return format!("{ms}ms");
    }
    if ms < 10_000 { format!("{}.{}s", ms / 1000, ms % 1000 / 100) } else { span(ms / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_look_as_the_design_shows_them() {
        let spans: Vec<String> = [41, 168, 361, 1080, 3900, 273_600].map(span).into();
        assert_eq!(spans, ["41s", "2m48s", "6m01s", "18m", "1h05m", "3d04h"]);
        assert_eq!(
            [0, 1023, 2150, 5 << 20, 3 << 40].map(bytes).join("|"),
            "0 B|1023 B|2.0 KiB|5.0 MiB|3072.0 GiB"
        );
        assert_eq!([0, 40, 300, 9_990, 61_000].map(age).join("|"), "0.0s|40ms|0.3s|9.9s|1m01s");
    }

    #[test]
    fn a_time_of_another_day_has_its_date() {
        let at: Stamp = "2026-11-30T14:02:11.204Z".parse().unwrap();
        assert_eq!(time(at, at), "14:02:11.204");
        let later = at.plus(std::time::Duration::from_secs(86_400));
        assert_eq!(time(at, later), "2026-11-30 14:02:11");
    }
}
