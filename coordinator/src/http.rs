//! HTTP on a listener that the caller has bound: `/v1/...` by the one table of routes, events as server-sent
//! events, `/healthz` and `/readyz`. Everything but those two needs a token.
//!
//! Every request is answered; a refusal is JSON with the status of its kind.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use posthouse_shared::codes::Code;
use posthouse_shared::limits::Limits;
use posthouse_shared::refusal::{FailureKind, Refusal};
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::wire::requests::Request;
use posthouse_shared::wire::routes::body_bytes_max;
use posthouse_shared::wire::{Caller, Failure};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::events::Events;

/// What HTTP serves.
#[async_trait]
pub trait Api: Send + Sync + 'static {
    /// The caller that a bearer token stands for.
    fn caller(&self, token: &str) -> Option<Caller>;
    /// Answers one request with the whole JSON of its answer.
    async fn answer(&self, caller: Caller, request: Request) -> Result<serde_json::Value, Refusal>;
    /// The events.
    fn events(&self) -> &Events;
    /// Whether mail can be taken just now, or what stands in the way.
    async fn ready(&self) -> Result<(), String>;
}

/// How many events one follower may have under way.
const EVENTS_UNDER_WAY: usize = 64;
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Shared {
    api: Arc<dyn Api>,
    supervisor: Supervisor,
    limits: Arc<Limits>,
}

/// Serves until the supervisor closes; requests under way are answered first.
pub async fn serve(listener: TcpListener, api: Arc<dyn Api>, supervisor: Supervisor, limits: Arc<Limits>) {
    let mut closing = supervisor.closing();
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/v1/events", get(follow))
        .fallback(answer)
        .with_state(Shared { api, supervisor, limits });
    let served = axum::serve(listener, router).with_graceful_shutdown(async move { closing.wait().await });
    if let Err(error) = served.await {
        tracing::error!(%error, "http server ended");
    }
}

async fn ready(State(shared): State<Shared>) -> Response {
    match shared.api.ready().await {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn answer(State(shared): State<Shared>, request: HttpRequest) -> Response {
    match try_answer(&shared, request).await {
        Ok(value) => json(StatusCode::OK, value.to_string()),
        Err(refusal) => refused(refusal),
    }
}

async fn try_answer(shared: &Shared, request: HttpRequest) -> Result<serde_json::Value, Refusal> {
    let caller = caller(shared, request.headers())?;
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let limit = usize::try_from(body_bytes_max(path, &shared.limits)).unwrap_or(usize::MAX);
    let body = to_bytes(body, limit).await.map_err(|error| {
        Refusal::new(Code::BadRequest, format!("read the body (at most {limit} bytes)")).because(&error)
    })?;
    let request = Request::from_http(head.method.as_str(), path, &body)?;
    shared.api.answer(caller, request).await
}

fn caller(shared: &Shared, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    token.and_then(|token| shared.api.caller(token.trim())).ok_or_else(|| {
        let message =
            if token.is_some() { "the token is not the one of this data directory" } else { "no token" };
        Refusal::new(Code::Unauthorized, message)
            .effect("nothing was done")
            .next("export POSTHOUSE_TOKEN=$(cat DATA/token)")
    })
}

/// `?after=SEQ`, or the header `Last-Event-ID` of a client that comes back; without either from now on. With
/// `follow=false` the stream ends after what there is.
async fn follow(State(shared): State<Shared>, request: HttpRequest) -> Response {
    if let Err(refusal) = caller(&shared, request.headers()) {
        return refused(refusal);
    }
    let mut newest = shared.api.events().newest();
    let asked =
        request.uri().query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("after=")));
    let came_back = request.headers().get("last-event-id").and_then(|value| value.to_str().ok());
    let mut after = match asked.or(came_back).map(str::parse::<u64>) {
        Some(Ok(after)) => after,
        Some(Err(_)) => return refused(Refusal::new(Code::BadRequest, "after is not a number")),
        None => *newest.borrow(),
    };
    let once = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "follow=false"));
    let (sender, receiver) = mpsc::channel(EVENTS_UNDER_WAY);
    let events = shared.api.events().clone();
    let mut closing = shared.supervisor.closing();
    shared.supervisor.start("follower", async move {
        loop {
            newest.mark_unchanged();
            for event in events.after(after, EVENTS_UNDER_WAY) {
                after = event.seq;
                let data = serde_json::to_string(event.as_ref()).unwrap_or_default();
                let sent = SseEvent::default().id(event.seq.to_string()).data(data);
                let gone = tokio::select! {
                    gone = sender.send(Ok::<_, std::convert::Infallible>(sent)) => gone.is_err(),
                    () = closing.wait() => true,
                };
                if gone {
                    return;
                }
            }
            if *newest.borrow() > after {
                continue;
            }
            if once {
                return;
            }
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
                () = closing.wait() => return,
            }
        }
    });
    let stream = Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    stream.into_response()
}

/// A refusal as JSON, with the status of its kind.
fn refused(refusal: Refusal) -> Response {
    let status = status(&refusal);
    let body = serde_json::to_string(&Failure { v: 1, error: refusal }).unwrap_or_default();
    json(status, body)
}

/// The HTTP status of a refusal.
pub fn status(refusal: &Refusal) -> StatusCode {
    match (refusal.code, refusal.kind) {
        (Code::Unauthorized, _) => StatusCode::UNAUTHORIZED,
        (Code::NotYourself | Code::OperatorOnly, _) => StatusCode::FORBIDDEN,
        (Code::MessageTooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
        (Code::Busy | Code::MailboxFull, _) => StatusCode::TOO_MANY_REQUESTS,
        (
            Code::UnknownAgent
            | Code::UnknownTeam
            | Code::UnknownTask
            | Code::UnknownMessage
            | Code::UnknownHost
            | Code::UnknownSchedule,
            _,
        ) => StatusCode::NOT_FOUND,
        (_, FailureKind::Usage) => StatusCode::BAD_REQUEST,
        (_, FailureKind::Refused) => StatusCode::CONFLICT,
        (_, FailureKind::Failed) => StatusCode::INTERNAL_SERVER_ERROR,
        (_, FailureKind::Unreachable) => StatusCode::SERVICE_UNAVAILABLE,
        (_, FailureKind::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
    }
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(body)).into_response()
}
