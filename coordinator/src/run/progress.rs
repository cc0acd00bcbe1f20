//! What happens, line by line on stderr, for a person who waits. Quiet where stderr is not a terminal.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthouse_shared::wire::event::{Event, What};

use crate::cli::follow::Parser;
use crate::cli::{Client, Run};

/// Follows the events of one team.
pub struct Follower {
    stream: Option<Incoming>,
    parser: Parser,
    team: String,
}

impl Follower {
    /// Opens the event stream if somebody watches.
    pub async fn start(client: &Client, run: &Run) -> Self {
        let stream = match run.terminal.stderr {
            true => client.stream("/v1/events?after=0").await.ok(),
            false => None,
        };
        Self { stream, parser: Parser::default(), team: run.file.name.to_string() }
    }

    /// Prints what comes until something else is to be done. Never ends by itself; cancel-safe: a frame is
    /// either taken and printed or still there.
    pub async fn follow(&mut self) {
        let Some(stream) = &mut self.stream else { return std::future::pending().await };
        match stream.frame().await {
            Some(Ok(frame)) => {
                let bytes = frame.into_data().unwrap_or_default();
                for item in self.parser.feed(&bytes).unwrap_or_default() {
                    if let Some(line) =
                        serde_json::from_str(&item.data).ok().and_then(|event| self.line(&event))
                    {
                        eprintln!("{line}");
                    }
                }
            }
            Some(Err(_)) | None => self.stream = None,
        }
    }

    /// Ends following.
    pub fn end(self) {}

    fn line(&self, event: &Event) -> Option<String> {
        let time = event.at.timestamp().strftime("%H:%M:%S").to_string();
        let ours = |team: &posthouse_shared::name::TeamName| team.as_str() == self.team;
        match &event.what {
            What::TaskChanged { team, task, status, owner, .. } if ours(team) => {
                let owner = owner.as_ref().map(|owner| format!("  {owner}")).unwrap_or_default();
                Some(format!("{time}  {task}  {}{owner}", status.as_str()))
            }
            What::AgentState {
                team, agent, state: posthouse_shared::team::AgentState::Failed, why, ..
            } if ours(team) => {
                Some(format!("{time}  {agent} has failed: {}", why.as_deref().unwrap_or_default()))
            }
            _other => None,
        }
    }
}
