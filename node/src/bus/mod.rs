//! The node's side of the bus: how a host without a coordinator of its own joins, hears its orders, beats, and
//! asks the authority.
//!
//! | file | what it does |
//! |---|---|
//! | [`wire`] | what is said |
//! | [`connect`] | the connection, and what the server must be able to do |
//! | [`ask`] | signed questions, answered |
//! | [`port`] | the authority as teammates of this host see it |
//! | [`orders`] | what the authority says of this host, made so |
//! | [`beats`] | signs of life, and the news that their answers bring |
//! | [`looks`] | what the coordinator asks: mail, logs, quarantine, ways of messages |
//! | [`guard`] | whose word it is: keys, times, nonces; on both sides |
//! | [`daemon`] | all of it, started and closed |

pub mod ask;
pub mod beats;
pub mod connect;
pub mod daemon;
pub mod guard;
pub mod looks;
pub mod orders;
pub mod port;
pub mod wire;
