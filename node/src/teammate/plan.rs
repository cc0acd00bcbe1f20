//! What a turn came to, pure: the outcome of the program becomes a verdict on the teammate's life, and the
//! plan of what is written into `turn_end` and then carried out.

use posthouse_shared::message::Kind;
use posthouse_shared::task::Claim;
use serde::{Deserialize, Serialize};

use super::life::{About, Ending, Verdict};
use crate::history::{Disposition, Shutdown, TaskEnd, Tries};
use crate::port::GaveUp;
use crate::runner::Outcome;

/// What is known of the turn that is over.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Its number.
    pub turn: u64,
    /// What it was about.
    pub about: About,
    /// Whether we asked for its end.
    pub ending: Option<Ending>,
    /// The claim of its task.
    pub claim: Option<&'a Claim>,
    /// Earlier tries of a task.
    pub tries: Option<&'a Tries>,
    /// How often a task is tried.
    pub attempts_max: u32,
}

/// What is to be written and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// For the life.
    pub verdict: Verdict,
    /// For the mail.
    pub disposition: Disposition,
    /// For the task.
    pub task: Option<TaskEnd>,
    /// What the agent said.
    pub result: String,
    /// Messages to the lead.
    pub letters: Vec<Letter>,
    /// For a shutdown request.
    pub shutdown: Option<Shutdown>,
}

/// A message to the lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// What it is for.
    pub kind: Kind,
    /// One line.
    pub summary: String,
    /// The text.
    pub body: String,
}

/// The body of a `shutdown_response`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownAnswer {
    /// The entry of the request.
    pub command: String,
    /// Whether the teammate ends.
    pub agreed: bool,
    /// Why not, or what it said.
    pub reason: String,
}

/// The plan for a turn that came out like this.
pub fn plan(facts: &Facts<'_>, outcome: Outcome) -> Plan {
    match facts.about {
        About::Work => work(facts, outcome),
        About::Shutdown(command) => {
            let (agreed, reason) = match (outcome, facts.ending) {
                (Outcome::Cancelled, Some(Ending::Close)) => {
                    return released(facts, Verdict::GivenBack, "the node closed");
                }
                (Outcome::Completed { result }, _) => (true, result),
                (Outcome::AgentError { exit: Some(_), why, said, tail }, _) => {
                    (false, [said, tail, why].into_iter().find(|text| !text.is_empty()).unwrap_or_default())
                }
                (Outcome::AgentError { exit: None, why, .. }, _) => {
                    (true, format!("it could not be asked: {why}"))
                }
                (Outcome::Cancelled, Some(Ending::Stop)) => (false, "stopped before it answered".to_owned()),
                (Outcome::Cancelled, Some(Ending::Forced)) => (true, "it was not waited for".to_owned()),
                (Outcome::Cancelled, Some(Ending::Silence | Ending::TooLong) | None) => {
                    (true, "it did not answer within the grace".to_owned())
                }
                (Outcome::Lost { why }, _) => (true, format!("it ended without an answer: {why}")),
            };
            Plan {
                verdict: if agreed { Verdict::Agreed } else { Verdict::Refused },
                disposition: Disposition::Done,
                task: None,
                result: reason.clone(),
                letters: vec![shutdown_letter(command.to_string(), agreed, reason)],
                shutdown: Some(Shutdown { command, agreed }),
            }
        }
    }
}

/// Tells the lead how a shutdown request came out.
pub fn shutdown_letter(command: String, agreed: bool, reason: String) -> Letter {
    let summary = if agreed { "shuts down".to_owned() } else { line("refuses to shut down: ", &reason) };
    let answer = ShutdownAnswer { command, agreed, reason };
    Letter { kind: Kind::ShutdownResponse, summary, body: serde_json::to_string(&answer).unwrap_or_default() }
}

fn work(facts: &Facts<'_>, outcome: Outcome) -> Plan {
    match (outcome, facts.ending) {
        (Outcome::Completed { result }, _) => Plan {
            verdict: Verdict::Done,
            disposition: Disposition::Done,
            task: facts.claim.map(|claim| TaskEnd::Completed { claim: claim.clone() }),
            result,
            letters: Vec::new(),
            shutdown: None,
        },
        (Outcome::AgentError { why, said, tail, .. }, _) => failed(facts, why, said, &tail),
        (Outcome::Cancelled, Some(Ending::TooLong)) => {
            failed(facts, "it ran longer than turn_ms_max".to_owned(), String::new(), "")
        }
        (Outcome::Cancelled, Some(Ending::Stop)) => released(facts, Verdict::GivenBack, "stopped"),
        (Outcome::Cancelled, Some(Ending::Forced)) => released(facts, Verdict::GivenBack, "shut down"),
        (Outcome::Cancelled, Some(Ending::Silence)) => {
            released(facts, Verdict::GivenBack, "asked to shut down")
        }
        (Outcome::Cancelled, Some(Ending::Close)) => released(facts, Verdict::GivenBack, "the node closed"),
        (Outcome::Cancelled, None) => released(facts, Verdict::Interrupted, "cancelled"),
        (Outcome::Lost { why }, _) => released(facts, Verdict::Interrupted, &why),
    }
}

fn failed(facts: &Facts<'_>, why: String, said: String, tail: &str) -> Plan {
    let mut body = format!("turn {} failed: {why}", facts.turn);
    for (title, text) in [("output", said.as_str()), ("end of stderr", tail)] {
        if !text.is_empty() {
            body.push_str(&format!("\n\n{title}:\n{text}"));
        }
    }
    let letter =
        Letter { kind: Kind::Result, summary: line(&format!("turn {} failed: ", facts.turn), &why), body };
    Plan {
        verdict: Verdict::Failed,
        disposition: Disposition::Failed { why: why.clone() },
        task: facts
            .claim
            .map(|claim| TaskEnd::GaveUp { claim: claim.clone(), reason: GaveUp::Failed { why } }),
        result: said,
        letters: vec![letter],
        shutdown: None,
    }
}

