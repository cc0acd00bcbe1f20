//! Teammates.
pub mod life;
