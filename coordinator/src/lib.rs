//! The coordinator: the authority over teams, tasks and homes.
//!
//! | room | what it holds |
//! |---|---|
//! | [`authority`] | the decisions, pure, and the one loop that makes them durable |
//! | [`journal`] | the log of decisions that the state is a fold of |

pub mod authority;
pub mod journal;
