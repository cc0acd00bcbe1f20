//! The coordinator: the authority over teams, tasks and homes, the lead's mailbox, HTTP and the command line.
//!
//! | room | what it holds |
//! |---|---|
//! | [`journal`] | the log of decisions that the state is a fold of |
//! | [`authority`] | the decisions, pure, and the one loop that makes them durable |
//! | [`service`] | requests in, answers out, effects carried out |
//! | [`live`] | what teammates last said of themselves |
//! | [`beats`], [`bus`] | what other hosts last said; the authority's side of NATS |
//! | [`lead`] | the mailbox of a lead that is a person |
//! | [`view`] | the one read model, and why things do not move |
//! | [`events`] | what happened, for followers |
//! | [`http`] | the JSON API and the event stream |
//! | [`config`] | settings by layers, each with its origin; the only reader of the environment |
//! | [`data`] | the data directory and who holds it |
//! | [`team_file`] | team files: read, checked, resolved |
//! | [`cli`] | the command line |
//! | [`start`], [`up`], [`run`] | a coordinator started and closed; the commands that do so |
//! | [`prefix`], [`signals`] | ids by their beginning; SIGINT and SIGTERM |

pub mod authority;
pub mod beats;
pub mod bus;
pub mod cli;
pub mod config;
pub use posthouse_node::data;
pub mod events;
pub mod http;
pub mod journal;
pub mod lead;
pub mod live;
pub mod prefix;
pub mod run;
pub mod service;
pub mod start;
pub mod team_file;
pub mod up;
pub mod view;
