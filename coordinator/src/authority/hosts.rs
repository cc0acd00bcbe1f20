//! Which data directory may be which host.

use posthouse_shared::codes::Code;
use posthouse_shared::name::HostName;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Member, Standing};

use super::command::{Decided, Decision, HostChange, HostStart, Reply};
use super::decide::refuse;
use super::state::{Host, JoinToken, State};

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
            doubt => Ok(Decided::Journal(Decision::HostStarted {
                start: start.clone(),
                renewed: doubt.is_some(),
                key: None,
                token: None,
            })),
        }
    }

    /// A start elsewhere. A new host shows a join token; a known one is known by its key, and shows a
    /// replacement token where it has another; what may be an old backup or a clone needs `hosts adopt`.
    pub(super) fn host_join(
        &self,
        start: &HostStart,
        key: &str,
        token: Option<&str>,
    ) -> Result<Decided, Refusal> {
        let host = &start.host;
        if self.leader.as_ref().is_some_and(|leader| leader.host == *host) {
            return Err(refuse(Code::NameTaken, format!("\"{host}\" is the coordinator's own host"))
                .next("posthouse-node --name OTHER"));
        }
        let joined = |renewed, token: Option<&str>| {
            let (start, key, token) = (start.clone(), Some(key.to_owned()), token.map(str::to_owned));
            Ok(Decided::Journal(Decision::HostStarted { start, renewed, key, token }))
        };
        let Some(known) = self.hosts.get(host) else {
            let Decided::Journal(_) = self.host_start(start, false)? else {
                return Ok(Decided::Answer(Reply::Nothing));
            };
            let hash = self.join_token(host, token)?;
            return match &self.tokens.get(hash).and_then(|token| token.replace.clone()) {
                None => joined(false, Some(hash)),
                Some(other) => Err(refuse(
                    Code::Unauthorized,
                    format!("the join token is for the place of host \"{other}\", not for \"{host}\""),
                )
                .next("posthouse hosts token")),
            };
        };
        if known.key.as_deref() == Some(key) {
            return match self.doubt(start) {
                None => joined(false, None),
                Some(_) if known.adopt => joined(true, None),
                Some(_) => self.host_start(start, false),
            };
        }
        let replacing = |hash: &&str| {
            self.tokens.get(*hash).is_some_and(|t| t.used_by.is_none() && t.replace.as_ref() == Some(host))
        };
        match token.filter(replacing) {
            Some(hash) => joined(true, Some(hash)),
            None => {
                let text =
                    format!("host \"{host}\" is known with another key: this is not its data directory");
                Err(refuse(Code::DataForeign, text)
                    .cause("a second host of that name, or a blank disk, looks like this")
                    .next(format!("posthouse hosts token --replace {host}")))
            }
        }
    }

    fn join_token<'t>(&self, host: &HostName, token: Option<&'t str>) -> Result<&'t str, Refusal> {
        let refusal = |text: String| {
            Err(refuse(Code::Unauthorized, text).next("posthouse hosts token")).map_err(|refusal: Refusal| {
                refusal.next(format!("posthouse-node --name {host} --join TOKEN"))
            })
        };
        let Some(hash) = token else {
            return refusal(format!("host \"{host}\" is not known, and showed no join token"));
        };
        match self.tokens.get(hash) {
            Some(JoinToken { used_by: None, .. }) => Ok(hash),
            Some(JoinToken { used_by: Some(by), .. }) => {
                refusal(format!("the join token was used by host \"{by}\""))
            }
            None => refusal("the join token is not one of this coordinator".to_owned()),
        }
    }

    pub(super) fn host_token(&self, hash: &str, replace: Option<&str>) -> Result<Decided, Refusal> {
        let replace = replace.map(|name| self.find_host(name)).transpose()?.map(|host| host.name.clone());
        let open = self.tokens.values().filter(|token| token.used_by.is_none()).count();
        if open >= self.limits.hosts as usize {
            return Err(refuse(Code::LimitReached, format!("{open} join tokens are unused, the limit")));
        }
        Ok(Decided::Journal(Decision::Host { what: HostChange::Token { hash: hash.to_owned(), replace } }))
    }

    pub(super) fn host_adopt(&self, host: &str) -> Result<Decided, Refusal> {
        let host = self.find_host(host)?.name.clone();
        Ok(Decided::Journal(Decision::Host { what: HostChange::Adopted { host } }))
    }

    /// A host with nobody on it may go; its name is free afterwards, for a new join token.
    pub(super) fn host_remove(&self, host: &str) -> Result<Decided, Refusal> {
        let host = self.find_host(host)?.name.clone();
        if self.leader.as_ref().is_some_and(|leader| leader.host == host) {
            return Err(refuse(Code::HostInUse, format!("\"{host}\" is the coordinator's own host")));
        }
        let mut living = Vec::new();
        for (name, team) in self.teams.iter() {
            let here = |m: &&Member| m.host == host && m.standing != Standing::Shutdown;
            living.extend(team.members.values().filter(here).map(|m| format!("{}@{name}", m.name)));
        }
        if living.is_empty() {
            return Ok(Decided::Journal(Decision::Host { what: HostChange::Removed { host } }));
        }
        let first = living.first().and_then(|id| id.split('@').next()).unwrap_or_default().to_owned();
        let more = living.len().saturating_sub(5);
        living.truncate(5);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(refuse(
            Code::HostInUse,
            format!("teammates live on host \"{host}\": {}{rest}", living.join(", ")),
        )
        .next(format!("posthouse shutdown {first}")))
    }

    /// Lost: the claims of its teammates end. Said once; a host that is not known is nobody's loss.
    pub(super) fn host_seen(&self, host: &HostName, lost: bool) -> Decided {
        let Some(known) = self.hosts.get(host).filter(|known| known.lost.is_some() != lost) else {
            return Decided::Answer(Reply::Nothing);
        };
        let host = known.name.clone();
        if !lost {
            return Decided::Journal(Decision::Host { what: HostChange::Heard { host } });
        }
        let mut released = Vec::new();
        for (name, team) in self.teams.iter() {
            for member in team.members.values().filter(|member| member.host == host) {
                let held = team.board.held_by(&member.name);
                released.extend(held.map(|task| (name.clone(), task.id.clone())));
            }
        }
        Decided::Journal(Decision::Host { what: HostChange::Lost { host, released } })
    }

    /// The host that a user named, or a refusal with the nearest names.
    fn find_host(&self, name: &str) -> Result<&Host, Refusal> {
        self.hosts.get(name).ok_or_else(|| {
            let known = self.hosts.keys().map(|name| (name.as_str(), None));
            refuse(Code::UnknownHost, format!("no host {name:?}"))
                .closest_to(name, known)
                .next("posthouse hosts ls")
        })
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
