//! What to do with a message that came from another host. Pure.

use posthouse_shared::generation::Generation;
use posthouse_shared::message::Sealed;
use posthouse_shared::name::{AgentId, HostName};

use crate::directory::Directory;
use crate::mailbox::Marks;

/// Its directory is behind: not before this.
const STALE_RETRY_MS: u64 = 500;

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Store it under these marks.
    Take(Marks),
    /// Not now.
    Busy(u64),
    /// Its recipient lives there under this newer grant: pass a copy on, and answer that it is not for here.
    Forward(HostName, Generation),
    /// Never.
    Refuse(&'static str, String),
}

/// The code of a refusal that a sender should look at, and that does not end its copy.
pub(super) const FORGED: &str = "forged";

/// The signature must be by the present key of the host that the envelope names, and that host must be the
/// sender's home under the envelope's generation. What comes from a grant that has ended, or from a sender that is
/// gone, is taken, marked, outside its lane. `sent_to` is the grant of the recipient that the sender knew.
pub(super) fn judge(
    sealed: &Sealed,
    directory: &Directory,
    here: &HostName,
    sent_to: Option<Generation>,
) -> Verdict {
    let envelope = &sealed.envelope;
    let from = &envelope.from;
    let Some(identity) = directory.hosts().get(&from.host) else { return Verdict::Busy(STALE_RETRY_MS) };
    if !sealed.signed_part().is_some_and(|(covered, sig)| identity.key.verify(covered, sig)) {
        return Verdict::Refuse(FORGED, format!("it is not signed by {}", from.host));
    }
    if envelope.lane.is_none() {
        return Verdict::Refuse("no_lane", "mail between hosts needs a number".to_owned());
    }
    let ended = Marks::LATE.and(Marks::SUPERSEDED);
    let mut marks = match directory.get(&envelope.sender()) {
        None if directory.is_gone(&envelope.sender(), from.generation) => ended,
        None => return Verdict::Busy(STALE_RETRY_MS),
        Some(home) if from.generation > home.generation => return Verdict::Busy(STALE_RETRY_MS),
        Some(home) if from.generation < home.generation => ended,
        Some(home) if home.host != from.host => {
            let text = format!("{} lives on {}, not on {}", envelope.sender(), home.host, from.host);
            return Verdict::Refuse(FORGED, text);
        }
        Some(_) => Marks::NONE,
    };
    if directory.is_gone(&envelope.recipient(), envelope.to.birth) {
        let text = format!("the {} born at {} is gone", envelope.recipient(), envelope.to.birth);
        return Verdict::Refuse("wrong_birth", text);
    }
    let Some(recipient) = directory.get(&envelope.recipient()) else { return Verdict::Busy(STALE_RETRY_MS) };
    if recipient.birth < envelope.to.birth {
        return Verdict::Busy(STALE_RETRY_MS);
    }
    if recipient.host != *here {
        return match sent_to {
            Some(sent_to) if recipient.generation > sent_to => {
                Verdict::Forward(recipient.host, recipient.generation)
            }
            Some(_) | None => Verdict::Busy(STALE_RETRY_MS),
        };
    }
    if envelope.lane.is_some_and(|lane| lane.control) && !envelope.kind.is_control() {
        marks = marks.and(Marks::URGENT);
    }
    Verdict::Take(marks)
}

