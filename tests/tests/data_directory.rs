//! One data directory belongs to one process: a second one is told who holds it, and kill -9 leaves no lock behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::os::unix::fs::PermissionsExt;

use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::recorded::wait_for_text;

#[test]
fn a_second_up_on_one_data_directory_is_told_who_holds_it() {
    let home = Home::new();
    let first = Posthouse::up(&home);
    let Err(second) = Posthouse::try_up(&home, &[]) else { panic!("two processes hold one data directory") };
    assert_eq!(second.status, 3, "{}", second.log);
    assert!(second.log.contains("PH0501"), "{}", second.log);
    assert!(second.log.contains(&first.pid().to_string()), "{}", second.log);
    assert!(second.log.contains(first.url()), "{}", second.log);
    // The first is none the worse for it.
    first.team();
    first.kill9();
    let third = Posthouse::up(&home);
    third.ok(&["team", "show", "crew"]);
    assert_eq!(third.term(), 0);
}

#[test]
fn the_token_is_for_its_owner_alone_and_is_asked_for() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    let mode = std::fs::metadata(home.data().join("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut command = home.command(["team", "ls", "--json"]);
    command.env("POSTHOUSE_URL", posthouse.url()).env("POSTHOUSE_TOKEN", "not-the-token");
    let refused = posthouse_tests::home::Output::of(&mut command).ended(3).json();
    assert_eq!(refused["error"]["code"], "PH0002");
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let home = Home::new();
    std::fs::create_dir(home.data()).unwrap();
    std::fs::write(home.data().join("host.json"), "{\"v\":99}").unwrap();
    let Err(not) = Posthouse::try_up(&home, &[]) else { panic!("a foreign directory was taken") };
    assert_eq!(not.status, 3, "{}", not.log);
    assert_eq!(std::fs::read_to_string(home.data().join("host.json")).unwrap(), "{\"v\":99}");
}

#[test]
fn what_a_decision_asks_for_is_tried_again_until_it_can_be_done() {
    let home = Home::new();
    for text in ["WARN", "ERROR"] {
        home.expect_log(text);
    }
    let posthouse = Posthouse::up(&home);
    // The team's mailboxes cannot be made while a file is in the way.
    let in_the_way = home.data().join("mailboxes").join(TEAM);
    std::fs::write(&in_the_way, "").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| posthouse.team());
        wait_for_text(posthouse.log(), "to be tried again");
        std::fs::remove_file(&in_the_way).unwrap();
    });
    posthouse.ok(&["inbox", "--peek"]);
    assert_eq!(posthouse.term(), 0);
}
