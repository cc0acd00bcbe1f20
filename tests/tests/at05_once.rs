//! at05, on one host: one event arrived up to four times, a turn each. Here an id enters a teammate's history once,
//! whatever is sent again, dropped into the mailbox again, or started again.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use posthouse_shared::name::MessageId;
use posthouse_tests::cluster::Posthouse;
use posthouse_tests::home::{Home, TEAM};
use posthouse_tests::recorded::{
    assert_histories_hold_inputs_once, assert_injected_once, attempts, recorder,
};

#[test]
fn at05_an_id_is_injected_once_however_often_it_comes() {
    let home = Home::new();
    home.expect_log("WARN");
    let turns = home.dir("turns");
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let command = recorder(&turns);
    posthouse.spawn("reader", &command.iter().map(String::as_str).collect::<Vec<_>>());
    let id = MessageId::fresh().to_string();
    let send = ["send", "reader", "once", "--id", &id];
    for _ in 0..4 {
        assert_eq!(posthouse.json(&send)["id"], id.as_str());
    }
    posthouse.wait("agent/reader=idle");
    // After it is done, and after a restart.
    assert_eq!(posthouse.json(&send)["duplicate"], true);
    posthouse.kill9();

    // The file itself comes back from somewhere.
    let mailbox = home.data().join("mailboxes").join(TEAM).join("reader");
    let done: Vec<_> = std::fs::read_dir(mailbox.join("done")).unwrap().flatten().collect();
    let copy = done.iter().find(|entry| std::fs::read_to_string(entry.path()).unwrap().contains(&id));
    let copy = copy.unwrap_or_else(|| panic!("the message is not in done"));
    std::fs::copy(copy.path(), mailbox.join("ready").join(copy.file_name())).unwrap();

    let posthouse = Posthouse::up(&home);
    assert_eq!(posthouse.json(&send)["duplicate"], true);
    posthouse.send("reader", "afterwards");
    posthouse.wait("agent/reader=idle");
    assert_eq!(attempts(&turns)[&id].len(), 1);
    assert_injected_once(&turns);
    assert_eq!(posthouse.json(&["trace", &id])["state"], "done");
    assert_eq!(posthouse.term(), 0);
    assert_histories_hold_inputs_once(home.data());
}

#[test]
fn at05_the_same_id_with_other_content_is_refused() {
    let home = Home::new();
    let posthouse = Posthouse::up(&home);
    posthouse.team();
    let id = MessageId::fresh().to_string();
    posthouse.ok(&["send", "lead", "one", "--id", &id]);
    let refused = posthouse.cli(&["send", "lead", "two", "--id", &id, "--json"]).ended(3).json();
    assert_eq!(refused["error"]["code"], "PH0303");
    let inbox = posthouse.json(&["inbox", "--peek"]);
    assert_eq!(inbox["messages"].as_array().unwrap().len(), 1, "{inbox:#}");
}
