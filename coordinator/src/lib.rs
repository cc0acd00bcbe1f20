//! The coordinator: the authority over teams, tasks and homes, the lead's mailbox, HTTP and the command line.
//!
//! | room | what it holds |
//! |---|---|
//! | [`authority`] | the decisions, pure, and the one loop that makes them durable |
//! | [`journal`] | the log of decisions that the state is a fold of |
//! | [`cli`] | the command line: arguments, client, tables, errors |
//! | [`config`] | settings by layers, each with its origin; the only reader of the environment |
//! | [`data`] | the data directory and who holds it |
//! | [`events`] | what happened, for followers |
//! | [`http`] | the JSON API and the event stream |
//! | [`live`] | what teammates last said of themselves |
//! | [`view`] | the one read model, and why things do not move |
//! | [`prefix`], [`signals`] | ids by their beginning; SIGINT and SIGTERM |
//! | [`team_file`] | team files: read, checked, resolved |

pub mod authority;
pub mod cli;
pub mod config;
pub mod data;
pub mod events;
pub mod http;
pub mod journal;
pub mod live;
pub mod prefix;
pub mod signals;
pub mod team_file;
pub mod view;
