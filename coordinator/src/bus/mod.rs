//! The authority's side of the bus: hosts ask here, beat here, and are nudged from here.
//!
//! | file | what it does |
//! |---|---|
//! | [`guard`] | whose word it is: keys, times, nonces |
//! | `streams` | the relay's stream and consumers, made by nobody else |
//! | `serve` | the loops: questions, beats, nudges, silence |

mod guard;
mod serve;
mod streams;

pub use guard::Guard;
pub use serve::{Bus, start};
