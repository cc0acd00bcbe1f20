//! The coordinator: the authority over teams, tasks and homes, the lead's mailbox, HTTP and the command line.
//!
//! | room | what it holds |
//! |---|---|
//! | [`data`] | the data directory and who holds it |
//! | [`events`] | what happened, for followers |
//! | [`http`] | the JSON API and the event stream |
//! | [`live`] | what teammates last said of themselves |
//! | [`view`] | the one read model, and why things do not move |
//! | [`prefix`], [`signals`] | ids by their beginning; SIGINT and SIGTERM |

pub mod data;
pub mod events;
pub mod http;
pub mod live;
pub mod prefix;
pub mod signals;
pub mod view;
