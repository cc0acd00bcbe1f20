//! What senders were told, over many lives of the coordinator, and the check at the end: everything accepted is
//! done and was injected once; nothing else than what was asked for is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use posthouse_shared::codes::Code;
use posthouse_shared::name::MessageId;
use posthouse_shared::wire::requests::Request;

use crate::api::{Api, Fault};
use crate::home::TEAM;
use crate::recorded;

/// All that was sent.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<BTreeMap<String, bool>>,
}

impl Ledger {
    /// Sends a message under an id of its own. `true`: it was accepted. `false`: no answer came, so it may be
    /// there or not.
    pub fn send(&self, api: &Api, to: &str, body: &str) -> bool {
        match self.attempt(api, to, body) {
            Ok(()) => true,
            Err(Fault::Unknown(_)) => false,
            Err(Fault::Refused(refusal)) if refusal.code == Code::ShuttingDown => false,
            Err(Fault::Refused(refusal)) => panic!("a send was refused: {refusal}"),
        }
    }

    /// [`Ledger::send`], where a refusal is an answer too: the disk is gone, say.
    pub fn send_until_refused(&self, api: &Api, to: &str, body: &str) -> bool {
        self.attempt(api, to, body).is_ok()
    }

    fn attempt(&self, api: &Api, to: &str, body: &str) -> Result<(), Fault> {
        let id = MessageId::fresh();
        let request = Request::Send {
            team: TEAM.to_owned(),
            to: to.to_owned(),
            body: body.to_owned(),
            id: Some(id),
            summary: None,
            in_reply_to: None,
            urgent: false,
            as_agent: None,
        };
        self.entries.lock().expect("not poisoned").insert(id.to_string(), false);
        let reply = api.ask(&request)?;
        assert_eq!(reply["id"], id.to_string(), "another id was answered");
        self.entries.lock().expect("not poisoned").insert(id.to_string(), true);
        Ok(())
    }

    /// How many were accepted.
    pub fn accepted(&self) -> usize {
        self.entries.lock().expect("not poisoned").values().filter(|accepted| **accepted).count()
    }

    /// The ids that were accepted.
    pub fn accepted_ids(&self) -> BTreeSet<String> {
        let entries = self.entries.lock().expect("not poisoned");
        entries.iter().filter(|(_, accepted)| **accepted).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets the answers of all ids but these: whatever was said to the others, it may be there or not.
    pub fn trust_only(&self, ids: &BTreeSet<String>) {
        let mut entries = self.entries.lock().expect("not poisoned");
        entries.iter_mut().for_each(|(id, accepted)| *accepted &= ids.contains(id));
    }

    /// Checks the records of the one recorder that everything was sent to, after it has become idle.
    pub fn check(&self, recorded_in: &Path) {
        recorded::assert_injected_once(recorded_in);
        let seen: BTreeSet<String> = recorded::attempts(recorded_in).into_keys().collect();
        let lost: Vec<_> = self.accepted_ids().difference(&seen).cloned().collect();
        assert!(lost.is_empty(), "{} of {} accepted were lost: {lost:?}", lost.len(), self.accepted());
    }

    /// Checks that every accepted message is in exactly this state, by its trace.
    pub fn check_traces(&self, api: &Api, state: &str) {
        for id in self.accepted_ids() {
            let trace =
                api.ask(&Request::Trace { id: id.clone() }).unwrap_or_else(|fault| panic!("{id}: {fault:?}"));
            assert_eq!(trace["state"], state, "{trace:#}");
        }
    }
}

/// In which state directories of a mailbox each message lies; every id must have exactly one.
pub fn states_on_disk(mailbox: &Path, ids: &BTreeSet<String>) -> BTreeMap<String, Vec<&'static str>> {
    let mut found: BTreeMap<String, Vec<&'static str>> =
        ids.iter().map(|id| (id.clone(), Vec::new())).collect();
    for state in ["ready", "processing", "done", "quarantine"] {
        let Ok(entries) = std::fs::read_dir(mailbox.join(state)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".reason") || name.ends_with(".reason.json") {
                continue;
            }
            let text = std::fs::read(entry.path()).unwrap_or_default();
            let id = serde_json::from_slice::<serde_json::Value>(&text)
                .ok()
                .and_then(|message| message["id"].as_str().map(str::to_owned));
            if let Some(states) = id.and_then(|id| found.get_mut(&id)) {
                states.push(state);
            }
        }
    }
    found
}
