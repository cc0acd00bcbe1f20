//! What is going on: `hosts ls`, `attention`, `why`, `brief`.

use std::fmt::Write;
use std::time::Duration;

use posthouse_shared::team::HostState;
use posthouse_shared::wire::replies::{
    Attention, AttentionReply, BriefReply, Done, HostTokenReply, HostView, HostsReply, WhyReply,
};
use posthouse_shared::wire::requests::Request;

use crate::cli::args::{AttentionArgs, HostsCommand, ListFormat, WhyArgs};
use crate::cli::failure::Ended;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Paint;
use crate::cli::text::{ago, time};
use crate::cli::world::{LOST_MAX, Look, Session};

/// Between two looks of `attention --follow`.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// `hosts ...`
pub async fn hosts(session: &mut Session<'_>, command: HostsCommand) -> Result<u8, Ended> {
    match command {
        HostsCommand::Ls(list) => {
            session
                .list::<HostsReply>(&Request::HostList {}, list.output, |answer, look| {
                    host_table(&answer.reply.hosts, look)
                })
                .await
        }
        HostsCommand::Token { replace } => {
            let request = Request::HostToken { replace };
            let reply = session.ask::<HostTokenReply>(&request).await?;
            let shown = &reply.answer.reply;
            if !session.json {
                let name = shown.replace.as_ref().map_or("NAME", |host| host.as_str());
                session.note(&format!(
                    "for one host, once:  posthouse-node --nats {} --name {name} --join {}",
                    shown.nats, shown.token
                ));
            }
            session.line(if session.json { &reply.document } else { &shown.token })?;
            Ok(0)
        }
        HostsCommand::Adopt { name, yes } => {
            if !yes {
                // Whether there is such a host is said before anybody types its name.
                session.ask::<WhyReply>(&Request::Why { team: session.team(), thing: name.clone() }).await?;
            }
            let what = format!(
                "This takes {name} as it is: its agents get a new grant, and what they did since the state on its disk is not known"
            );
            session.confirm(yes, &what, &name, &format!("posthouse hosts adopt {name}"))?;
            session
                .show::<Done>(&Request::HostAdopt { host: name }, |reply, _| format!("{}\n", reply.done))
                .await
        }
        HostsCommand::Remove { name, yes } => {
            if !yes {
                session.ask::<WhyReply>(&Request::Why { team: session.team(), thing: name.clone() }).await?;
            }
            let what = format!("This forgets host {name}, its key and what is on its way to it");
            session.confirm(yes, &what, &name, &format!("posthouse hosts remove {name}"))?;
            session
                .show::<Done>(&Request::HostRemove { host: name }, |reply, _| format!("{}\n", reply.done))
                .await
        }
    }
}

fn host_table(hosts: &[HostView], look: &Look) -> String {
    if look.format == ListFormat::Name {
        return hosts.iter().map(|one| format!("{}\n", one.name)).collect();
    }
    let wide = look.format == ListFormat::Wide;
    let mut titles = vec!["NAME", "STATE", "FOR", "AGENTS", "MAIL", "LABELS"];
    if wide {
        titles.extend(["BOOT", "GENERATION", "DATA"]);
    }
    let mut table = Table::new(titles, "LABELS");
    for one in hosts {
        let paint = match one.state {
            HostState::Up => Some(Paint::Good),
            HostState::Draining | HostState::Unknown => Some(Paint::Warning),
            HostState::Unreachable | HostState::Lost => Some(Paint::Bad),
        };
        let labels: Vec<String> = one.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut row: Vec<Cell> = vec![
            one.name.as_str().into(),
            Cell::painted(one.state.as_str(), paint),
            ago(one.since, look.now).into(),
            one.agents.to_string().into(),
            one.mail.to_string().into(),
            if labels.is_empty() { "-".into() } else { labels.join(",").into() },
        ];
        if wide {
            row.push(one.boot.to_string().into());
            row.push(one.generation.to_string().into());
            row.push(one.data_id.as_str().into());
        }
        table.row(row);
    }
    table.render(&look.terminal)
}

/// `attention`
pub async fn attention(session: &mut Session<'_>, args: AttentionArgs) -> Result<u8, Ended> {
    let request = Request::Attention { team: session.team_if_set() };
    if !args.follow {
        return session.show::<AttentionReply>(&request, |reply, look| list(&reply.attention, look)).await;
    }
    let mut known: Vec<Attention> = Vec::new();
    let mut heard = false;
    loop {
        let reply = session.ask_on::<AttentionReply>(&request, &mut heard, LOST_MAX).await?;
        let now = reply.answer.reply.attention;
        let look = session.look(ListFormat::Table);
        let is_known = |one: &&Attention| !known.iter().any(|old| same(old, one));
        let mut text = String::new();
        for one in now.iter().filter(is_known) {
            if session.json {
                text.push_str(&serde_json::to_string(one).unwrap_or_default());
                text.push('\n');
            } else {
                text.push_str(&block(one, &look));
            }
        }
        session.print(&text)?;
        known = now;
        tokio::time::sleep(FOLLOW_EVERY).await;
    }
}

fn same(a: &Attention, b: &Attention) -> bool {
    (&a.thing, &a.team, &a.sort, a.since) == (&b.thing, &b.team, &b.sort, b.since)
}

fn list(all: &[Attention], look: &Look) -> String {
    if all.is_empty() {
        return "nothing waits for you\n".to_owned();
    }
    all.iter().map(|one| block(one, look)).collect()
}

fn block(one: &Attention, look: &Look) -> String {
    let terminal = &look.terminal;
    let team = one.team.as_ref().map_or_else(String::new, |team| format!(" in {team}"));
    let behind = if one.behind > 0 { format!("  {} behind it", one.behind) } else { String::new() };
    let mut text = format!(
        "{}  {}{team}  for {}{behind}\n  {}\n",
        terminal.paint(&one.sort.replace('_', " "), Some(Paint::Bad)),
        one.thing,
        ago(one.since, look.now),
        terminal.safe(&one.what),
    );
    if !one.next.is_empty() {
        let _strings_take_all = writeln!(text, "  next: {}", one.next.join("   or   "));
    }
    text
}

/// `why`
pub async fn why(session: &mut Session<'_>, args: WhyArgs) -> Result<u8, Ended> {
    let request = Request::Why { team: session.team(), thing: args.thing };
    session.show::<WhyReply>(&request, reasons).await
}

fn reasons(why: &WhyReply, look: &Look) -> String {
    let terminal = &look.terminal;
    let since = why.since.map_or_else(String::new, |since| {
        format!(", since {} ({})", time(since, look.now), ago(since, look.now))
    });
    let mut text = format!(
        "{}  {}{since}\n  why   {} ({})\n  then  {}\n",
        why.thing,
        why.state,
        terminal.safe(&why.why),
        why.code,
        terminal.safe(&why.then)
    );
    if !why.next.is_empty() {
        let _strings_take_all = writeln!(text, "  next  {}", why.next.join("   or   "));
    }
    text
}

/// `brief`
pub async fn brief(session: &mut Session<'_>) -> Result<u8, Ended> {
    let request = Request::Brief { team: session.team() };
    session
        .show::<BriefReply>(&request, |reply, look| {
            format!("{}\n", look.terminal.safe(reply.brief.trim_end()))
        })
        .await
}
