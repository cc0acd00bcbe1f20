//! Teammates: long-lived agents with a mailbox, a history and a session. One loop each.
//!
//! | file | what it decides |
//! |---|---|
//! | [`life`] | states and commands, pure |
//! | [`plan`] | what a turn came to, pure |
//! | [`recover`] | what a crash left, pure |
//! | [`control`] | which messages are commands, pure |
//! | [`pause`] | how long to wait after a failure, pure |

pub mod control;
pub mod life;
pub mod pause;
pub mod plan;
pub mod recover;
