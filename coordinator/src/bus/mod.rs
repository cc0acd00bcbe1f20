//! The authority's side of the bus: hosts ask here, beat here, and are nudged from here.
//!
//! | file | what it does |
//! |---|---|
//! | `serve` | the loops: questions, beats, nudges, silence; the relay's stream and consumers, made by nobody else |

mod serve;

pub use serve::{Bus, start};
