//! Single messages: `trace` and `quarantine`.

use std::fmt::Write;
use std::time::Duration;

use posthouse_shared::name::MessageId;
use posthouse_shared::wire::replies::{QuarantineReply, Quarantined, QuarantinedReply, Stage, TraceReply};
use posthouse_shared::wire::requests::Request;

use super::plural;
use crate::cli::args::{ListFormat, QuarantineCommand, TraceArgs};
use crate::cli::failure::Ended;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Paint;
use crate::cli::text::{ago, bytes, time};
use crate::cli::world::{LOST_MAX, Look, Session};

/// Between two looks of `trace --follow`.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// `trace`. Exit 0 while it is on its way or done, 1 where it is quarantined or dropped.
pub async fn trace(session: &mut Session<'_>, args: TraceArgs) -> Result<u8, Ended> {
    let request = Request::Trace { id: args.id };
    let mut shown = None;
    let mut heard = false;
    loop {
        let reply = session.ask_on::<TraceReply>(&request, &mut heard, LOST_MAX).await?;
        let trace = &reply.answer.reply;
        if shown.as_ref() != Some(&trace.steps) {
            let text = if session.json {
                format!("{}\n", reply.document)
            } else {
                way(trace, &session.look(ListFormat::Table))
            };
            session.print(&text)?;
            shown = Some(trace.steps.clone());
        }
        let (ended, code) = match trace.state {
            Stage::Accepted | Stage::Stored | Stage::Processing | Stage::Released => (false, 0),
            Stage::Done => (true, 0),
            Stage::Quarantined | Stage::Dropped => (true, 1),
        };
        if ended || !args.follow {
            return Ok(code);
        }
        tokio::time::sleep(FOLLOW_EVERY).await;
    }
}

const fn stage(stage: Stage) -> (&'static str, Option<Paint>) {
    match stage {
        Stage::Accepted => ("accepted", None),
        Stage::Stored => ("stored", None),
        Stage::Processing => ("processing", None),
        Stage::Released => ("released", Some(Paint::Warning)),
        Stage::Done => ("done", Some(Paint::Good)),
        Stage::Quarantined => ("quarantined", Some(Paint::Bad)),
        Stage::Dropped => ("dropped", Some(Paint::Bad)),
    }
}

/// An id as people recognise it: begin and end.
fn short(id: MessageId, look: &Look) -> String {
    let text = id.to_string();
    let (begin, end) = (text.get(..8).unwrap_or(""), text.get(34..).unwrap_or(""));
    format!("{begin}-{}-{end}", look.terminal.glyph("…", "..."))
}

