//! The node agent: the mailboxes, teammates and runners of one host.
//!
//! | room | what it holds |
//! |---|---|
//! | [`directory`] | who lives where, as last told by the authority |
//! | [`mailbox`] | one directory an agent, one file a message |
//! | [`port`] | what a node needs of the authority |

pub mod directory;
pub mod mailbox;
pub mod port;
