//! Which data directory may be which host.

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;

use super::command::{Decided, Decision, HostStart};
use super::decide::refuse;
use super::state::State;

impl State {
    /// A start is taken as it is only if it is a later one of the same data directory. What may be a blank
    /// disk, an old backup, a clone or a changed name needs `adopt`, which gives host and agents new grants.
    pub(super) fn host_start(&self, start: &HostStart, adopt: bool) -> Result<Decided, Refusal> {
        let limit = self.limits.hosts as usize;
        if !self.hosts.contains_key(&start.host) && self.hosts.size() >= limit {
            return Err(refuse(Code::LimitReached, format!("there are {limit} hosts, the limit")));
        }
        let doubt = self.doubt(start);
        match doubt {
            Some(why) if !adopt => {
                Err(refuse(Code::DataForeign, format!("host \"{}\" cannot be taken in: {why}", start.host))
                    .cause("a blank disk, an old backup, a clone or a changed name look like this")
                    .next(format!("posthouse hosts adopt {}", start.host)))
            }
            Some(_) => Ok(Decided::Journal(Decision::HostStarted { start: start.clone(), renewed: true })),
            None => Ok(Decided::Journal(Decision::HostStarted { start: start.clone(), renewed: false })),
        }
    }

    fn doubt(&self, start: &HostStart) -> Option<String> {
        let elsewhere = self.hosts.values().find(|h| h.data_id == start.data_id && h.name != start.host);
        if let Some(other) = elsewhere {
            return Some(format!("its data directory is that of host \"{}\"", other.name));
        }
        let known = self.hosts.get(&start.host)?;
        if known.data_id != start.data_id {
            return Some(format!("its data directory is {}, known is {}", start.data_id, known.data_id));
        }
        let behind = start.boot <= known.boot;
        behind.then(|| format!("this is its start {}, start {} is known", start.boot, known.boot))
    }
}
