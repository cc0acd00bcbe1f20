//! The commands, one file a noun. Each sends requests and turns answers into text; the text functions are pure.

mod agents;
pub mod local;
mod mail;
mod messages;
mod overview;
mod schedules;
mod tasks;
mod teams;
mod waiting;

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;

use super::args::{
    Command, HostsCommand, ListFormat, QuarantineCommand, ScheduleCommand, TaskCommand, TeamCommand,
};
use super::failure::Ended;
use super::world::Session;

/// Whether a command asks for JSON by `-o json`.
pub fn wants_json(command: &Command) -> bool {
    let list = match command {
        Command::Ps(args) => &args.list,
        Command::Team(TeamCommand::Ls(list))
        | Command::Hosts(HostsCommand::Ls(list))
        | Command::Task(TaskCommand::Ls { list, .. })
        | Command::Schedule(ScheduleCommand::Ls { list, .. })
        | Command::Quarantine(QuarantineCommand::Ls { list, .. }) => list,
        _without_a_list => return false,
    };
    list.output == ListFormat::Json
}

/// Does a command that needs no more than a client.
pub async fn client_command(command: Command, session: &mut Session<'_>) -> Result<u8, Ended> {
    match command {
        Command::Team(command) => teams::team(session, command).await,
        Command::Spawn(args) => agents::spawn(session, args).await,
        Command::Send(args) => mail::send(session, args).await,
        Command::Inbox(args) => mail::inbox(session, args).await,
        Command::Ps(args) => agents::ps(session, args).await,
        Command::Hosts(command) => overview::hosts(session, command).await,
        Command::Attention(args) => overview::attention(session, args).await,
        Command::Why(args) => overview::why(session, args).await,
        Command::Log(args) => agents::log(session, args).await,
        Command::Events(args) => waiting::events(session, args).await,
        Command::Wait(args) => waiting::wait(session, args).await,
        Command::Brief(_) => overview::brief(session).await,
        Command::Stop(args) => agents::stop(session, args).await,
        Command::Resume(args) => agents::resume(session, args).await,
        Command::Shutdown(args) => agents::shutdown(session, args).await,
        Command::Task(command) => tasks::task(session, command).await,
        Command::Schedule(command) => schedules::schedule(session, command).await,
        Command::Trace(args) => messages::trace(session, args).await,
        Command::Quarantine(command) => messages::quarantine(session, command).await,
        Command::Config(_) => local::config(session).await,
        Command::Init(args) => local::init(session, &args),
        Command::Up(_)
        | Command::Serve(_)
        | Command::Run(_)
        | Command::Explain(_)
        | Command::Completions(_)
        | Command::Man => Err(Refusal::new(Code::Internal, "this command has no client").into()),
    }
}

/// A plural in English.
fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
