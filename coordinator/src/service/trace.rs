//! Where one message is, and since when. The mailbox is the truth; the trace index adds times where it still
//! has them.

use posthouse_node::inspect::{Look, RECEIPT, Way};
use posthouse_node::post::Posted;
use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentId, HostName, MessageId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::replies::{Stage, TraceReply, TraceStep};
use serde_json::Value;

use super::Service;
use crate::prefix;
use crate::view::ago;

impl Service {
    pub(super) fn trace(&self, caller: &Caller, id: &str) -> Result<Value, Refusal> {
        let reply = self.traced(caller, id)?;
        self.answer_with(reply)
    }

    /// A message's way, by its id or an unambiguous prefix, put together from what this host, the sender's and the
    /// recipient's know of it. An agent sees its own team's.
    pub(super) fn traced(&self, caller: &Caller, wanted: &str) -> Result<TraceReply, Refusal> {
        let hex = wanted.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if !hex || wanted.len() < prefix::CHARS_MIN {
            return Err(unknown(wanted));
        }
        let team = match caller {
            Caller::Operator => None,
            Caller::Agent { id, .. } => Some(id.team.clone()),
        };
        let state = self.authority().state();
        let mut ways = self.node()?.ways(wanted, self.visible(caller), team.as_ref())?;
        let mut homes = self.other_hosts(&state);
        if !ways.is_empty() {
            // Others than the sender's and the recipient's host know nothing of it.
            let ends = ways.iter().flat_map(|way| [&way.from, &way.to]);
            let ends: Vec<HostName> = ends
                .filter_map(|end| AgentId::try_from(end.clone()).ok())
                .map(|agent| self.home_of(&state, &agent))
                .collect();
            homes.retain(|host| ends.contains(host));
        }
        let mut unseen = Vec::new();
        for host in homes {
            let look = Look::Ways { wanted: wanted.to_owned(), team: team.clone() };
            match self.ask_host::<Vec<Way>>(&host, look) {
                Ok(known) => ways.extend(known),
                Err(refusal) if refusal.code == Code::HostUnreachable => unseen.push(host),
                Err(refusal) => return Err(refusal),
            }
        }
        let not_found = || {
            unseen.iter().fold(unknown(wanted), |refusal, host| {
                refusal.cause(format!("host \"{host}\" {}, and could not be asked", self.how(host)))
            })
        };
        let ids: Vec<String> = ways.iter().map(|way| way.id.to_string()).collect();
        let found = prefix::resolve(wanted, ids.iter().map(String::as_str), not_found)?;
        let id: MessageId = found.parse().map_err(|_| unknown(wanted))?;
        ways.retain(|way| way.id == id);
        let whole = put_together(ways).ok_or_else(not_found)?;
        Ok(self.told(whole, &unseen))
    }

    fn told(&self, whole: Whole, unseen: &[HostName]) -> TraceReply {
        let Whole { way, state } = whole;
        let at = way.steps.iter().rev().find(|step| step.stage == state);
        let since = at.and_then(|step| step.at);
        let host = at.map_or_else(|| self.host().clone(), |step| step.host.clone());
        let span = since.map(|since| format!(" for {}", ago(self.now().since(since)))).unwrap_or_default();
        let word = format!("{state:?}").to_lowercase();
        let going = match (&way.going, state) {
            (Some(to), Stage::Accepted) => format!(", on its way to {to}"),
            (Some(_) | None, _) => String::new(),
        };
        let silent: String = unseen
            .iter()
            .map(|host| format!("; {host} {}, this is the last that is known", self.how(host)))
            .collect();
        let id = way.id;
        let next = match state {
            Stage::Quarantined => vec![
                format!("posthouse quarantine show {id}"),
                format!("posthouse quarantine redeliver {id}"),
            ],
            Stage::Accepted | Stage::Stored | Stage::Released | Stage::Processing => {
                vec![format!("posthouse why {id}")]
            }
            Stage::Done | Stage::Dropped => Vec::new(),
        };
        TraceReply {
            id,
            kind: way.kind,
            from: way.from,
            to: way.to,
            lane: way.lane,
            bytes: way.bytes,
            state,
            since,
            summary: format!("{word} on {host}{span}{going}{silent}"),
            trace_id: way.trace_id,
            steps: way.steps,
            next,
        }
    }

    /// Where a message is, by its id or an unambiguous prefix.
    pub(super) fn stage_of(&self, caller: &Caller, wanted: &str) -> Result<(MessageId, Stage), Refusal> {
        self.traced(caller, wanted).map(|reply| (reply.id, reply.state))
    }

