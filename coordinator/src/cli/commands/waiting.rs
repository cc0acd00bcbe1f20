//! What goes on for long: `wait` and `events`. Every single wait is bounded; a lost connection of `events -f`
//! is taken up again where it broke, for a bounded time.

use std::time::Duration;

use http_body_util::BodyExt;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::{FailureKind, Refusal};
use posthouse_shared::wire::replies::WaitReply;
use posthouse_shared::wire::requests::Request;
use tokio::time::Instant;

use crate::cli::args::{EventsArgs, WaitArgs};
use crate::cli::failure::Ended;
use crate::cli::follow::Parser;
use crate::cli::progress::Progress;
use crate::cli::text::{age, span};
use crate::cli::world::{LOST_MAX, Session, unhurried};

/// First pause before a lost stream is opened again; doubles.
const AGAIN_MIN: Duration = Duration::from_millis(250);
/// Longest such pause.
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// `wait`. Exit 0 when it holds, 5 when the time is over, 1 at once when it can no longer come true.
pub async fn wait(session: &mut Session<'_>, args: WaitArgs) -> Result<u8, Ended> {
    let begun = Instant::now();
    let step_max = Duration::from_millis(session.config.limits.wait_ms_max.max(1));
    let mut progress = Progress::new(&session.world.terminal);
    let mut state = String::new();
    let mut heard = false;
    loop {
        let left = args.timeout.saturating_sub(begun.elapsed());
        let step = left.min(step_max);
        let waited = span(begun.elapsed().as_secs());
        progress.say(&format!("waiting for {} ({waited}) {state}", args.condition));
        let request = Request::Wait {
            team: session.team(),
            condition: args.condition.clone(),
            timeout_ms: u64::try_from(step.as_millis()).unwrap_or(u64::MAX),
        };
        let asked = Instant::now();
        match session.ask_on::<WaitReply>(&request, &mut heard, left.min(LOST_MAX)).await {
            Ok(reply) if reply.answer.reply.holds => {
                progress.clear();
                let text = format!("{}\n", reply.answer.reply.state);
                let text = if session.json { format!("{}\n", reply.document) } else { text };
                session.print(&text)?;
                return Ok(0);
            }
            Ok(reply) if left.is_zero() => return Err(over(&args, &reply.answer.reply.state).into()),
            Ok(reply) => state = reply.answer.reply.state,
            Err(Ended::Refused(refusal)) if refusal.code == Code::WaitTimedOut => {
                if begun.elapsed() >= args.timeout {
                    return Err(Ended::Refused(refusal));
                }
                state = refusal.cause.first().cloned().unwrap_or_default();
            }
            Err(other) => return Err(other),
        }
        unhurried(asked).await;
    }
}

fn over(args: &WaitArgs, state: &str) -> Refusal {
    let time = age(u64::try_from(args.timeout.as_millis()).unwrap_or(u64::MAX));
    let thing = args.condition.split('=').next().unwrap_or("");
    let thing = thing.split_once('/').map_or(thing, |(_, name)| name);
    Refusal::new(Code::WaitTimedOut, format!("{} did not come true within {time}", args.condition))
        .cause(state.to_owned())
        .next(format!("posthouse why {thing}"))
}

/// `events`: JSON lines.
pub async fn events(session: &mut Session<'_>, args: EventsArgs) -> Result<u8, Ended> {
    let mut after = if args.follow { args.after } else { Some(args.after.unwrap_or(0)) };
    let mut pause = AGAIN_MIN;
    let mut lost_since: Option<Instant> = None;
    loop {
        let before = after;
        let ended = stream(session, args.follow, &mut after).await;
        match ended {
            Ok(()) if !args.follow => return Ok(0),
            Ok(()) => {}
            Err(Ended::Refused(refusal)) if args.follow && may_pass(&refusal, after) => {
                let since = *lost_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= LOST_MAX {
                    return Err(Ended::Refused(refusal));
                }
            }
            Err(other) => return Err(other),
        }
        if after != before {
            (pause, lost_since) = (AGAIN_MIN, None);
        }
        session.note("the stream of events was lost, opening it again");
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(AGAIN_MAX);
    }
}

/// A coordinator that was heard before may come back; one that never answered is not waited for.
fn may_pass(refusal: &Refusal, after: Option<u64>) -> bool {
    refusal.kind == FailureKind::Unreachable && after.is_some()
}

/// Prints one stream to its end; `after` follows what was printed.
async fn stream(session: &mut Session<'_>, follow: bool, after: &mut Option<u64>) -> Result<(), Ended> {
    let from = after.map_or_else(String::new, |seq| format!("&after={seq}"));
    let client = session.client()?;
    let mut body = client.stream(&format!("/v1/events?follow={follow}{from}")).await?;
    let mut parser = Parser::default();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Ok(()) };
        let Ok(bytes) = frame.into_data() else { continue };
        let Some(items) = parser.feed(&bytes) else {
            return Err(Refusal::new(Code::Internal, "an event has no end").into());
        };
        for item in items {
            session.line(&item.data)?;
            *after = item.id.or(*after);
        }
    }
    Ok(())
}
