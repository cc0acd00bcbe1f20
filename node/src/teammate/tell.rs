//! What the lead hears of a teammate. Every message has a derived id, so that it is told once, however often
//! it is tried.

use posthouse_shared::codes::Code;
use posthouse_shared::message::{Kind, Sealed};
use posthouse_shared::name::MessageId;
use posthouse_shared::refusal::Refusal;

use super::agent::{Teammate, Untold, retryable};
use super::plan::{Letter, line};
use super::{TeammateError, blocking};
use crate::post::{Draft, DraftId, Posted};

/// A message that is too large for an envelope is cut in halves until it fits.
const CUTS_MAX: u32 = 12;

impl Teammate {
    pub(super) fn derived(&self, turn: u64, kind: &str, n: &str) -> MessageId {
        let setup = &self.setup;
        let (id, birth, generation) =
            (setup.id.to_string(), setup.birth.to_string(), setup.generation.to_string());
        MessageId::derived(&[&id, &birth, &generation, &turn.to_string(), kind, n])
    }

    fn draft(&self, letter: &Letter, body: String, id: MessageId) -> Draft {
        Draft {
            from: self.setup.id.clone(),
            to: Self::lead(),
            kind: letter.kind,
            body,
            summary: Some(letter.summary.clone()).filter(|summary| !summary.is_empty()),
            in_reply_to: None,
            control: false,
            id: DraftId::Chosen(id),
            trace: None,
        }
    }

    /// Numbers and seals, cutting the text where its encoding is over the limit.
    pub(super) async fn prepare(&self, letter: &Letter, id: MessageId) -> Result<Sealed, Refusal> {
        let drafts = self.cuts(letter, id);
        let post = self.deps.post.clone();
        blocking(move || fitting(drafts, |draft| post.prepare(draft)))
            .await
            .map_err(|error| cut_off(&error))?
    }

    fn cuts(&self, letter: &Letter, id: MessageId) -> Vec<Draft> {
        (0..CUTS_MAX).map(|cut| self.draft(letter, halved(&letter.body, cut), id)).collect()
    }

    /// Sends the lead a message whose id is derived from `what` and `n`: once, however often it is tried.
    pub(super) async fn tell(&self, letter: Letter, what: &str, n: &str) -> Result<(), Refusal> {
        if self.is_lead() {
            return Ok(());
        }
        let id = MessageId::derived(&[&self.setup.id.to_string(), &self.setup.birth.to_string(), what, n]);
        let drafts = self.cuts(&letter, id);
        let post = self.deps.post.clone();
        let sent = blocking(move || fitting(drafts, |draft| post.send(draft))).await;
        match sent.map_err(|error| cut_off(&error))? {
            Ok(posted) => {
                self.posted(&posted);
                Ok(())
            }
            // The same turn was told of in the other way: its idle notice and its result share an id.
            Err(refusal) if refusal.code == Code::IdReused => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Nothing more to do: the lead hears it once, with the last result.
    pub(super) async fn tell_idle(&mut self) {
        let Some(untold) = self.untold.take() else { return };
        let summary = line("idle: ", &untold.result);
        self.tell_once(untold, Kind::Idle, summary).await;
    }

    /// Another turn begins: a result that only the idle notice would have told is told now.
    pub(super) async fn tell_result(&mut self) {
        let Some(untold) = self.untold.take() else { return };
        if untold.on_board || untold.result.is_empty() {
            return;
        }
        let summary = line("", &untold.result);
        self.tell_once(untold, Kind::Result, summary).await;
    }

    async fn tell_once(&mut self, untold: Untold, kind: Kind, summary: String) {
        let letter = Letter { kind, summary, body: untold.result.clone() };
        match self.tell(letter, "told", &untold.turn.to_string()).await {
            Ok(()) => self.deps.files.point("turn.told"),
            Err(refusal) if retryable(&refusal) => {
                self.untold = Some(untold);
                self.trouble("tell the lead", &refusal);
            }
            Err(refusal) => tracing::warn!(agent = %self.setup.id, %refusal, "the lead is not told"),
        }
    }

    /// Says how far a message is, where that is news.
    pub(super) fn posted(&self, posted: &Posted) {
        if let Some(what) = posted.event(self.deps.post.host()) {
            self.deps.port.event(what);
        }
    }
}

fn cut_off(error: &TeammateError) -> Refusal {
    Refusal::new(Code::ShuttingDown, error.to_string())
}

/// The first draft that fits into an envelope.
fn fitting<T>(drafts: Vec<Draft>, mut send: impl FnMut(Draft) -> Result<T, Refusal>) -> Result<T, Refusal> {
    let mut last = None;
    for draft in drafts {
        match send(draft) {
            Err(refusal) if refusal.code == Code::MessageTooLarge => {
                last = Some(refusal);
            }
            sent => return sent,
        }
    }
    Err(last.unwrap_or_else(|| Refusal::new(Code::Internal, "nothing to send")))
}

fn halved(body: &str, cut: u32) -> String {
    if cut == 0 {
        return body.to_owned();
    }
    let len = body.floor_char_boundary(body.len() >> cut);
    format!("{}\n[cut: {} of {} bytes]", body.get(..len).unwrap_or_default(), len, body.len())
}
