//! The name of a message's file: it carries all that the index needs, so that opening a mailbox reads no
//! contents. The content decides all the same: it is checked at the claim.
//!
//! ```text
//! <class><order_at>.<lane>.<term>.<index>.<seq>.<id>[.a<attempt>][.d<delivery>][.m<marks>][.h<after>][.i<incarnation>].json
//! ```
//! `class` is `c`, `l` or `n`; `order_at` and `lane` have 16 hex digits, `id` 32; the other numbers are hex
//! without leading zeros. A message without a lane has `-` for its four parts. `after` is the lower number of its
//! lane that had not come yet when it arrived; the name loses it at the claim. Parts in brackets are left away
//! at their first value. Only what [`FileName`] prints is parsed, so a name has one form.

use std::ffi::OsStr;
use std::fmt;

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::lane::{LaneHash, LaneKey};
use posthouse_shared::message::Envelope;
use posthouse_shared::name::MessageId;
use uuid::Uuid;

/// How often this data directory was started: the owner of a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// What overtakes what. Control overtakes all, then comes the lead's mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The control lane.
    Control,
    /// The lead's mail.
    Lead,
    /// All other mail.
    Normal,
}

impl Class {
    /// The class of a message that this node vouches for.
    pub fn of(envelope: &Envelope) -> Self {
        match envelope.lane {
            Some(lane) if lane.control => Self::Control,
            Some(_) if envelope.from.agent.is_lead() => Self::Lead,
            Some(_) | None => Self::Normal,
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Control => 'c',
            Self::Lead => 'l',
            Self::Normal => 'n',
        }
    }
}

/// What is known of a message beside its content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marks(u8);

impl Marks {
    /// None.
    pub const NONE: Self = Self(0);
    /// It came after its lane's epoch had ended, and stands outside the order.
    pub const LATE: Self = Self(1);
    /// Its sender had been replaced when it sent.
    pub const SUPERSEDED: Self = Self(2);
    /// A person brought it back from quarantine.
    pub const REDELIVERED: Self = Self(4);
    /// It may have been handled by an earlier home of the recipient.
    pub const MAY_HAVE_BEEN_HANDLED: Self = Self(8);
    /// The lead marked it urgent.
    pub const URGENT: Self = Self(16);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::LATE, "late"),
        (Self::SUPERSEDED, "superseded"),
        (Self::REDELIVERED, "redelivered"),
        (Self::MAY_HAVE_BEEN_HANDLED, "may_have_been_handled"),
        (Self::URGENT, "urgent"),
    ];

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As they stand in JSON.
    pub fn names(self) -> Vec<String> {
        Self::NAMES
            .iter()
            .filter(|(mark, _)| self.contains(*mark))
            .map(|(_, name)| (*name).to_owned())
            .collect()
    }

    /// From the names; unknown ones are left out.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().fold(Self::NONE, |marks, wanted| {
            Self::NAMES
                .iter()
                .filter(|(_, name)| *name == wanted)
                .fold(marks, |marks, (mark, _)| marks.and(*mark))
        })
    }

    /// The bits, as in the name.
    pub const fn bits(self) -> u8 {
        self.0
    }

    const fn from_bits(bits: u8) -> Option<Self> {
        if bits < 32 { Some(Self(bits)) } else { None }
    }
}

/// A message's place in its lane and epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The lane and epoch.
    pub key: LaneKey,
    /// The number.
    pub seq: u64,
}

/// What a file's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileName {
    /// What it overtakes.
    pub class: Class,
    /// What it is sorted by across lanes; set once, at arrival.
    pub order_at: Stamp,
    /// Its place in its lane, where it has one.
    pub place: Option<Place>,
    /// The message's id.
    pub id: MessageId,
    /// The attempt that its next (or present) turn is, from 1.
    pub attempt: u16,
    /// How often it was delivered by a person's will, from 1.
    pub delivery: u16,
    /// Its marks.
    pub marks: Marks,
    /// The lower number of its lane that goes before it and was not here when it arrived.
    pub after: Option<u64>,
    /// Who holds it; in `processing/` only.
    pub holder: Option<Incarnation>,
}

impl FileName {
    /// The name of a message that arrives, `order_at` being its stamp or its arrival.
    pub fn arriving(envelope: &Envelope, order_at: Stamp, marks: Marks) -> Self {
        let place = envelope.lane_key().zip(envelope.lane).map(|(key, lane)| Place { key, seq: lane.seq });
        Self {
            class: Class::of(envelope),
            order_at,
            place,
            id: envelope.id,
            attempt: 1,
            delivery: 1,
            marks,
            after: None,
            holder: None,
        }
    }

    /// The name of what another program dropped.
    pub const fn external(id: MessageId, arrival: Stamp) -> Self {
        Self {
            class: Class::Normal,
            order_at: arrival,
            place: None,
            id,
            attempt: 1,
            delivery: 1,
            marks: Marks::NONE,
            after: None,
            holder: None,
        }
    }

    /// Whether it stands outside its lane's order: no lane, late, or brought back by a person.
    pub const fn outside(&self) -> bool {
        self.place.is_none() || self.marks.contains(Marks::LATE) || self.delivery > 1
    }

    /// The same, held by nobody.
    #[must_use]
    pub const fn free(mut self) -> Self {
        self.holder = None;
        self
    }

    /// The same, held. What went before it was there, or is not waited for any more.
    #[must_use]
    pub const fn held(mut self, by: Incarnation) -> Self {
        self.after = None;
        self.holder = Some(by);
        self
    }

