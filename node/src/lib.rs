//! The node agent: the mailboxes, teammates and runners of one host.
//!
//! | room | what it holds |
//! |---|---|
//! | [`mailbox`] | one directory an agent, one file a message |
//! | [`post`] | the accept path: number, stamp, seal, store |
//! | [`trace_index`] | where each message has been |
//! | [`host_keys`] | keys of this host and of others, on disk |
//! | [`history`] | what entered an agent's turns, and what came of them |
//! | [`relay`] | mail from host to host |
//! | [`runner`] | the programs that are the agents |
//! | [`bus`] | the node's side of NATS: join, orders, beats, questions |
//! | [`children`] | child processes that must not outlive their node |
//! | [`teammate`] | one loop an agent: mail, tasks, commands, turns |
//! | [`schedule`] | messages at times |
//! | [`link`] | the bus between hosts, as the relay sees it |
//! | [`local`] | the socket that turns talk to |
//! | [`upkeep`] | what keeps mailboxes bounded |
//! | [`data`] | the data directory and who holds it |
//! | [`directory`] | who lives where, as last told by the authority |
//! | [`outbox`] | copies of what is on its way to other hosts |
//! | [`port`] | what a node needs of the authority |
//! | [`node`] | all of it, started and closed |

pub mod bus;
pub mod children;
pub mod data;
pub mod directory;
pub mod history;
pub mod host_keys;
pub mod inspect;
pub mod link;
pub mod local;
pub mod mailbox;
pub mod node;
pub mod outbox;
pub mod port;
pub mod post;
pub mod relay;
pub mod runner;
pub mod schedule;
pub mod signals;
pub mod teammate;
pub mod trace_index;
pub mod upkeep;