    /// A message was sent: followers are told how far it is, where that is news.
    pub(super) fn posted(&self, posted: &Posted) {
        if let Some(what) = posted.event(self.host()) {
            self.0.setup.events.publish(self.now(), what);
        }
        self.live().bump();
    }

    /// Whose mailboxes a caller may look into.
    fn visible(&self, caller: &Caller) -> Vec<AgentId> {
        let state = self.authority().state();
        let own = |name: &posthouse_shared::name::TeamName| match caller {
            Caller::Operator => true,
            Caller::Agent { id, .. } => id.team == *name,
        };
        let teams = state.teams.iter().filter(|(name, _)| own(name));
        teams
            .flat_map(|(name, team)| {
                team.members.keys().map(|agent| AgentId::new(agent.clone(), name.clone())).collect::<Vec<_>>()
            })
            .collect()
    }
}

fn unknown(wanted: &str) -> Refusal {
    Refusal::new(Code::UnknownMessage, format!("no message {wanted}"))
        .cause("an id is a UUID, or its first 8 characters or more")
        .next("posthouse events")
}

/// A message's way over all hosts that know of it.
struct Whole {
    way: Way,
    state: Stage,
}

/// One way out of what several hosts know. A mailbox that has the message tells its state; then the outbox that
/// still keeps it; a message that is in neither has ended.
fn put_together(ways: Vec<Way>) -> Option<Whole> {
    let here = ways.iter().find_map(|way| way.here);
    let going = ways.iter().find_map(|way| way.going.clone());
    let mut steps: Vec<TraceStep> = Vec::new();
    for step in ways.iter().flat_map(|way| &way.steps).filter(|step| step.detail != RECEIPT) {
        steps.push(step.clone());
    }
    // What a host has itself told is not told again by those who heard it.
    for heard in ways.iter().flat_map(|way| &way.steps).filter(|step| step.detail == RECEIPT) {
        if !steps.iter().any(|step| (step.stage, &step.host) == (heard.stage, &heard.host)) {
            steps.push(heard.clone());
        }
    }
    steps.sort_by_key(|step| (step.at.is_none(), step.at));
    let state = match (here, &going) {
        (Some(here), _) => here,
        (None, Some(_)) => steps.iter().rev().map(|step| step.stage).find(|stage| *stage != Stage::Done)?,
        // Not there any more: pruned after it was done, or dropped.
        (None, None) => match steps.last().map(|step| step.stage) {
            Some(Stage::Dropped) => Stage::Dropped,
            Some(_) | None => Stage::Done,
        },
    };
    let best = ways.iter().position(|way| way.from != "unreadable").unwrap_or(0);
    let way = ways.into_iter().nth(best)?;
    Some(Whole { way: Way { steps, going, ..way }, state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::clock::Stamp;
    use posthouse_shared::message::Kind;

    fn step(at: u64, stage: Stage, host: &str, detail: &str) -> TraceStep {
        let host = HostName::new(host).unwrap();
        TraceStep { at: Some(Stamp::from_nanos(at)), stage, host, detail: detail.to_owned() }
    }

    fn way(steps: Vec<TraceStep>, here: Option<Stage>, going: Option<&str>) -> Way {
        Way {
            id: MessageId::derived(&["m"]),
            kind: Kind::Message,
            from: "lead@main".to_owned(),
            to: "scout@main".to_owned(),
            lane: Some(1),
            bytes: 1,
            trace_id: None,
            steps,
            here,
            going: going.map(|host| HostName::new(host).unwrap()),
        }
    }

    #[test]
    fn what_is_in_an_outbox_is_never_told_to_be_done() {
        let sent = || step(1, Stage::Accepted, "alpha", "for beta");
        let alone = put_together(vec![way(vec![sent()], None, Some("beta"))]).unwrap();
        assert_eq!(alone.state, Stage::Accepted);
        let heard = step(2, Stage::Stored, "beta", RECEIPT);
        let stored = put_together(vec![way(vec![sent(), heard.clone()], None, Some("beta"))]).unwrap();
        assert_eq!(stored.state, Stage::Stored);
        let there = way(
            vec![step(2, Stage::Stored, "beta", ""), step(3, Stage::Processing, "beta", "")],
            Some(Stage::Processing),
            None,
        );
        let both = put_together(vec![way(vec![sent(), heard], None, Some("beta")), there]).unwrap();
        assert_eq!(both.state, Stage::Processing);
        let stages: Vec<Stage> = both.way.steps.iter().map(|step| step.stage).collect();
        assert_eq!(stages, [Stage::Accepted, Stage::Stored, Stage::Processing]);
        assert_eq!(put_together(vec![way(vec![sent()], None, None)]).unwrap().state, Stage::Done);
    }
}
