//! The life of a teammate, pure: what happens comes in, what is to be done goes out. It knows no clock, no
//! disk and no program.
//!
//! ```text
//! idle <-> running -> pausing -> idle        running -> failed | stopped -> idle        any -> shutdown
//! ```

use posthouse_shared::clock::Stamp;
use posthouse_shared::generation::Generation;
use posthouse_shared::team::{AgentState, Standing};

/// Where a teammate rests between turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// It takes what comes.
    Idle,
    /// A turn was interrupted; it waits a moment before it tries again.
    Pausing,
    /// It was stopped, by a command of that time.
    Stopped {
        /// Mail of the lead that is newer resumes it.
        since: Stamp,
    },
    /// Its turn failed at that time.
    Failed {
        /// Mail of the lead that is newer resumes it.
        since: Stamp,
    },
    /// It has ended.
    Shutdown,
}

/// What a turn is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Mail, a task, or both.
    Work,
    /// The request to shut down of this entry, alone.
    Shutdown(Generation),
}

/// Why we asked a turn to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The lead stopped it.
    Stop,
    /// The lead wants it shut down and does not ask.
    Forced,
    /// It did not end, or answer, within the grace after it was asked to shut down.
    Silence,
    /// The turn ran longer than turns may.
    TooLong,
    /// The node closes.
    Close,
}

/// What it is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// No turn runs.
    Resting(Rest),
    /// A turn runs.
    Running {
        /// Its number.
        turn: u64,
        /// What it is about.
        about: About,
        /// Whether we asked for its end, and why first.
        ending: Option<Ending>,
        /// Where it rests when the turn is over, unless that came out badly.
        after: Rest,
    },
}

/// A lifecycle command of the lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Cancel the turn, claim nothing.
    Stop,
    /// Work again.
    Resume,
    /// End, if the agent agrees.
    Shutdown,
    /// End.
    ForceShutdown,
}

/// How a turn came out, as far as life is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its work is done.
    Done,
    /// It failed by itself.
    Failed,
    /// It was interrupted and is to be run again.
    Interrupted,
    /// We ended it, its input is given back.
    GivenBack,
    /// The agent agreed to shut down, or ended without an answer.
    Agreed,
    /// The agent refused to shut down.
    Refused,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A lifecycle command arrived, given at that time.
    Command(Command, Generation, Stamp),
    /// There is ready mail of the lead as new as this.
    LeadMail(Stamp),
    /// A turn begins.
    Begun(u64, About),
    /// The turn is over; the time is now.
    Over(Verdict, Stamp),
    /// The pause after an interrupted turn is over.
    PauseOver,
    /// The grace after a shutdown request is over.
    GraceOver,
    /// The turn has run as long as turns may.
    TooLong,
    /// The node begins to close.
    Close,
    /// The node waits no longer for turns to end.
    CloseNow,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Note the command as applied.
    Note,
    /// Ask the running turn to end.
    Cancel,
    /// Let [`Happening::GraceOver`] follow after the shutdown grace.
    StartGrace,
    /// Tell the authority.
    Standing(Standing),
    /// Shut down without asking: tell the lead.
    ForcedDown,
}

/// What the teammate wants to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Run the turn over the shutdown request of this entry.
    AskShutdown(Generation),
    /// Take mail or a task.
    Work,
    /// Wait.
    Nothing,
    /// Leave.
    End,
}

/// A teammate's whole state of mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mind {
    /// What it does.
    pub life: Life,
    /// The last lifecycle command that it applied.
    pub commanded: Generation,
    /// A shutdown request that waits for its turn.
    pub asked: Option<Generation>,
    /// Whether the node closes.
    pub closing: bool,
}

impl Mind {
    /// As it is at a start.
    pub const fn new(rest: Rest, commanded: Generation) -> Self {
        Self { life: Life::Resting(rest), commanded, asked: None, closing: false }
    }

