//! The node agent: the mailboxes, teammates and runners of one host.
//!
//! | room | what it holds |
//! |---|---|
//! | [`mailbox`] | one directory an agent, one file a message |
//! | [`post`] | the accept path: number, stamp, seal, store |
//! | [`trace_index`] | where each message has been |
//! | [`history`] | what an agent heard and how its turns ended |
//! | [`teammate`] | one agent's life and turns |
//! | [`runner`], [`children`] | agent programs, and the process groups that are ours |
//! | [`directory`] | who lives where, as last told by the authority |
//! | [`port`] | what a node needs of the authority |

pub mod children;
pub mod directory;
pub mod history;
pub mod mailbox;
pub mod port;
pub mod post;
pub mod runner;
pub mod teammate;
pub mod trace_index;