    /// Reads a name; nothing where it is not of the one form.
    pub fn parse(name: &OsStr) -> Option<Self> {
        let text = name.to_str()?.strip_suffix(".json")?;
        let class = match text.as_bytes().first()? {
            b'c' => Class::Control,
            b'l' => Class::Lead,
            b'n' => Class::Normal,
            _ => return None,
        };
        let mut parts = text.get(1..)?.split('.');
        let order_at = Stamp::from_nanos(fixed(parts.next()?)?);
        let (lane, term, index, seq) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let place = if (lane, term, index, seq) == ("-", "-", "-", "-") {
            None
        } else {
            let epoch = Generation::new(short(term)?, short(index)?);
            Some(Place { key: LaneKey { lane: LaneHash(fixed(lane)?), epoch }, seq: short(seq)? })
        };
        let id = parts.next()?;
        let (high, low) = id.split_at_checked(16)?;
        let id = MessageId(Uuid::from_u64_pair(fixed(high)?, fixed(low)?));
        let mut name = Self { class, order_at, place, id, ..Self::external(id, order_at) };
        let mut last = 0;
        for part in parts {
            let (letter, number) = part.split_at_checked(1)?;
            let number = short(number)?;
            let rank = match letter {
                "a" => {
                    name.attempt = u16::try_from(number).ok().filter(|n| *n > 1)?;
                    1
                }
                "d" => {
                    name.delivery = u16::try_from(number).ok().filter(|n| *n > 1)?;
                    2
                }
                "m" => {
                    name.marks = u8::try_from(number).ok().and_then(Marks::from_bits)?;
                    if name.marks == Marks::NONE {
                        return None;
                    }
                    3
                }
                "h" => {
                    let below = |place: Place| (1..place.seq).contains(&number) && !name.outside();
                    name.after = Some(number).filter(|_| name.place.is_some_and(below));
                    name.after?;
                    4
                }
                "i" => {
                    name.holder = Some(Incarnation(number));
                    5
                }
                _ => return None,
            };
            if rank <= last {
                return None;
            }
            last = rank;
        }
        Some(name)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:016x}.", self.class.letter(), self.order_at.nanos())?;
        match self.place {
            Some(Place { key, seq }) => {
                let LaneKey { lane, epoch } = key;
                write!(f, "{:016x}.{:x}.{:x}.{seq:x}", lane.0, epoch.term, epoch.index)?;
            }
            None => f.write_str("-.-.-.-")?,
        }
        write!(f, ".{}", self.id.0.as_simple())?;
        if self.attempt > 1 {
            write!(f, ".a{:x}", self.attempt)?;
        }
        if self.delivery > 1 {
            write!(f, ".d{:x}", self.delivery)?;
        }
        if self.marks != Marks::NONE {
            write!(f, ".m{:x}", self.marks.0)?;
        }
        if let Some(after) = self.after {
            write!(f, ".h{after:x}")?;
        }
        if let Some(holder) = self.holder {
            write!(f, ".i{:x}", holder.0)?;
        }
        f.write_str(".json")
    }
}

fn fixed(text: &str) -> Option<u64> {
    if text.len() == 16 { digits(text) } else { None }
}

fn short(text: &str) -> Option<u64> {
    let plain = (1..=16).contains(&text.len()) && (text == "0" || !text.starts_with('0'));
    if plain { digits(text) } else { None }
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().try_fold(0u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_name() -> impl Strategy<Value = FileName> {
        let class = prop_oneof![Just(Class::Control), Just(Class::Lead), Just(Class::Normal)];
        let place = prop::option::of((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()));
        let rest = (1u16.., 1u16.., 0u8..32, prop::option::of(any::<u64>()), any::<u64>());
        (class, any::<u64>(), place, any::<u128>(), rest).prop_map(|(class, at, place, id, rest)| {
            let (attempt, delivery, marks, holder, after) = rest;
            let place = place.map(|(lane, term, index, seq)| Place {
                key: LaneKey { lane: LaneHash(lane), epoch: Generation::new(term, index) },
                seq,
            });
            let name = FileName {
                class,
                order_at: Stamp::from_nanos(at),
                place,
                id: MessageId(Uuid::from_u128(id)),
                attempt,
                delivery,
                marks: Marks(marks),
                after: None,
                holder: holder.map(Incarnation),
            };
            let waits = |place: Place| (1..place.seq).contains(&after) && !name.outside();
            FileName { after: Some(after).filter(|_| name.place.is_some_and(waits)), ..name }
        })
    }

    proptest! {
        #[test]
        fn a_name_comes_back_as_it_was(name in any_name()) {
            let text = name.to_string();
            prop_assert!(text.len() < 250);
            prop_assert_eq!(FileName::parse(OsStr::new(&text)), Some(name));
        }

        #[test]
        fn a_name_has_one_form(name in any_name(), at in any::<prop::sample::Index>(), byte in "[ -~]") {
            let mut text = name.to_string();
            let at = at.index(text.len());
            text.replace_range(at..=at, &byte);
            if let Some(parsed) = FileName::parse(OsStr::new(&text)) {
                prop_assert_eq!(parsed.to_string(), text);
            }
        }

        #[test]
        fn any_text_is_parsed_without_a_panic(text in ".*") {
            let _either = FileName::parse(OsStr::new(&text));
        }
    }
}
