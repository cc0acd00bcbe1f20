//! What the acceptance tests share: the real `posthouse` under a harness that starts, kills and watches it.
//!
//! | room | what it holds |
//! |---|---|
//! | [`home`] | a data directory with its logs, kept when its test fails; the command line on it |
//! | [`cluster`] | a running coordinator: ready, kill -9, SIGTERM, died by itself; waiting for facts |
//! | [`mod@bench`] | what `mailbox-bench` measures |
//! | [`api`] | requests over HTTP without the command line, for load and races |
//! | [`events`] | what happens, as it happens |
//! | [`nats`] | a real NATS server |
//! | [`processes`] | whether a process lives |
//! | [`recorded`] | what scripted teammates were given, turn by turn |
//! | [`journal`] | the contract of a journal |
//! | [`ledger`] | what was accepted, and the check that each of it came once |
//! | [`rig`] | a file system on a loop device, and cutting its power |
//! | [`repository`] | the project's own files, for tests that read them |
//! | [`skip`] | how a test says that it could not do its work here |
//! | [`tree`] | a source tree with known counts |
//!
//! Everything here panics when it cannot go on: it runs in tests only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a harness of tests: what fails here fails the test, and nothing it writes must survive a crash"
)]

pub mod api;
pub mod bench;
pub mod cluster;
pub mod events;
pub mod home;
pub mod journal;
pub mod ledger;
pub mod nats;
pub mod processes;
pub mod recorded;
pub mod repository;
pub mod rig;
pub mod skip;
pub mod tree;
