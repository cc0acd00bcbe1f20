//! The node agent: the mailboxes, teammates and runners of one host.
//!
//! | room | what it holds |
//! |---|---|
//! | [`directory`] | who lives where, as last told by the authority |
//! | [`mailbox`] | one directory an agent, one file a message |
//! | [`post`] | the accept path: number, stamp, seal, store |
//! | [`trace_index`] | where each message has been |
//! | [`port`] | what a node needs of the authority |

pub mod directory;
pub mod mailbox;
pub mod port;
pub mod post;
pub mod trace_index;
