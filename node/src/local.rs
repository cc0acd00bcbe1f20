//! The socket that a turn's programs talk to: HTTP/1 over a Unix socket in `DATA/run/node.sock`, mode 0600.
//! Who calls is decided by the bearer token alone (P8): each turn gets its own, and it ends with the turn.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use posthouse_shared::codes::Code;
use posthouse_shared::durable::Files;
use posthouse_shared::identity::sha256_hex;
use posthouse_shared::limits::Limits;
use posthouse_shared::refusal::{FailureKind, Refusal};
use posthouse_shared::supervise::{Closing, Supervisor};
use posthouse_shared::wire::requests::Request;
use posthouse_shared::wire::routes::body_bytes_max;
use posthouse_shared::wire::{AsOf, Caller, Failure};
use serde_json::Value;
use tokio::net::UnixListener;

use crate::port::AuthorityPort;

/// Longest path that a Unix socket's address surely takes.
const SOCKET_PATH_BYTES_MAX: usize = 100;
/// A body that is too long is read up to this many times the limit.
const DRAIN: usize = 16;

/// The tokens that are good now. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Arc<Mutex<HashMap<String, Caller>>>);

/// A token; good until this is dropped.
#[derive(Debug)]
pub struct Token {
    tokens: Tokens,
    text: String,
}

impl Tokens {
    /// A new token that stands for `caller`.
    pub fn issue(&self, caller: Caller) -> Token {
        let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        // Three random ids hold more than 256 random bits; the digest spreads them over 32 bytes.
        let text = sha256_hex(random.iter().flat_map(|id| *id.as_bytes()).collect::<Vec<u8>>().as_slice());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone(), caller);
        Token { tokens: self.clone(), text }
    }

    /// Whom a token stands for.
    pub fn caller(&self, text: &str) -> Option<Caller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned()
    }
}

impl Token {
    /// What the caller must show.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.text);
    }
}

/// The socket cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("open the local socket {path}")]
pub struct LocalError {
    /// Its path.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

#[derive(Clone)]
struct Serving {
    port: Arc<dyn AuthorityPort>,
    tokens: Tokens,
    limits: Arc<Limits>,
}

/// Opens the socket and serves it until closing begins. Answers its path: `run/node.sock`, or a short one
/// below `temp` where that is too long for a socket.
pub fn serve(
    run: &Path,
    temp: &Path,
    files: &Files,
    port: Arc<dyn AuthorityPort>,
    tokens: Tokens,
    limits: Arc<Limits>,
    supervisor: &Supervisor,
) -> Result<PathBuf, LocalError> {
    let path = socket_path(run, temp).map_err(|source| LocalError { path: run.to_owned(), source })?;
    let listener = bind(&path, files).map_err(|source| LocalError { path: path.clone(), source })?;
    let app = Router::new().fallback(answer).with_state(Serving { port, tokens, limits });
    let closing = supervisor.closing();
    let socket = path.clone();
    supervisor.start("local socket", async move {
        let serving = axum::serve(listener, app).with_graceful_shutdown(closed(closing)).await;
        if let Err(error) = serving {
            tracing::error!(socket = %socket.display(), %error, "serve the local socket");
        }
    });
    Ok(path)
}

async fn closed(mut closing: Closing) {
    closing.wait().await;
}

fn bind(path: &Path, files: &Files) -> io::Result<UnixListener> {
    // Left by an earlier start: the data directory is locked, so nobody listens there.
    files.remove_unsynced(path).map_err(io::Error::other)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn socket_path(run: &Path, temp: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(run.join("node.sock"))?;
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(path);
    }
    let digest = sha256_hex(path.as_os_str().as_bytes());
    let dir = temp.join(format!("posthouse-{}", digest.get(..16).unwrap_or_default()));
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Somebody else could have made it in a shared directory.
            let metadata = std::fs::symlink_metadata(&dir)?;
            if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other(format!("{} belongs to somebody else", dir.display())));
            }
        }
        created => created?,
    }
    Ok(dir.join("node.sock"))
}

async fn answer(State(serving): State<Serving>, request: HttpRequest) -> Response {
    match reply(&serving, request).await {
        Ok(mut value) => {
            if let Value::Object(fields) = &mut value {
                fields.entry("v").or_insert_with(|| 1.into());
                let as_of = || serde_json::to_value(AsOf::default()).unwrap_or_default();
                fields.entry("as_of").or_insert_with(as_of);
            }
            json(StatusCode::OK, &value)
        }
        Err(refusal) => json(status(&refusal), &Failure { v: 1, error: refusal }),
    }
}

async fn reply(serving: &Serving, request: HttpRequest) -> Result<Value, Refusal> {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let caller = token
        .and_then(|value| value.strip_prefix("Bearer "))
        .and_then(|token| serving.tokens.caller(token.trim()))
        .ok_or_else(|| {
            Refusal::new(Code::Unauthorized, "the token is not one of a running turn")
                .effect("nothing was done")
        })?;
    let method = request.method().to_string();
    let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let bytes_max = usize::try_from(body_bytes_max(&path, &serving.limits)).unwrap_or(usize::MAX);
    let body = read_body(request.into_body(), bytes_max).await?;
    let request = Request::from_http(&method, &path, &body)?;
    serving.port.request(caller, request).await
}

/// Reads a body of at most `bytes_max`. Of a longer one some more is read and dropped, so that the client has
/// written it and hears the answer instead of a broken connection.
async fn read_body(mut body: Body, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let (mut bytes, mut all) = (Vec::new(), 0usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Refusal::new(Code::BadRequest, "the request's body cannot be read").because(&error)
        })?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        all = all.saturating_add(data.len());
        if all <= bytes_max {
            bytes.extend_from_slice(data);
        } else {
            bytes = Vec::new();
            if all > bytes_max.saturating_mul(DRAIN) {
                break;
            }
        }
    }
    if all > bytes_max {
        let text = format!("the request's body has more than {bytes_max} bytes");
        return Err(Refusal::new(Code::BadRequest, text).effect("nothing was done"));
    }
    Ok(bytes)
}

/// The HTTP status that a refusal goes with.
pub const fn status(refusal: &Refusal) -> StatusCode {
    match refusal.code {
        Code::Unauthorized => return StatusCode::UNAUTHORIZED,
        Code::UnknownAgent
        | Code::UnknownTeam
        | Code::UnknownTask
        | Code::UnknownMessage
        | Code::UnknownHost
        | Code::UnknownSchedule
        | Code::UnknownCode => return StatusCode::NOT_FOUND,
        _ => {}
    }
    match refusal.kind {
        FailureKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        FailureKind::Usage => StatusCode::BAD_REQUEST,
        FailureKind::Refused => StatusCode::CONFLICT,
        FailureKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
    }
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(bytes)).into_response()
}
