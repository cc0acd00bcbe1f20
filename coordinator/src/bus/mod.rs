//! The authority's side of the bus: hosts ask here, beat here, and are nudged from here.
//!
//! | file | what it does |
//! |---|---|
//! | [`guard`] | whose word it is: keys, times, nonces |
//! | `serve` | the loops: questions, beats, nudges, silence; the relay's stream and consumers, made by nobody else |

mod guard;
mod serve;

pub use guard::Guard;
pub use serve::{Bus, start};
