//! Mail: `send` and `inbox`. What `inbox` hands out is acknowledged only after it was printed and flushed.

use posthouse_shared::message::Vouched;
use posthouse_shared::name::LEAD;
use posthouse_shared::wire::replies::{InboxReply, MessageView, SendReply, SendState};
use posthouse_shared::wire::requests::Request;

use crate::cli::args::{InboxArgs, ListFormat, SendArgs};
use crate::cli::failure::Ended;
use crate::cli::terminal::Paint;
use crate::cli::text::time;
use crate::cli::world::{Look, Session};

/// `send`
pub async fn send(session: &mut Session<'_>, args: SendArgs) -> Result<u8, Ended> {
    let body = match (&args.file, &args.text) {
        (Some(file), _) => session.file_text(file)?,
        (None, Some(text)) => session.text(text)?,
        (None, None) => String::new(),
    };
    let request = Request::Send {
        team: session.team(),
        to: args.to,
        body,
        id: args.id,
        summary: args.summary,
        in_reply_to: args.reply_to,
        urgent: args.urgent,
        as_agent: args.as_agent,
    };
    session.show::<SendReply>(&request, sent).await
}

fn sent(reply: &SendReply, look: &Look) -> String {
    let state = match reply.state {
        SendState::Accepted => "accepted",
        SendState::Stored => "stored",
    };
    let again = if reply.duplicate { " (sent before, not sent again)" } else { "" };
    format!("{}  {state}{again}  {}\n", reply.id, look.terminal.safe(&reply.reads))
}

/// `inbox`
pub async fn inbox(session: &mut Session<'_>, args: InboxArgs) -> Result<u8, Ended> {
    let own = session.world.environment.get("POSTHOUSE_AGENT").unwrap_or(LEAD).to_owned();
    let name = args.name.unwrap_or(own);
    let ask = |seen, peek, timeout_ms| Request::Inbox {
        team: session.config.team.value.clone(),
        name: name.clone(),
        peek,
        seen,
        limit: args.limit,
        timeout_ms,
    };
    let once = ask(Vec::new(), args.peek, 0);
    let wait_ms = session.config.limits.wait_ms_max;
    if !args.follow {
        let reply = session.ask::<InboxReply>(&once).await?;
        let inbox = &reply.answer.reply;
        let text = if session.json {
            format!("{}\n", reply.document)
        } else {
            mail(inbox, &session.look(ListFormat::Table))
        };
        let seen: Vec<_> = inbox.messages.iter().map(|one| one.id).collect();
        let acknowledge = (!inbox.peek && !seen.is_empty()).then(|| ask(seen, true, 0));
        session.print(&text)?;
        if let Some(acknowledge) = acknowledge {
            session.ask::<InboxReply>(&acknowledge).await?;
        }
        return Ok(0);
    }
    let mut request = once;
    let mut known = Vec::new();
    loop {
        let reply = session.ask::<InboxReply>(&request).await?;
        let inbox = reply.answer.reply;
        let look = session.look(ListFormat::Table);
        // What is only looked at (another's inbox) is shown once, and comes again with each answer.
        let new: Vec<&MessageView> = inbox.messages.iter().filter(|one| !known.contains(&one.id)).collect();
        let mut text = String::new();
        for one in &new {
            if session.json {
                text.push_str(&serde_json::to_string(one).unwrap_or_default());
                text.push('\n');
            } else {
                text.push_str(&message(one, &look));
            }
        }
        session.print(&text)?;
        let seen: Vec<_> = inbox.messages.iter().map(|one| one.id).collect();
        let nothing_new = new.is_empty();
        if inbox.peek {
            known = seen;
            request = follow_request(&request, Vec::new(), wait_ms);
            if nothing_new {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        } else {
            request = follow_request(&request, seen, wait_ms);
        }
    }
}

/// The next request of a follower: acknowledges what was printed, and waits for more.
fn follow_request(
    before: &Request,
    now_seen: Vec<posthouse_shared::name::MessageId>,
    wait_ms: u64,
) -> Request {
    let mut next = before.clone();
    if let Request::Inbox { seen, timeout_ms, .. } = &mut next {
        *seen = now_seen;
        *timeout_ms = wait_ms;
    }
    next
}

fn mail(inbox: &InboxReply, look: &Look) -> String {
    if inbox.messages.is_empty() {
        return if look.terminal.stdout { "no mail\n".to_owned() } else { String::new() };
    }
    let mut text: String = inbox.messages.iter().map(|one| message(one, look)).collect();
    if inbox.more > 0 {
        text.push_str(&format!("{} more: posthouse inbox\n", inbox.more));
    }
    text
}

fn message(one: &MessageView, look: &Look) -> String {
    let terminal = &look.terminal;
    let mut head = format!(
        "{} {}  {} from {}  {}",
        terminal.glyph("──", "--"),
        one.id,
        one.kind,
        terminal.safe(&one.from),
        time(one.created_at, look.now)
    );
    let mut marks: Vec<String> = one.marks.iter().map(|mark| mark.replace('_', " ")).collect();
    if one.attempt > 1 {
        marks.insert(0, format!("attempt {}", one.attempt));
    }
    match one.vouched {
        Vouched::Node => {}
        Vouched::Nobody => marks.push("nobody vouches for it".to_owned()),
    }
    if !marks.is_empty() {
        head.push_str(&format!("  ({})", marks.join(", ")));
    }
    let mut text = format!("{}\n", terminal.paint(&head, Some(Paint::Faint)));
    if let Some(summary) = &one.summary {
        text.push_str(&format!("{}\n", terminal.safe(summary)));
    }
    if let Some(before) = one.in_reply_to {
        text.push_str(&format!("answers {before}\n"));
    }
    let body = terminal.safe(&one.body);
    text.push_str(&body);
    text.push_str(if body.ends_with('\n') { "\n" } else { "\n\n" });
    text
}