fn way(trace: &TraceReply, look: &Look) -> String {
    let terminal = &look.terminal;
    let lane = trace.lane.map_or_else(String::new, |lane| format!("  lane {lane}"));
    let mut text = format!(
        "{}  {}  {} {} {}{lane}  {}\n{}\n\n",
        short(trace.id, look),
        trace.kind,
        terminal.safe(&trace.from),
        terminal.glyph("→", "->"),
        trace.to,
        bytes(trace.bytes),
        terminal.safe(&trace.summary),
    );
    let host_width = trace.steps.iter().map(|step| step.host.as_str().len()).max().unwrap_or(1);
    for step in &trace.steps {
        let at = step.at.map_or_else(|| terminal.glyph("·", ".").to_owned(), |at| time(at, look.now));
        let (name, paint) = stage(step.stage);
        let line = format!(
            "  {at:<12}  {}  {:<host_width$}  {}",
            terminal.paint(&format!("{name:<11}"), paint),
            step.host,
            terminal.safe(&step.detail)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    match trace.state {
        Stage::Accepted | Stage::Stored | Stage::Processing | Stage::Released => {
            let dot = terminal.glyph("·", ".");
            let _strings_take_all =
                writeln!(text, "  {dot:<12}  {:<11}  {:<host_width$}  not yet", "done", "-");
        }
        Stage::Done | Stage::Quarantined | Stage::Dropped => {}
    }
    if !trace.next.is_empty() {
        let _strings_take_all = writeln!(text, "\nnext: {}", trace.next.join("   or   "));
    }
    text
}

/// `quarantine ...`
pub async fn quarantine(session: &mut Session<'_>, command: QuarantineCommand) -> Result<u8, Ended> {
    match command {
        QuarantineCommand::Ls { list, .. } => {
            let request = Request::QuarantineList { team: session.team_if_set() };
            session
                .list::<QuarantineReply>(&request, list.output, |answer, look| {
                    quarantined(&answer.reply, look)
                })
                .await
        }
        QuarantineCommand::Show { id } => {
            session.show::<QuarantinedReply>(&Request::QuarantineShow { id }, whole).await
        }
        QuarantineCommand::Redeliver { id, turn } => {
            let request = Request::QuarantineRedeliver { id, turn };
            session.show::<QuarantineReply>(&request, |reply, _| moved("redelivered", reply)).await
        }
        QuarantineCommand::Drop { id, yes } => {
            let command = format!("posthouse quarantine drop {id}");
            session.confirm(
                yes,
                &format!("This drops message {id} for good; its sender is told"),
                &id,
                &command,
            )?;
            let request = Request::QuarantineDrop { id };
            session.show::<QuarantineReply>(&request, |reply, _| moved("dropped", reply)).await
        }
    }
}

fn moved(verb: &str, reply: &QuarantineReply) -> String {
    let count = u64::try_from(reply.quarantined.len()).unwrap_or(u64::MAX);
    let mut text = format!("{verb} {}\n", plural(count, "message", "messages"));
    for one in &reply.quarantined {
        let _strings_take_all = writeln!(text, "{}  {}@{}", one.id, one.agent, one.team);
    }
    text
}

fn quarantined(reply: &QuarantineReply, look: &Look) -> String {
    let all: &[Quarantined] = &reply.quarantined;
    let unseen: String = reply
        .unseen
        .iter()
        .map(|host| format!("{host} cannot be asked: what lies there is not listed\n"))
        .collect();
    if look.format == ListFormat::Name {
        return all.iter().map(|one| format!("{}\n", one.id)).collect();
    }
    if all.is_empty() {
        return if unseen.is_empty() { "nothing is in quarantine\n".to_owned() } else { unseen };
    }
    let wide = look.format == ListFormat::Wide;
    let mut titles = vec!["ID", "AGENT", "FROM", "FOR", "CODE", "REASON"];
    if wide {
        titles.extend(["HOST", "TURN", "FILE"]);
    }
    let mut table = Table::new(titles, "REASON");
    for one in all {
        let mut row: Vec<Cell> = vec![
            one.id.to_string().into(),
            format!("{}@{}", one.agent, one.team).into(),
            look.terminal.safe(one.from.as_deref().unwrap_or("-")).into(),
            ago(one.since, look.now).into(),
            one.code.as_str().into(),
            look.terminal.safe(&one.reason).into(),
        ];
        if wide {
            row.push(one.host.as_str().into());
            row.push(one.turn.map_or_else(|| "-".to_owned(), |turn| turn.to_string()).into());
            row.push(look.terminal.safe(&one.file).into());
        }
        table.row(row);
    }
    table.render(&look.terminal) + &unseen
}

fn whole(reply: &QuarantinedReply, look: &Look) -> String {
    let one = &reply.quarantined;
    let terminal = &look.terminal;
    let turn = one.turn.map_or_else(String::new, |turn| format!(", turn {turn}"));
    format!(
        "{}  {}@{} on {}, since {}{turn}\n{}: {}\n{}\n\n{}\n\nnext: posthouse quarantine redeliver {id}   or   posthouse quarantine drop {id}\n",
        one.id,
        one.agent,
        one.team,
        one.host,
        time(one.since, look.now),
        one.code,
        terminal.safe(&one.reason),
        terminal.safe(&one.file),
        terminal.safe(reply.content.trim_end()),
        id = one.id,
    )
}
