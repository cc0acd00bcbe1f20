//! What the node and the coordinator both call.
//!
//! | room | what it holds |
//! |---|---|
//! | [`name`], [`generation`], [`lane`] | the words: names, grants, numbering |
//! | [`clock`] | time as an argument, the hybrid logical clock |
//! | [`message`], [`identity`] | the envelope and who vouches for it |
//! | [`team`], [`task`] | members, hosts, schedules, tasks, as data |
//! | [`limits`], [`quantity`] | every limit and default, one table; durations and sizes as people write them |
//! | [`refusal`], [`codes`] | errors as users see them |
//! | [`durable`] | the one place that knows write, sync, rename, sync |
//! | [`wire`] | requests and replies between CLI, coordinator and node |
//! | [`supervise`], [`telemetry`] | tasks that somebody joins; logs |

pub mod clock;
pub mod codes;
pub mod durable;
pub mod generation;
pub mod identity;
pub mod lane;
pub mod limits;
pub mod message;
pub mod name;
pub mod quantity;
pub mod refusal;
pub mod supervise;
pub mod task;
pub mod team;
pub mod telemetry;
pub mod wire;
