//! What hosts last said, and what may be said of them from how long ago that was. Not durable: after a restart
//! it fills again from their beats; that a host is lost stands in the journal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthouse_node::bus::wire::{Beat, MailCounts, Outgoing};
use posthouse_node::inspect::Rest;
use posthouse_shared::limits::Limits;
use posthouse_shared::name::{AgentId, HostName};
use posthouse_shared::team::HostState;

/// After how long a silence a host is what.
#[derive(Debug, Clone, Copy)]
struct Spans {
    unreachable: Duration,
    lost: Duration,
}

/// The last words of all hosts, and of the bus. Clones share it. Times are those of the clock that counts from
/// boot.
#[derive(Debug, Clone)]
pub struct Beats(Arc<Mutex<Inner>>, Spans);

#[derive(Debug, Default)]
struct Inner {
    hosts: BTreeMap<HostName, Host>,
    /// Since when the bus is fine, where it is.
    fine: Option<Duration>,
}

#[derive(Debug)]
struct Host {
    heard: Duration,
    beat: Option<Beat>,
}

impl Beats {
    /// Nothing is heard yet. Silences are judged by these limits.
    pub fn new(limits: &Limits) -> Self {
        let spans = Spans {
            unreachable: Duration::from_millis(limits.unreachable_after_ms),
            lost: Duration::from_millis(limits.lost_after_ms),
        };
        Self(Arc::default(), spans)
    }

    /// Whether the bus is fine now.
    pub fn bus(&self, fine: bool, now: Duration) {
        let mut inner = self.lock();
        inner.fine = fine.then(|| inner.fine.unwrap_or(now));
    }

    /// A host was heard.
    pub fn heard(&self, host: &HostName, now: Duration) {
        let mut inner = self.lock();
        match inner.hosts.get_mut(host) {
            Some(known) => known.heard = known.heard.max(now),
            None => {
                inner.hosts.insert(host.clone(), Host { heard: now, beat: None });
            }
        }
    }

    /// A host beat.
    pub fn beat(&self, host: &HostName, beat: Beat, now: Duration) {
        self.lock().hosts.insert(host.clone(), Host { heard: now, beat: Some(beat) });
    }

    /// A host was asked how the teammates of a team are.
    pub fn rest(&self, host: &HostName, rest: Rest) {
        let mut inner = self.lock();
        let Some(beat) = inner.hosts.get_mut(host).and_then(|host| host.beat.as_mut()) else { return };
        beat.outgoing = rest.outgoing;
        for (agent, counts) in rest.mail {
            match beat.mail.iter_mut().find(|(known, _)| *known == agent) {
                Some((_, known)) => *known = counts,
                None => beat.mail.push((agent, counts)),
            }
        }
    }

    /// How long nothing was heard of a host, where anything ever was.
    pub fn silent_for(&self, host: &HostName, now: Duration) -> Option<Duration> {
        self.lock().hosts.get(host).map(|host| now.saturating_sub(host.heard))
    }

    /// What is on its way from a host, at its last beat.
    pub fn outgoing(&self, host: &HostName) -> Option<Outgoing> {
        self.lock().hosts.get(host)?.beat.as_ref().map(|beat| beat.outgoing)
    }

    /// Forgets a host that is none any more.
    pub fn forget(&self, host: &HostName) {
        self.lock().hosts.remove(host);
    }

    /// Where the mail of a mailbox elsewhere was at its host's last beat.
    pub fn mail(&self, host: &HostName, agent: &AgentId) -> Option<MailCounts> {
        let inner = self.lock();
        let beat = inner.hosts.get(host)?.beat.as_ref()?;
        beat.mail.iter().find(|(name, _)| name == agent).map(|(_, counts)| *counts)
    }

    /// How a host is; `lost` is what the journal says.
    pub fn state(&self, host: &HostName, lost: bool, now: Duration) -> HostState {
        let inner = self.lock();
        let known = inner.hosts.get(host);
        let draining = known.and_then(|host| host.beat.as_ref()).is_some_and(|beat| beat.draining);
        judge(self.1, inner.fine, known.map(|host| host.heard), lost, draining, now)
    }

    /// Whether a host has been silent for so long that it is lost.
    pub fn is_lost(&self, host: &HostName, now: Duration) -> bool {
        let inner = self.lock();
        silence(inner.fine, inner.hosts.get(host).map(|host| host.heard), now)
            .is_some_and(|silence| silence > self.1.lost)
    }

    /// Whether a host was heard lately.
    pub fn is_heard(&self, host: &HostName, now: Duration) -> bool {
        let heard = self.lock().hosts.get(host).map(|host| host.heard);
        heard.is_some_and(|heard| now.saturating_sub(heard) < self.1.unreachable)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a host has been silent that could have been heard; nothing while the bus is away.
fn silence(fine: Option<Duration>, heard: Option<Duration>, now: Duration) -> Option<Duration> {
    fine.map(|fine| now.saturating_sub(heard.unwrap_or(fine).max(fine)))
}

fn judge(
    spans: Spans,
    fine: Option<Duration>,
    heard: Option<Duration>,
    lost: bool,
    draining: bool,
    now: Duration,
) -> HostState {
    let Some(silence) = silence(fine, heard, now) else { return HostState::Unknown };
    match heard {
        _ if lost || silence > spans.lost => HostState::Lost,
        _ if silence > spans.unreachable => HostState::Unreachable,
        None => HostState::Unknown,
        Some(_) if draining => HostState::Draining,
        Some(_) => HostState::Up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: Spans = Spans { unreachable: s(10), lost: s(30) };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_host_is_unreachable_then_lost() {
        let state = |now| judge(SPANS, Some(s(0)), Some(s(100)), false, false, s(now));
        assert_eq!(state(105), HostState::Up);
        assert_eq!(state(111), HostState::Unreachable);
        assert_eq!(state(131), HostState::Lost);
        assert_eq!(judge(SPANS, Some(s(0)), Some(s(100)), false, true, s(101)), HostState::Draining);
    }

    #[test]
    fn nothing_is_said_of_hosts_while_the_bus_is_away_nor_right_after() {
        assert_eq!(judge(SPANS, None, Some(s(0)), false, false, s(500)), HostState::Unknown);
        assert_eq!(judge(SPANS, Some(s(495)), Some(s(0)), false, false, s(500)), HostState::Up);
        assert_eq!(judge(SPANS, Some(s(495)), None, false, false, s(500)), HostState::Unknown);
        assert_eq!(judge(SPANS, Some(s(495)), Some(s(0)), false, false, s(510)), HostState::Unreachable);
    }
}
