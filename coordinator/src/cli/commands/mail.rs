//! Mail: `send` and `inbox`. What `inbox` hands out is acknowledged only after it was printed and flushed.

use std::time::Duration;

use posthouse_shared::message::Vouched;
use posthouse_shared::name::LEAD;
use posthouse_shared::wire::replies::{InboxReply, MessageView, SendReply, SendState};
use posthouse_shared::wire::requests::Request;
use tokio::time::Instant;

use crate::cli::args::{InboxArgs, ListFormat, SendArgs};
use crate::cli::failure::Ended;
use crate::cli::terminal::Paint;
use crate::cli::text::{bytes, time};
use crate::cli::world::{LOST_MAX, Look, Session, unhurried};

/// Between two looks at mail that is only looked at.
const PEEK_EVERY: Duration = Duration::from_secs(1);

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
    let request = Request::Inbox {
        team: session.team(),
        name: args.name.unwrap_or(own),
        peek: args.peek,
        seen: Vec::new(),
        limit: args.limit,
        timeout_ms: 0,
    };
    if args.follow { follow(session, request).await } else { once(session, request).await }
}

/// Prints what is there, then acknowledges it.
async fn once(session: &mut Session<'_>, mut request: Request) -> Result<u8, Ended> {
    let reply = session.ask::<InboxReply>(&request).await?;
    let inbox = &reply.answer.reply;
    let text = if session.json {
        format!("{}\n", reply.document)
    } else {
        mail(inbox, &session.look(ListFormat::Table))
    };
    session.print(&text)?;
    let printed: Vec<_> = inbox.messages.iter().map(|one| one.id).collect();
    if !inbox.peek && !printed.is_empty() {
        // A peek, so that the acknowledgement hands out nothing itself.
        if let Request::Inbox { seen, peek, .. } = &mut request {
            (*seen, *peek) = (printed, true);
        }
        session.ask::<InboxReply>(&request).await?;
    }
    Ok(0)
}

/// Prints what is there and what comes; each answer's messages are acknowledged by the next request.
async fn follow(session: &mut Session<'_>, mut request: Request) -> Result<u8, Ended> {
    let wait_ms = session.config.limits.wait_ms_max;
    let mut known = Vec::new();
    let mut heard = false;
    loop {
        let asked = Instant::now();
        let reply = session.ask_on::<InboxReply>(&request, &mut heard, LOST_MAX).await?;
        let inbox = reply.answer.reply;
        let look = session.look(ListFormat::Table);
        // What is only looked at (another's inbox) comes again with each answer, and is shown once.
        let text: String = inbox
            .messages
            .iter()
            .filter(|one| !known.contains(&one.id))
            .map(|one| match session.json {
                true => format!("{}\n", serde_json::to_string(one).unwrap_or_default()),
                false => message(one, &look),
            })
            .collect();
        session.print(&text)?;
        let printed: Vec<_> = inbox.messages.iter().map(|one| one.id).collect();
        request = follow_request(&request, if inbox.peek { Vec::new() } else { printed.clone() }, wait_ms);
        known = if inbox.peek { printed } else { Vec::new() };
        if text.is_empty() {
            let pause = if known.is_empty() { Duration::ZERO } else { PEEK_EVERY };
            tokio::time::sleep(pause).await;
            unhurried(asked).await;
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
        Vouched::Node | Vouched::Host => {}
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
    if let Some(whole) = &one.whole {
        let shown = match &whole.error {
            Some(error) => format!("cannot be shown: {}", terminal.safe(error)),
            None => "only its beginning is shown".to_owned(),
        };
        let (size, file) = (bytes(whole.bytes), terminal.safe(&whole.file));
        text.push_str(&format!("{size} in all, {shown}; the whole text: {file}\n\n"));
    }
    text
}
