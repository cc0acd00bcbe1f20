//! The table of error codes: number, kind, a title and what `posthouse explain` tells. Codes are stable;
//! numbers are never used again for something else.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::FailureKind;

macro_rules! codes {
    ($($name:ident = $number:literal $kind:ident $title:literal $explain:literal;)*) => {
        /// A stable error code, written `PH0201`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// All codes, in order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number after `PH`.
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)* }
            }

            /// What sort of failure it is.
            pub const fn kind(self) -> FailureKind {
                match self { $(Self::$name => FailureKind::$kind,)* }
            }

            /// One line.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// Cause and cure, some lines.
            pub const fn explain(self) -> &'static str {
                match self { $(Self::$name => $explain,)* }
            }
        }
    };
}

codes! {
    CoordinatorUnreachable = 1 Unreachable "cannot reach the coordinator"
        "No coordinator answers at the address that was used. Start one with `posthouse up`, or name a running one in POSTHOUSE_URL. A node's local socket (POSTHOUSE_SOCKET) is used inside a teammate's turn.";
    Unauthorized = 2 Refused "the token was not accepted"
        "The request carried no token, or one that this coordinator does not know. The operator's token is in DATA/token; POSTHOUSE_TOKEN overrides it. A teammate's token is good for its own turn only.";
    NotYourself = 3 Refused "an agent cannot act as another"
        "The sender of a message and the caller of a command come from the credential, not from an argument. Inside a turn leave --as away; outside use the operator's token.";
    OperatorOnly = 4 Refused "only the operator or the lead may do this"
        "The credential is a teammate's. Ask the lead: posthouse send lead \"...\".";
    Internal = 5 Failed "something failed inside Posthouse"
        "This is a bug or a fault of the machine. The log has more; nothing that was accepted is lost.";
    ShuttingDown = 6 Unreachable "the coordinator is closing"
        "Try again when it runs; what was accepted is on disk.";
    WaitTimedOut = 7 TimedOut "the time is over and it has not happened"
        "The condition may still come true. `posthouse why` tells what it waits for.";
    WaitImpossible = 8 Failed "it can no longer come true"
        "What was waited for ended in another way.";
    Busy = 9 Refused "too many requests wait"
        "A queue of the coordinator is full. Nothing was done; try again after the time that is given.";
    Superseded = 10 Refused "the request was superseded"
        "The same request id was used with other content, or what it decided has been changed since.";
    BadRequest = 101 Usage "the request is not understood"
        "A field is missing, unknown or of the wrong sort. The message names it.";
    BadName = 102 Usage "that is not a name"
        "Names are 1 to 63 characters of a-z, 0-9 and -, beginning with a letter or digit. Task ids may also hold A-Z, _ and dots.";
    BadTeamFile = 110 Usage "the team file has an error"
        "The place is marked. `posthouse team check FILE` checks it without running it.";
    TeamFileChanged = 111 Refused "the team file is not the one that this team was made from"
        "A team goes on with the file it was made from. `--fresh` puts the old team away and begins anew.";
    BadConfig = 112 Usage "the configuration has an error"
        "The key or value is named. `posthouse config` prints each value and where it came from.";
    NotInThisBuild = 113 Refused "this build does not do that"
        "The feature is named in the message.";
    UnknownAgent = 201 Refused "no teammate of that name"
        "Nothing was created. `posthouse ps -o name` prints all names.";
    UnknownTeam = 202 Refused "no team of that name"
        "Nothing was created. `posthouse team ls` prints all teams.";
    UnknownTask = 203 Refused "no task with that id"
        "`posthouse task ls` prints all tasks.";
    UnknownMessage = 204 Refused "no message with that id"
        "Ids can be shortened to 8 characters where that is unambiguous.";
    UnknownHost = 205 Refused "no host of that name"
        "`posthouse hosts ls` prints all hosts.";
    UnknownSchedule = 206 Refused "no schedule with that id"
        "`posthouse schedule ls` prints all schedules.";
    UnknownCode = 207 Refused "no error code of that number"
        "Codes are written PH0201.";
    AmbiguousId = 208 Refused "the id is ambiguous"
        "Give more of its characters.";
    NameTaken = 210 Refused "the name is taken"
        "A second holder of a name is refused; choose another, or end the first.";
    AgentShutdown = 211 Refused "the teammate has been shut down"
        "Mail to it is refused. Spawn a new one; it starts with an empty mailbox.";
    ReservedName = 212 Refused "the name is reserved"
        "`lead` is the lead's, `external` stands for programs that drop files, `posthouse` for the system itself.";
    ShutdownRefused = 213 Refused "the teammate refuses to shut down"
        "Its reason is given. `--force` overrides it.";
    NoHostFits = 214 Refused "no host can take this teammate"
        "What was asked for and what each host lacks is given. There is no quiet fallback.";
    LimitReached = 215 Refused "a limit is reached"
        "`posthouse config` prints all limits.";
    HostInUse = 216 Refused "the host is in use"
        "Teammates live on it, or it is the coordinator's own. Shut them down first: `posthouse ps` names them.";
    HostUnreachable = 217 Unreachable "the host cannot be reached"
        "Nothing was heard of it in time. What lies on its disk stays there; `posthouse hosts ls` tells how long it has been silent.";
    MessageTooLarge = 301 Refused "the message is too large"
        "The limit counts the encoded envelope. Put the text in a file and send its path.";
    MailboxFull = 302 Refused "the mailbox is full"
        "The recipient has as many ready messages as a mailbox may hold. Nothing was stored.";
    IdReused = 303 Refused "the message id was used for something else"
        "A repeated id with the same content gets the first answer; with other content it is refused.";
    NoSpace = 304 Refused "no room on the disk"
        "Nothing half-written is left. It goes on by itself when there is room (or inodes) again.";
    ReadOnly = 305 Refused "the data directory cannot be written"
        "Nothing half-written is left. Make it writable for the user that runs Posthouse.";
    DiskFailed = 306 Failed "the disk failed"
        "The operation and the system's error are given. What was accepted before stays accepted.";
    NotQuarantined = 307 Refused "the message is not in quarantine"
        "`posthouse quarantine ls` prints what is.";
    TaskClaimed = 401 Refused "the task is claimed by somebody else"
        "Its owner is named. `posthouse task ls` shows what is free.";
    TaskDone = 402 Refused "the task is ended"
        "A completed or cancelled task does not change.";
    TaskBlocked = 403 Refused "the task is blocked"
        "The tasks that must be completed first are named.";
    TaskRole = 404 Refused "the task asks for another role"
        "It can be claimed by teammates of its role only.";
    ClaimerBusy = 405 Refused "the claimer holds another task"
        "It must complete or release that one first. `busy_check = false` in the team file lifts this.";
    WrongGeneration = 406 Refused "the claim is not the present one"
        "The task was released or claimed again since. What was done under the old claim does not count; `posthouse task check ID` tells before you act.";
    TaskCycle = 407 Refused "the tasks would wait on each other"
        "The cycle is given.";
    TaskOnHold = 408 Refused "the task is on hold"
        "It failed too often. `posthouse task release ID` by a person lets it be claimed again.";
    TaskNotClaimed = 409 Refused "the task is not claimed"
        "Claim it first.";
    TaskExists = 410 Refused "a task with that id exists"
        "Leave the id away to have one made up.";
    ClaimerNotActive = 411 Refused "the claimer cannot take tasks now"
        "It is stopped, failed or shut down.";
    DataHeld = 501 Refused "another process holds the data directory"
        "It is named. One data directory belongs to one process at a time.";
    DataForeign = 502 Refused "the data directory belongs to something else"
        "It was made by a newer version, or is not a data directory of Posthouse.";
    JournalBroken = 503 Failed "the journal does not chain"
        "An entry before the end was changed or is missing. The file and the index are given; restore it from a copy.";
    BusUnreachable = 601 Unreachable "NATS cannot be reached"
        "No NATS server answers at the address that was given. Start one with JetStream (`nats-server --jetstream`), or name another address with --nats. What was accepted is on disk.";
    BusUnfit = 602 Refused "the NATS server does not do what is needed"
        "NATS 2.14 or newer with JetStream is needed, and the right to use it. The message says what is missing.";
    BusWithoutStreams = 603 Refused "JetStream is not switched on"
        "Start the NATS server with JetStream: `nats-server --jetstream`, or a `jetstream` block in its configuration; an account needs it too.";
    BusForbidden = 604 Refused "the NATS server does not permit it"
        "The user of this connection may not use JetStream, or the subjects below `ph.`. The coordinator makes streams and consumers; hosts need less.";
    BusFull = 605 Refused "the NATS server has no room"
        "Its JetStream storage, or the limit of its account, is used up. Mail waits in the outboxes meanwhile; nothing is lost.";
    NoOtherHosts = 606 Refused "this coordinator takes no other hosts"
        "It was started with `posthouse up`, which needs no NATS and has one host. `posthouse serve --nats URL` on the same data directory brings its teams along and takes others.";
    NotLeader = 607 Unreachable "this coordinator does not lead"
        "Another one has taken over, or the journal's stream must be mended first. Ask the one that leads, with the same request id.";
}

impl Code {
    /// The code of this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number() == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("PH{:04}", self.number()))
    }
}

/// No code of that number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an error code; codes are written PH0201")]
pub struct CodeError(String);

impl FromStr for Code {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let digits = text.strip_prefix("PH").or_else(|| text.strip_prefix("ph")).unwrap_or(text);
        digits.parse().ok().and_then(Self::from_number).ok_or_else(|| CodeError(text.to_owned()))
    }
}

impl TryFrom<String> for Code {
    type Error = CodeError;
    fn try_from(text: String) -> Result<Self, CodeError> {
        text.parse()
    }
}

impl From<Code> for String {
    fn from(code: Code) -> String {
        code.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_are_read_back() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.number()));
        for code in Code::ALL {
            assert_eq!(code.to_string().parse::<Code>().as_ref(), Ok(code));
        }
        assert_eq!(Code::UnknownAgent.to_string(), "PH0201");
    }
}
