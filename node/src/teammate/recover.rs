//! What a start does with the leases that a dead incarnation left, pure: the history is folded over them.
//! `turn_end` there: its disposition is redone. Not there: the turn was cut off, and it is another attempt.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Disposition, End, Fold, InTurn, InputKey};

/// What becomes of an orphaned lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its turn was done.
    Ack,
    /// Its turn failed.
    Quarantine {
        /// The turn.
        turn: u64,
        /// Why.
        why: String,
    },
    /// It was given back on purpose.
    Planned,
    /// It was cut off.
    Interrupted,
}

/// The fate that a disposition means for its inputs.
pub fn fate(end: &End) -> Fate {
    match &end.disposition {
        Disposition::Done => Fate::Ack,
        Disposition::Failed { why } => Fate::Quarantine { turn: end.turn, why: why.clone() },
        Disposition::Released { counts: true, .. } => Fate::Interrupted,
        Disposition::Released { counts: false, .. } => Fate::Planned,
    }
}

/// Orphans that the fold says nothing of: the whole history must be asked.
pub fn unknown(fold: &Fold, orphans: &[InTurn]) -> BTreeSet<InputKey> {
    let known = |orphan: &&InTurn| find(fold, orphan).is_none() && !fold.open.contains(&orphan.key);
    orphans.iter().filter(known).map(|orphan| orphan.key).collect()
}

/// The fate of each orphan. The turn that was cut off must have got its `turn_end` before.
pub fn fates(fold: &Fold, older: &BTreeMap<InputKey, End>, orphans: &[InTurn]) -> Vec<Fate> {
    orphans
        .iter()
        .map(|orphan| match find(fold, orphan) {
            Some(end) => fate(end),
            None => match older.get(&orphan.key) {
                Some(end) if !matches!(end.disposition, Disposition::Released { .. }) => fate(end),
                Some(_) | None => Fate::Interrupted,
            },
        })
        .collect()
}

fn find<'a>(fold: &'a Fold, orphan: &InTurn) -> Option<&'a End> {
    fold.last.as_ref().filter(|end| end.inputs.contains(orphan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::clock::Stamp;
    use posthouse_shared::name::MessageId;

    fn in_turn(n: &str, attempt: u32) -> InTurn {
        InTurn { key: InputKey { id: MessageId::derived(&[n]), delivery: 1 }, attempt }
    }

    fn end(turn: u64, inputs: &[InTurn], disposition: Disposition) -> End {
        End {
            turn,
            disposition,
            inputs: inputs.to_vec(),
            result: String::new(),
            messages: Vec::new(),
            task: None,
            shutdown: None,
            at: Stamp::default(),
        }
    }

    #[test]
    fn an_end_is_redone_and_what_has_none_was_interrupted() {
        let (a, b) = (in_turn("a", 1), in_turn("b", 1));
        let fold = Fold { last: Some(end(4, &[a], Disposition::Done)), ..Fold::default() };
        assert_eq!(fates(&fold, &BTreeMap::new(), &[a, b]), [Fate::Ack, Fate::Interrupted]);
        assert_eq!(unknown(&fold, &[a, b]), [b.key].into());
    }

    #[test]
    fn a_second_attempt_is_not_covered_by_the_end_of_the_first() {
        let released = Disposition::Released { counts: true, why: String::new() };
        let fold = Fold {
            last: Some(end(4, &[in_turn("a", 1)], released)),
            open: [in_turn("a", 1).key].into(),
            ..Fold::default()
        };
        assert_eq!(fates(&fold, &BTreeMap::new(), &[in_turn("a", 2)]), [Fate::Interrupted]);
    }

    #[test]
    fn an_old_end_that_only_the_file_has_still_settles_it() {
        let a = in_turn("a", 1);
        let older = BTreeMap::from([(a.key, end(2, &[a], Disposition::Failed { why: "exit 1".into() }))]);
        let want = Fate::Quarantine { turn: 2, why: "exit 1".into() };
        assert_eq!(fates(&Fold::default(), &older, &[a]), [want]);
    }
}
