//! A history read back, torn and cut at every place.

use super::*;
use posthouse_shared::name::{AgentName, MessageId, TeamName};
use posthouse_shared::task::Claim;
use proptest::prelude::*;

fn id(n: u8) -> MessageId {
    MessageId::derived(&["history", &n.to_string()])
}

fn input(turn: u64, n: u8, attempt: u32) -> Input {
    Input {
        turn,
        id: id(n),
        delivery: 0,
        attempt,
        marks: Vec::new(),
        from: "lead".to_owned(),
        kind: Kind::Message,
        summary: None,
        body: format!("body {n}"),
        blob: None,
        at: Stamp::from_nanos(turn),
    }
}

fn in_turn(n: u8, attempt: u32) -> InTurn {
    InTurn { key: InputKey { id: id(n), delivery: 0 }, attempt }
}

fn begin(turn: u64, inputs: Vec<InTurn>) -> Begin {
    Begin { turn, inputs, task: None, at: Stamp::from_nanos(turn) }
}

fn end(turn: u64, inputs: Vec<InTurn>, disposition: Disposition) -> End {
    End {
        turn,
        disposition,
        inputs,
        result: format!("result {turn}"),
        messages: Vec::new(),
        task: None,
        shutdown: None,
        at: Stamp::from_nanos(turn),
    }
}

fn open(dir: &Path) -> History {
    let agent = AgentId::new(AgentName::new("scout").unwrap(), TeamName::new("main").unwrap());
    History::open(Files::real(), history_path(dir, &agent, Birth::new(1, 4))).unwrap()
}

fn interrupted() -> Disposition {
    Disposition::Released { counts: true, why: "killed".to_owned() }
}

#[test]
fn an_input_is_written_once_however_often_its_turn_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = open(dir.path());
    for (turn, attempt) in [(1, 1), (2, 2)] {
        history.begin(vec![input(turn, 7, attempt)], begin(turn, vec![in_turn(7, attempt)])).unwrap();
        history.end(end(turn, vec![in_turn(7, attempt)], interrupted())).unwrap();
        history = open(dir.path());
    }
    let text = std::fs::read_to_string(history.path()).unwrap();
    assert_eq!(text.matches(r#""record":"input""#).count(), 1, "{text}");
    assert!(history.path().ends_with("history/main/scout.1.4.jsonl"));
    assert_eq!(history.fold().turn, 2);
}

#[test]
fn a_torn_last_line_is_healed_and_the_next_record_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = open(dir.path());
    history.begin(vec![input(1, 1, 1)], begin(1, vec![in_turn(1, 1)])).unwrap();
    let path = history.path().to_owned();
    let mut log = Files::real().open_log(&path).unwrap();
    log.append(br#"{"record":"turn_end","turn":1,"dis"#).unwrap();
    let mut history = open(dir.path());
    assert_eq!(history.fold().begun.as_ref().map(|begin| begin.turn), Some(1));
    history.end(end(1, vec![in_turn(1, 1)], Disposition::Done)).unwrap();
    let history = open(dir.path());
    assert_eq!(history.fold().last.as_ref().map(|end| end.result.as_str()), Some("result 1"));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Record>(line).is_ok()), "{text}");
}

#[test]
fn a_hint_skips_what_lies_behind_and_is_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = open(dir.path());
    for turn in 1..=40 {
        let mut long = input(turn, 1, 1);
        long.id = MessageId::derived(&["long", &turn.to_string()]);
        long.body = "x".repeat(16_384);
        let inputs = vec![InTurn { key: long.key(), attempt: 1 }];
        history.begin(vec![long], begin(turn, inputs.clone())).unwrap();
        history.end(end(turn, inputs, Disposition::Done)).unwrap();
    }
    history.rest();
    let hint = hint_path(history.path());
    assert!(hint.exists());
    assert_eq!(history.fold().last.as_ref().map(|end| end.result.as_str()), Some(""), "kept on disk only");
    let with = open(dir.path()).fold().clone();
    assert_eq!(with.last.as_ref().map(|end| end.result.as_str()), Some("result 40"));
    Files::real().remove_unsynced(&hint).unwrap();
    assert_eq!(open(dir.path()).fold(), &with);
    assert_eq!((with.turn, with.open.len()), (40, 0));
}

#[test]
fn an_end_that_the_fold_forgot_is_found_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = open(dir.path());
    for turn in 1..=3 {
        let n = u8::try_from(turn).unwrap();
        history.begin(vec![input(turn, n, 1)], begin(turn, vec![in_turn(n, 1)])).unwrap();
        history.end(end(turn, vec![in_turn(n, 1)], Disposition::Done)).unwrap();
    }
    let wanted = [in_turn(1, 1).key, in_turn(9, 1).key];
    let ended = history.ended(&wanted.into()).unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[&wanted[0]].turn, 1);
}

#[test]
fn interrupted_tries_of_a_held_task_are_counted_and_wanted_ends_are_not() {
    let claim = Claim { task: "T-1".parse().unwrap(), generation: Generation::new(1, 9) };
    let mut fold = Fold::default();
    for counts in [true, false, true] {
        let mut end = end(1, Vec::new(), Disposition::Released { counts, why: String::new() });
        end.task = Some(TaskEnd::Kept { claim: claim.clone() });
        fold.apply(Record::TurnEnd(Box::new(end)));
    }
    assert_eq!(fold.tries, Some(Tries { claim, interrupted: 2 }));
}

proptest! {
    /// Whatever length a crash leaves, the fold is one that some whole prefix of the records gives, and the
    /// file goes on from there.
    #[test]
    fn any_cut_is_a_whole_prefix(dispositions in prop::collection::vec(0u8..3, 1..6), cut in 0.0f64..1.0) {
        let dir = tempfile::tempdir().unwrap();
        let mut history = open(dir.path());
        let mut folds = vec![history.fold().clone()];
        for (n, disposition) in (1u8..).zip(dispositions) {
            let turn = u64::from(n);
            history.begin(vec![input(turn, n, 1)], begin(turn, vec![in_turn(n, 1)])).unwrap();
            let disposition = match disposition {
                0 => Disposition::Done,
                1 => Disposition::Failed { why: "exit 1".to_owned() },
                _ => interrupted(),
            };
            history.end(end(turn, vec![in_turn(n, 1)], disposition)).unwrap();
        }
        let bytes = std::fs::read(history.path()).unwrap();
        let mut fold = Fold::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            fold.apply(serde_json::from_slice(line).unwrap());
            folds.push(fold.clone());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "test")]
        let len = (bytes.len() as f64 * cut) as u64;
        let path = history.path().to_owned();
        Files::real().open_log(&path).unwrap().truncate(len).unwrap();
        let mut history = open(dir.path());
        prop_assert!(folds.contains(history.fold()));
        history.begin(vec![input(99, 99, 1)], begin(99, vec![in_turn(99, 1)])).unwrap();
        let again = open(dir.path());
        prop_assert_eq!(again.fold(), history.fold());
    }
}