/// Whether an epoch of a sender has ended, for all that is known.
pub(super) fn epoch_ended(directory: &Directory, sender: &AgentId, epoch: Generation) -> bool {
    match directory.get(sender) {
        Some(home) => home.generation > epoch,
        None => directory.is_gone(sender, epoch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Residence;
    use posthouse_shared::clock::Stamp;
    use posthouse_shared::identity::{HostIdentity, HostKey};
    use posthouse_shared::lane::LanePosition;
    use posthouse_shared::limits::Limits;
    use posthouse_shared::message::{Destination, Envelope, Kind, Origin, VERSION};
    use posthouse_shared::name::{AgentName, MessageId, TeamName};
    use posthouse_shared::team::Standing;

    fn generation(index: u64) -> Generation {
        Generation::new(1, index)
    }

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    fn sealed(key: &HostKey, from: &str, epoch: u64, birth: u64) -> Sealed {
        let envelope = Envelope {
            v: VERSION,
            id: MessageId::fresh(),
            team: "main".parse().unwrap(),
            from: Origin { agent: "lead".parse().unwrap(), host: host(from), generation: generation(epoch) },
            to: Destination { agent: "scout".parse().unwrap(), birth: generation(birth) },
            kind: Kind::Message,
            created_at: Stamp::default(),
            lane: Some(LanePosition { seq: 1, control: false }),
            in_reply_to: None,
            summary: None,
            body: Some("x".to_owned()),
            blob: None,
            trace: None,
        };
        envelope.seal_for_others(key, &Limits::default()).unwrap()
    }

    #[test]
    fn only_the_senders_home_is_believed() {
        let (alpha, gamma, directory) = (HostKey::generate(), HostKey::generate(), Directory::default());
        let hosts = directory.hosts().clone();
        let verdict = |key: &HostKey, from: &str, epoch, birth| {
            judge(&sealed(key, from, epoch, birth), &directory, &host("beta"), Some(generation(5)))
        };
        assert_eq!(verdict(&alpha, "alpha", 3, 5), Verdict::Busy(STALE_RETRY_MS));
        for (name, key) in [("alpha", &alpha), ("gamma", &gamma)] {
            hosts.set(host(name), HostIdentity { generation: generation(1), key: key.public() });
        }
        let residence = |home: &str, index| Residence {
            birth: generation(index),
            generation: generation(index),
            host: host(home),
            standing: Standing::Active,
        };
        let name = |name: &str| AgentName::new(name).unwrap();
        let members = [(name("lead"), residence("alpha", 3)), (name("scout"), residence("beta", 5))];
        directory.set_team(TeamName::new("main").unwrap(), members.into());
        assert_eq!(verdict(&alpha, "alpha", 3, 5), Verdict::Take(Marks::NONE));
        assert_eq!(verdict(&alpha, "alpha", 2, 5), Verdict::Take(Marks::LATE.and(Marks::SUPERSEDED)));
        assert_eq!(verdict(&alpha, "alpha", 4, 5), Verdict::Busy(STALE_RETRY_MS));
        assert_eq!(verdict(&alpha, "alpha", 3, 6), Verdict::Busy(STALE_RETRY_MS));
        for (key, from, birth, code) in
            [(&gamma, "alpha", 5, FORGED), (&gamma, "gamma", 5, FORGED), (&alpha, "alpha", 4, "wrong_birth")]
        {
            assert!(matches!(verdict(key, from, 3, birth), Verdict::Refuse(c, _) if c == code));
        }
        let elsewhere = |sent_to| judge(&sealed(&alpha, "alpha", 3, 5), &directory, &host("gamma"), sent_to);
        // Forwarding goes toward a newer grant only, so that two hosts never pass a message to and fro.
        assert_eq!(elsewhere(None), Verdict::Busy(STALE_RETRY_MS));
        assert_eq!(elsewhere(Some(generation(5))), Verdict::Busy(STALE_RETRY_MS));
        assert_eq!(elsewhere(Some(generation(4))), Verdict::Forward(host("beta"), generation(5)));
    }

    #[test]
    fn who_is_gone_is_known_only_up_to_what_the_directory_has_seen() {
        let (alpha, directory) = (HostKey::generate(), Directory::default());
        directory.hosts().set(host("alpha"), HostIdentity { generation: generation(1), key: alpha.public() });
        let judged =
            |epoch, birth| judge(&sealed(&alpha, "alpha", epoch, birth), &directory, &host("beta"), None);
        assert_eq!(judged(3, 5), Verdict::Busy(STALE_RETRY_MS));
        directory.set_through(generation(6));
        assert!(matches!(judged(3, 5), Verdict::Refuse("wrong_birth", _)));
        assert_eq!(judged(3, 7), Verdict::Busy(STALE_RETRY_MS));
        let residence = Residence {
            birth: generation(5),
            generation: generation(5),
            host: host("beta"),
            standing: Standing::Active,
        };
        directory
            .set_team(TeamName::new("main").unwrap(), [(AgentName::new("scout").unwrap(), residence)].into());
        assert_eq!(judged(3, 5), Verdict::Take(Marks::LATE.and(Marks::SUPERSEDED)));
        assert_eq!(judged(7, 5), Verdict::Busy(STALE_RETRY_MS));
        let lead = AgentId::new(AgentName::lead(), TeamName::new("main").unwrap());
        assert!(
            epoch_ended(&directory, &lead, generation(6)) && !epoch_ended(&directory, &lead, generation(7))
        );
    }
}
