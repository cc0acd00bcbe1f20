//! Lanes under times that are told to them.

use super::*;
use posthouse_shared::generation::Generation;

fn item(seq: u64) -> Item {
    Item {
        id: MessageId::derived(&["item", &seq.to_string()]),
        lane: LaneKey { lane: LaneHash(1), epoch: Generation::new(1, 1) },
        seq,
        host: HostName::new("beta").unwrap(),
        handled: false,
    }
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn numbers(due: &[Due]) -> Vec<u64> {
    due.iter().map(|due| due.item.seq).collect()
}

#[test]
fn a_lane_has_at_most_its_window_in_flight_and_goes_on_as_it_is_stored() {
    let mut lanes = Lanes::new(Pace::default());
    (1..=100).for_each(|seq| assert!(lanes.add(item(seq), false, at(0))));
    assert!(!lanes.add(item(1), false, at(0)));
    let due = lanes.due(at(0), 1_000, &mut || 0.5);
    assert_eq!(numbers(&due), (1..=64).collect::<Vec<_>>());
    assert_eq!((due[0].after, due[5].after), (None, Some(5)));
    assert!(lanes.due(at(0), 1_000, &mut || 0.5).is_empty());
    lanes.stored(item(1).id, at(1));
    lanes.remove(item(2).id, at(1));
    let due = lanes.due(at(1), 1_000, &mut || 0.5);
    assert_eq!(numbers(&due), [65, 66]);
    assert_eq!(lanes.counts(at(10)).unstored, 98);
}

#[test]
fn an_unknown_outcome_keeps_its_try_and_a_taken_one_becomes_another() {
    let mut lanes = Lanes::new(Pace::default());
    lanes.add(item(1), false, at(0));
    let tries = |lanes: &mut Lanes, now| {
        lanes.due(now, 10, &mut || 0.5).iter().map(|due| (due.attempt, due.what)).collect::<Vec<_>>()
    };
    assert_eq!(tries(&mut lanes, at(0)), [(1, Act::Publish)]);
    assert_eq!(lanes.next(), Some(at(1_000)));
    assert_eq!(tries(&mut lanes, at(1_000)), [(1, Act::Publish)]);
    lanes.published(item(1).id, true);
    lanes.reconnected(at(1_500));
    assert!(tries(&mut lanes, at(1_500)).is_empty());
    assert_eq!(tries(&mut lanes, at(2_000)), [(2, Act::Publish)]);
    lanes.reconnected(at(2_100));
    assert_eq!(tries(&mut lanes, at(2_100)), [(2, Act::Publish)]);
    lanes.stored(item(1).id, at(2_200));
    assert_eq!(tries(&mut lanes, at(7_200)), [(2, Act::Ask)]);
    lanes.again(item(1).id, at(7_300));
    assert_eq!(tries(&mut lanes, at(7_300)), [(3, Act::Publish)]);
    assert!(lanes.remove(item(1).id, at(7_400)).is_some());
    assert!(lanes.is_empty() && lanes.next().is_none());
}

#[test]
fn what_the_other_host_will_never_have_hurries_the_next_of_its_lane() {
    let mut lanes = Lanes::new(Pace::default());
    (1..=3).for_each(|seq| assert!(lanes.add(item(seq), false, at(0))));
    lanes.due(at(0), 10, &mut || 0.5);
    lanes.stored(item(2).id, at(1));
    assert!(lanes.due(at(2), 10, &mut || 0.5).is_empty());
    lanes.end(item(1).id, at(2));
    let due = lanes.due(at(2), 10, &mut || 0.5);
    assert_eq!(
        due.iter().map(|due| (due.item.seq, due.after, due.what)).collect::<Vec<_>>(),
        [(2, None, Act::Ask)]
    );
}

#[test]
fn only_what_may_have_arrived_is_marked_when_it_goes_elsewhere() {
    let mut lanes = Lanes::new(Pace::default());
    let gamma = || HostName::new("gamma").unwrap();
    lanes.add(item(1), false, at(0));
    lanes.add(item(2), true, at(0));
    assert!(!lanes.readdressed(item(1).id, gamma()).unwrap().handled);
    assert!(lanes.readdressed(item(2).id, gamma()).unwrap().handled);
    lanes.due(at(0), 1, &mut || 0.5);
    let moved = lanes.readdressed(item(1).id, gamma()).unwrap();
    assert!(moved.handled);
    lanes.readdress(moved, at(1));
    let again = lanes.readdressed(item(1).id, HostName::new("delta").unwrap()).unwrap();
    assert!(again.handled && lanes.by_host(at(2)).contains_key(&gamma()));
}
