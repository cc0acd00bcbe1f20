//! The coordinator: the authority over teams, tasks and homes, the lead's mailbox, HTTP and the command line.
//!
//! | room | what it holds |
//! |---|---|
//! | [`data`] | the data directory and who holds it |
//! | [`events`] | what happened, for followers |
//! | [`http`] | the JSON API and the event stream |

pub mod data;
pub mod events;
pub mod http;