    /// What to do next, where no turn runs.
    pub const fn wants(&self) -> Wants {
        match (self.life, self.asked) {
            (Life::Running { .. }, _) => Wants::Nothing,
            (Life::Resting(Rest::Shutdown), _) => Wants::End,
            (Life::Resting(_), _) if self.closing => Wants::End,
            (Life::Resting(_), Some(command)) => Wants::AskShutdown(command),
            (Life::Resting(Rest::Idle), None) => Wants::Work,
            (Life::Resting(Rest::Pausing | Rest::Stopped { .. } | Rest::Failed { .. }), None) => {
                Wants::Nothing
            }
        }
    }

    /// Its state as others see it.
    pub const fn state(&self) -> AgentState {
        match self.life {
            Life::Running { .. } => AgentState::Running,
            Life::Resting(Rest::Idle | Rest::Pausing) => AgentState::Idle,
            Life::Resting(Rest::Stopped { .. }) => AgentState::Stopped,
            Life::Resting(Rest::Failed { .. }) => AgentState::Failed,
            Life::Resting(Rest::Shutdown) => AgentState::Shutdown,
        }
    }

    /// Takes in what happened. What does not fit the present state changes nothing.
    pub fn decide(mut self, happening: Happening) -> (Self, Vec<Effect>) {
        let effects = match happening {
            Happening::Command(command, generation, at) => self.command(command, generation, at),
            Happening::LeadMail(at) => match self.life {
                Life::Resting(Rest::Stopped { since } | Rest::Failed { since }) if at > since => {
                    self.life = Life::Resting(Rest::Idle);
                    vec![Effect::Standing(Standing::Active)]
                }
                Life::Resting(_) | Life::Running { .. } => Vec::new(),
            },
            Happening::Begun(turn, about) => {
                if let Life::Resting(rest) = self.life {
                    let (after, effects) = match about {
                        About::Work => (Rest::Idle, Vec::new()),
                        About::Shutdown(_) => (rest, vec![Effect::StartGrace]),
                    };
                    self.life = Life::Running { turn, about, ending: None, after };
                    return (self, effects);
                }
                Vec::new()
            }
            Happening::Over(verdict, now) => self.over(verdict, now),
            Happening::PauseOver => {
                if self.life == Life::Resting(Rest::Pausing) {
                    self.life = Life::Resting(Rest::Idle);
                }
                Vec::new()
            }
            Happening::GraceOver if self.asked.is_some() => self.end_turn(Ending::Silence, None),
            Happening::GraceOver => Vec::new(),
            Happening::TooLong => self.end_turn(Ending::TooLong, None),
            Happening::Close => {
                self.closing = true;
                Vec::new()
            }
            Happening::CloseNow => {
                self.closing = true;
                self.end_turn(Ending::Close, None)
            }
        };
        (self, effects)
    }

    fn command(&mut self, command: Command, generation: Generation, at: Stamp) -> Vec<Effect> {
        if generation <= self.commanded || self.life == Life::Resting(Rest::Shutdown) {
            return Vec::new();
        }
        self.commanded = generation;
        self.asked = None;
        match (command, self.life) {
            (Command::Shutdown, Life::Resting(_)) => {
                self.asked = Some(generation);
                Vec::new()
            }
            (Command::Shutdown, Life::Running { .. }) => {
                self.asked = Some(generation);
                vec![Effect::StartGrace]
            }
            (Command::Stop, Life::Resting(_)) => {
                self.life = Life::Resting(Rest::Stopped { since: at });
                vec![Effect::Note]
            }
            (Command::Resume, Life::Resting(_)) => {
                self.life = Life::Resting(Rest::Idle);
                vec![Effect::Note]
            }
            (Command::ForceShutdown, Life::Resting(_)) => {
                self.life = Life::Resting(Rest::Shutdown);
                vec![Effect::ForcedDown, Effect::Standing(Standing::Shutdown)]
            }
            (Command::Stop, Life::Running { .. }) => {
                let mut effects = vec![Effect::Note];
                effects.extend(self.end_turn(Ending::Stop, Some(Rest::Stopped { since: at })));
                effects
            }
            (Command::Resume, Life::Running { turn, about, ending, .. }) => {
                self.life = Life::Running { turn, about, ending, after: Rest::Idle };
                vec![Effect::Note]
            }
            // Not noted: until the authority knows of the end, the command must come again after a crash.
            (Command::ForceShutdown, Life::Running { .. }) => {
                self.end_turn(Ending::Forced, Some(Rest::Shutdown))
            }
        }
    }

