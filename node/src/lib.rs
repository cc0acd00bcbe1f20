//! The node agent: the mailboxes, teammates and runners of one host.
//!
//! | room | what it holds |
//! |---|---|
//! | [`directory`] | who lives where, as last told by the authority |
//! | [`port`] | what a node needs of the authority |

pub mod children;
pub mod directory;
pub mod history;
pub mod port;
pub mod runner;
pub mod teammate;