/// An interrupted turn: its mail becomes ready again, its task stays with the teammate unless that was tried
/// often enough or the lead took the teammate away.
fn released(facts: &Facts<'_>, verdict: Verdict, why: &str) -> Plan {
    let counts = verdict == Verdict::Interrupted;
    let task = facts.claim.map(|claim| {
        let tries = facts.tries.filter(|tries| tries.claim == *claim).map_or(0, |tries| tries.interrupted);
        let claim = claim.clone();
        match facts.ending {
            Some(Ending::Stop | Ending::Forced) => TaskEnd::GaveUp { claim, reason: GaveUp::Stopped },
            Some(Ending::Silence | Ending::TooLong | Ending::Close) | None => {
                if counts && tries + 1 >= facts.attempts_max {
                    let why = format!("interrupted {} times: {why}", tries + 1);
                    TaskEnd::GaveUp { claim, reason: GaveUp::Failed { why } }
                } else {
                    TaskEnd::Kept { claim }
                }
            }
        }
    });
    Plan {
        verdict,
        disposition: Disposition::Released { counts, why: why.to_owned() },
        task,
        result: String::new(),
        letters: Vec::new(),
        shutdown: None,
    }
}

/// The plan for a turn that was running when its node died.
pub fn cut_off(facts: &Facts<'_>) -> Plan {
    released(facts, Verdict::Interrupted, "the node ended")
}

/// One line of a text for a list: prefix and first line, bounded.
pub fn line(prefix: &str, text: &str) -> String {
    const CHARS_MAX: usize = 120;
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut line: String = prefix.chars().chain(first.chars()).take(CHARS_MAX).collect();
    if prefix.chars().count() + first.chars().count() > CHARS_MAX {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::generation::Generation;

    fn facts(claim: Option<&Claim>, ending: Option<Ending>) -> Facts<'_> {
        Facts { turn: 3, about: About::Work, ending, claim, tries: None, attempts_max: 3 }
    }

    fn claim() -> Claim {
        Claim { task: "T-1".parse().unwrap(), generation: Generation::new(1, 8) }
    }

    #[test]
    fn a_failed_turn_gives_its_task_back_and_tells_the_lead_what_went_wrong() {
        let claim = claim();
        let outcome = Outcome::AgentError {
            why: "exit 3".into(),
            exit: Some(3),
            said: "half".into(),
            tail: "no such file".into(),
        };
        let plan = plan(&facts(Some(&claim), None), outcome);
        assert_eq!(plan.verdict, Verdict::Failed);
        let reason = GaveUp::Failed { why: "exit 3".into() };
        assert_eq!(plan.task, Some(TaskEnd::GaveUp { claim, reason }));
        let letter = &plan.letters[0];
        assert_eq!((letter.kind, letter.summary.as_str()), (Kind::Result, "turn 3 failed: exit 3"));
        assert!(letter.body.contains("half") && letter.body.ends_with("no such file"));
    }

    #[test]
    fn a_task_is_kept_through_interruptions_until_it_was_tried_often_enough() {
        let claim = claim();
        let lost = || Outcome::Lost { why: "killed by signal 9".into() };
        let mut facts = facts(Some(&claim), None);
        assert_eq!(plan(&facts, lost()).task, Some(TaskEnd::Kept { claim: claim.clone() }));
        let tries = Tries { claim: claim.clone(), interrupted: 2 };
        facts.tries = Some(&tries);
        let task = plan(&facts, lost()).task;
        assert!(matches!(task, Some(TaskEnd::GaveUp { reason: GaveUp::Failed { .. }, .. })), "{task:?}");
    }

    #[test]
    fn what_we_ended_does_not_count_as_an_attempt() {
        for (ending, kept) in [(Ending::Close, true), (Ending::Silence, true), (Ending::Stop, false)] {
            let claim = claim();
            let plan = plan(&facts(Some(&claim), Some(ending)), Outcome::Cancelled);
            assert!(matches!(plan.disposition, Disposition::Released { counts: false, .. }));
            assert_eq!(matches!(plan.task, Some(TaskEnd::Kept { .. })), kept, "{ending:?}");
            assert!(plan.letters.is_empty());
        }
    }

    #[test]
    fn exit_0_agrees_to_a_shutdown_another_code_refuses_and_silence_agrees() {
        let about = About::Shutdown(Generation::new(1, 5));
        let facts = |ending| Facts { about, ..facts(None, ending) };
        let refused = Outcome::AgentError {
            why: "exit 1".into(),
            exit: Some(1),
            said: "not before the report".into(),
            tail: String::new(),
        };
        let plan_refused = plan(&facts(None), refused);
        assert_eq!(plan_refused.verdict, Verdict::Refused);
        let answer: ShutdownAnswer = serde_json::from_str(&plan_refused.letters[0].body).unwrap();
        assert_eq!((answer.agreed, answer.reason.as_str()), (false, "not before the report"));
        let agreed = plan(&facts(None), Outcome::Completed { result: String::new() });
        assert_eq!(agreed.verdict, Verdict::Agreed);
        assert_eq!(plan(&facts(Some(Ending::Silence)), Outcome::Cancelled).verdict, Verdict::Agreed);
        assert_eq!(plan(&facts(Some(Ending::Close)), Outcome::Cancelled).verdict, Verdict::GivenBack);
    }
}