    fn end_turn(&mut self, why: Ending, then: Option<Rest>) -> Vec<Effect> {
        let Life::Running { turn, about, ending, after } = self.life else { return Vec::new() };
        let after = then.unwrap_or(after);
        self.life = Life::Running { turn, about, ending: ending.or(Some(why)), after };
        // Asking again is harmless, and the first asking may have had a longer patience.
        vec![Effect::Cancel]
    }

    fn over(&mut self, verdict: Verdict, now: Stamp) -> Vec<Effect> {
        let Life::Running { about, after, .. } = self.life else { return Vec::new() };
        if let About::Shutdown(command) = about
            && self.asked == Some(command)
            && matches!(verdict, Verdict::Agreed | Verdict::Refused)
        {
            self.asked = None;
        }
        let (rest, effects) = match (verdict, after) {
            (Verdict::Agreed, _) => (Rest::Shutdown, vec![Effect::Standing(Standing::Shutdown)]),
            (_, Rest::Shutdown) => {
                (Rest::Shutdown, vec![Effect::ForcedDown, Effect::Standing(Standing::Shutdown)])
            }
            (Verdict::Failed, Rest::Idle | Rest::Pausing) => {
                (Rest::Failed { since: now }, vec![Effect::Standing(Standing::Failed)])
            }
            (Verdict::Interrupted, Rest::Idle) => (Rest::Pausing, Vec::new()),
            (Verdict::Failed, rest @ (Rest::Stopped { .. } | Rest::Failed { .. }))
            | (Verdict::Interrupted, rest @ (Rest::Pausing | Rest::Stopped { .. } | Rest::Failed { .. }))
            | (Verdict::Done | Verdict::GivenBack | Verdict::Refused, rest) => (rest, Vec::new()),
        };
        self.life = Life::Resting(rest);
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(n: u64) -> Stamp {
        Stamp::from_nanos(n)
    }

    fn generation(n: u64) -> Generation {
        Generation::new(1, n)
    }

    fn after(mind: Mind, happenings: &[Happening]) -> (Mind, Vec<Effect>) {
        happenings.iter().fold((mind, Vec::new()), |(mind, _), happening| mind.decide(*happening))
    }

    fn idle() -> Mind {
        Mind::new(Rest::Idle, Generation::default())
    }

    use Happening::{Begun, Command as Cmd, Over};

    #[test]
    fn a_stop_cancels_the_turn_and_then_it_wants_nothing_until_newer_mail_of_the_lead() {
        let stopped = [Begun(1, About::Work), Cmd(Command::Stop, generation(5), at(10))];
        let (mind, effects) = after(idle(), &stopped);
        assert_eq!(effects, [Effect::Note, Effect::Cancel]);
        let (mind, _) = mind.decide(Over(Verdict::GivenBack, at(11)));
        assert_eq!((mind.state(), mind.wants()), (AgentState::Stopped, Wants::Nothing));
        let (mind, _) = mind.decide(Happening::LeadMail(at(10)));
        assert_eq!(mind.wants(), Wants::Nothing);
        let (mind, effects) = mind.decide(Happening::LeadMail(at(12)));
        assert_eq!((mind.wants(), effects), (Wants::Work, vec![Effect::Standing(Standing::Active)]));
    }

    #[test]
    fn a_shutdown_that_is_refused_leaves_it_as_it_was() {
        let stopped = Mind::new(Rest::Stopped { since: at(1) }, generation(1));
        let (mind, _) = stopped.decide(Cmd(Command::Shutdown, generation(2), at(2)));
        assert_eq!(mind.wants(), Wants::AskShutdown(generation(2)));
        let over = [Begun(3, About::Shutdown(generation(2))), Over(Verdict::Refused, at(3))];
        let (mind, effects) = after(mind, &over);
        assert_eq!((mind.state(), mind.asked, effects), (AgentState::Stopped, None, vec![]));
    }

    #[test]
    fn at13_one_that_is_silent_when_asked_to_shut_down_is_ended() {
        let asked = [
            Cmd(Command::Shutdown, generation(2), at(2)),
            Begun(1, About::Shutdown(generation(2))),
            Happening::GraceOver,
        ];
        let (mind, effects) = after(idle(), &asked);
        assert_eq!(effects, [Effect::Cancel]);
        let (mind, effects) = mind.decide(Over(Verdict::Agreed, at(9)));
        assert_eq!((mind.wants(), effects), (Wants::End, vec![Effect::Standing(Standing::Shutdown)]));
    }

    #[test]
    fn a_failed_turn_rests_failed_and_an_interrupted_one_pauses() {
        let (mind, effects) = after(idle(), &[Begun(1, About::Work), Over(Verdict::Failed, at(4))]);
        assert_eq!((mind.state(), mind.wants()), (AgentState::Failed, Wants::Nothing));
        assert_eq!(effects, [Effect::Standing(Standing::Failed)]);
        let (mind, _) = after(idle(), &[Begun(1, About::Work), Over(Verdict::Interrupted, at(4))]);
        assert_eq!((mind.life, mind.wants()), (Life::Resting(Rest::Pausing), Wants::Nothing));
        assert_eq!(mind.decide(Happening::PauseOver).0.wants(), Wants::Work);
    }

    fn happening() -> impl Strategy<Value = Happening> {
        let command = prop_oneof![
            1 => Just(Command::Stop),
            1 => Just(Command::Shutdown),
            2 => Just(Command::Resume),
        ];
        let verdict = prop_oneof![
            4 => Just(Verdict::Done),
            1 => Just(Verdict::Failed),
            1 => Just(Verdict::Interrupted),
            1 => Just(Verdict::GivenBack),
        ];
        prop_oneof![
            (command, 0u64..40, 0u64..40).prop_map(|(command, index, time)| Cmd(
                command,
                generation(index),
                at(time)
            )),
            (0u64..40).prop_map(|time| Happening::LeadMail(at(time))),
            (1u64..40).prop_map(|turn| Begun(turn, About::Work)),
            (verdict, 0u64..40).prop_map(|(verdict, time)| Over(verdict, at(time))),
            Just(Happening::PauseOver),
            Just(Happening::GraceOver),
            Just(Happening::TooLong),
            Just(Happening::CloseNow),
        ]
    }

    proptest! {
        #[test]
        fn never_two_turns_no_old_command_and_nothing_is_claimed_unless_it_is_idle(happenings in prop::collection::vec(happening(), 0..60)) {
            let mut mind = idle();
            for happening in happenings {
                let before = mind;
                let (next, effects) = mind.decide(happening);
                mind = next;
                prop_assert!(mind.commanded >= before.commanded);
                if let Cmd(_, index, _) = happening && index <= before.commanded {
                    prop_assert_eq!(mind, before);
                }
                if let (Life::Running { turn, .. }, Life::Running { turn: now, .. }) = (before.life, mind.life) {
                    prop_assert_eq!(turn, now);
                    prop_assert_eq!(mind.wants(), Wants::Nothing);
                }
                if effects.contains(&Effect::Cancel) {
                    prop_assert!(matches!(mind.life, Life::Running { ending: Some(_), .. }), "{:?}", mind);
                }
                if mind.wants() == Wants::Work {
                    prop_assert_eq!(mind.state(), AgentState::Idle);
                    prop_assert!(!mind.closing);
                }
                if before.state() == AgentState::Stopped && mind.wants() == Wants::Work {
                    let resumed = matches!(happening, Cmd(Command::Resume, ..) | Happening::LeadMail(_));
                    prop_assert!(resumed);
                }
            }
        }
    }
}
