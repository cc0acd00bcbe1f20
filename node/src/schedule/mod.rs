//! Schedules: a message at times. Which tick is due is decided by a pure function; the message's id is derived
//! from schedule and tick, so a tick is sent once, also across restarts.

mod ticking;

use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use posthouse_shared::clock::Stamp;
use posthouse_shared::codes::Code;
use posthouse_shared::message::Kind;
use posthouse_shared::name::{AgentId, AgentName, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Missed, Schedule};

use crate::post::{Draft, DraftId};

pub(crate) use ticking::tick;

/// A tick that is older than this when it is looked at was missed.
pub const ON_TIME: Duration = Duration::from_secs(30);

/// When a schedule ticks, parsed.
#[derive(Debug, Clone)]
pub struct Times(Cron);

impl FromStr for Times {
    type Err = Refusal;
    /// Five fields, in UTC.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).build();
        parser.parse(text).map(Self).map_err(|error| {
            Refusal::new(Code::BadRequest, format!("{text:?} is not a cron expression of five fields"))
                .because(&error)
        })
    }
}

impl Times {
    /// The first tick after `now`, if there is one.
    pub fn next(&self, now: Stamp) -> Option<Stamp> {
        self.0.find_next_occurrence(&chrono_time(now)?, false).ok().and_then(stamp)
    }

    /// The last tick up to `now`, if there is one.
    fn last(&self, now: Stamp) -> Option<Stamp> {
        self.0.find_previous_occurrence(&chrono_time(now)?, true).ok().and_then(stamp)
    }
}

/// What is to be done about a schedule now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing has ticked.
    Nothing,
    /// This tick's message is sent; it and those before are dealt with.
    Send(Stamp),
    /// Ticks up to here were missed and are dropped.
    Drop(Stamp),
}

/// What is due at `now`, when the ticks up to `through` are dealt with. Of several missed ticks at most the
/// latest is sent.
pub fn due(times: &Times, missed: Missed, through: Stamp, now: Stamp) -> Due {
    let Some(last) = times.last(now).filter(|last| *last > through) else { return Due::Nothing };
    match missed {
        Missed::Once => Due::Send(last),
        Missed::Skip if now.since(last) <= ON_TIME => Due::Send(last),
        Missed::Skip => Due::Drop(last),
    }
}

/// The message of one tick. It comes from the lead, whose schedule it is.
pub fn draft(schedule: &Schedule, tick: Stamp) -> Draft {
    let birth = schedule.birth.to_string();
    let team = schedule.team.as_str();
    let id = MessageId::derived(&["schedule", team, schedule.id.as_str(), &birth, &tick.nanos().to_string()]);
    Draft {
        from: AgentId::new(AgentName::lead(), schedule.team.clone()),
        to: schedule.to.clone(),
        kind: Kind::Message,
        body: schedule.message.clone(),
        summary: Some(format!("schedule {}", schedule.id)),
        in_reply_to: None,
        control: false,
        id: DraftId::Chosen(id),
        trace: None,
    }
}

fn chrono_time(stamp: Stamp) -> Option<DateTime<Utc>> {
    Some(DateTime::from_timestamp_nanos(i64::try_from(stamp.nanos()).ok()?))
}

fn stamp(time: DateTime<Utc>) -> Option<Stamp> {
    u64::try_from(time.timestamp_nanos_opt()?).ok().map(Stamp::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Stamp {
        text.parse().unwrap()
    }

    fn hourly() -> Times {
        "0 * * * *".parse().unwrap()
    }

    #[test]
    fn a_tick_is_sent_when_its_time_has_come_and_not_again() {
        let now = at("2026-01-01T10:00:00.004Z");
        let tick = at("2026-01-01T10:00:00Z");
        for missed in [Missed::Skip, Missed::Once] {
            assert_eq!(due(&hourly(), missed, at("2026-01-01T09:30:00Z"), now), Due::Send(tick));
            assert_eq!(due(&hourly(), missed, tick, now), Due::Nothing);
        }
        assert_eq!(hourly().next(now), Some(at("2026-01-01T11:00:00Z")));
    }

    #[test]
    fn missed_ticks_are_dropped_or_the_latest_is_sent_once() {
        let (through, now) = (at("2026-01-01T03:00:00Z"), at("2026-01-01T10:20:00Z"));
        let tick = at("2026-01-01T10:00:00Z");
        assert_eq!(due(&hourly(), Missed::Skip, through, now), Due::Drop(tick));
        assert_eq!(due(&hourly(), Missed::Once, through, now), Due::Send(tick));
    }

    #[test]
    fn what_is_not_five_fields_is_refused() {
        for bad in ["", "* * * *", "0 0 0 * * *", "61 * * * *", "x"] {
            assert_eq!(bad.parse::<Times>().unwrap_err().code, Code::BadRequest, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn however_the_clock_jumps_no_tick_is_sent_twice(times in prop::collection::vec(0u64..1_000_000, 1..60)) {
            let (mut through, mut sent) = (Stamp::default(), Vec::new());
            for seconds in times {
                let now = Stamp::from_nanos(seconds * 1_000_000_000);
                match due(&hourly(), Missed::Once, through, now) {
                    Due::Send(tick) => { sent.push(tick); through = tick; }
                    Due::Drop(tick) => through = tick,
                    Due::Nothing => {}
                }
            }
            prop_assert!(sent.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
