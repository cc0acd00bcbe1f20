//! The client: typed requests over HTTP/1, to the coordinator over TCP or, inside a teammate's turn, to the
//! node's local socket. Which of them, and with which credential:
//!
//! 1. POSTHOUSE_SOCKET is set: that socket, with POSTHOUSE_TOKEN.
//! 2. `url` is set (POSTHOUSE_URL or a configuration file): that address.
//! 3. A process holds the data directory: the address that it wrote there.
//! 4. Otherwise the default address, which then most likely answers nothing.
//!
//! The token is POSTHOUSE_TOKEN; else, for an address on this machine, the data directory's. Nothing is sent
//! twice: after a broken connection the error says that the outcome is not known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::supervise::Supervisor;
use posthouse_shared::wire::requests::Request;
use posthouse_shared::wire::{Answer, Failure};
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};

use crate::config::Config;

/// Longest time for a connection to come up.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest time for an answer, beyond what the request itself may wait.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Where a coordinator listens unless told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";
/// Largest token file.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// `host:port`
    Tcp(String),
    /// A socket file.
    Unix(PathBuf),
}

/// Sends requests; opens a connection for each.
#[derive(Debug, Clone)]
pub struct Client {
    target: Target,
    /// The address as people know it.
    shown: String,
    /// How it was chosen, for the error.
    whence: String,
    token: Option<String>,
    connections: Supervisor,
}

/// An answer: its bytes as they came, and what they say.
#[derive(Debug, Clone)]
pub struct Reply<T> {
    /// The document, on one line.
    pub document: String,
    /// The same, read.
    pub answer: Answer<T>,
}

impl Client {
    /// Chooses address and credential. Reads the data directory's `lock` and `token`; connects to nothing.
    pub fn of(config: &Config) -> Result<Self, Refusal> {
        let connections = Supervisor::new();
        if let Some(socket) = &config.socket {
            return Ok(Self {
                target: Target::Unix(socket.clone()),
                shown: socket.display().to_string(),
                whence: "POSTHOUSE_SOCKET is set: the socket of a teammate's turn".to_owned(),
                token: config.token.clone(),
                connections,
            });
        }
        let data = config.data.value.display();
        let (shown, whence) = match (&config.url, crate::data::holder(&config.data.value)) {
            (Some(url), _) => (url.value.clone(), format!("the address is set by {}", url.origin)),
            (None, Some(holder)) if holder.url.is_empty() => {
                return Err(Refusal::new(
                    Code::CoordinatorUnreachable,
                    format!("the coordinator on {data} is not ready yet"),
                )
                .cause(format!("process {} holds the data directory and does not listen yet", holder.pid))
                .retry_after_ms(1000));
            }
            (None, Some(holder)) => {
                (holder.url, format!("process {} holds {data} and named this address", holder.pid))
            }
            (None, None) => (
                DEFAULT_URL.to_owned(),
                format!("POSTHOUSE_URL is not set and no process holds {data}; the default was used"),
            ),
        };
        let authority = authority(&shown)?;
        let token = match &config.token {
            Some(token) => Some(token.clone()),
            None if is_local(&authority) => token_of(&config.token_file()),
            None => None,
        };
        Ok(Self { target: Target::Tcp(authority), shown, whence, token, connections })
    }

    /// The address as people know it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends a request and reads its answer. A refusal comes back as it was given.
    pub async fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<Reply<T>, Refusal> {
        let form = request.to_http()?;
        let patience = ANSWER_MAX.saturating_add(waits(request));
        let exchange = async {
            let response = self.send(form.method, &form.path, form.body.unwrap_or_default()).await?;
            self.document(response).await
        };
        let document = tokio::time::timeout(patience, exchange).await.map_err(|_| {
            self.broken(&format!("no answer within {}", super::text::span(patience.as_secs())))
        })??;
        let answer = serde_json::from_str(&document).map_err(|error| {
            Refusal::new(Code::Internal, format!("the answer of {} is not understood", self.shown))
                .because(&error)
                .cause("client and coordinator may be of different versions: posthouse --version")
        })?;
        Ok(Reply { document, answer })
    }

    /// Opens a stream of server-sent events; the answer has no end of its own.
    pub async fn stream(&self, path: &str) -> Result<Incoming, Refusal> {
        let response = tokio::time::timeout(ANSWER_MAX, self.send("GET", path, String::new()))
            .await
            .map_err(|_| self.broken("no answer in time"))??;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let document = self.document(response).await?;
        Err(Refusal::new(Code::Internal, "the events are not understood").cause(document))
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: String,
    ) -> Result<hyper::Response<Incoming>, Refusal> {
        let host = match &self.target {
            Target::Tcp(authority) => authority.as_str(),
            Target::Unix(_) => "localhost",
        };
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, host)
            .header(hyper::header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(hyper::header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Refusal::new(Code::BadRequest, "form the HTTP request").because(&error))?;
        let connect = async {
            match &self.target {
                Target::Tcp(authority) => {
                    let stream = TcpStream::connect(authority.as_str()).await?;
                    let _only_slower_without = stream.set_nodelay(true);
                    Ok(Connected::Tcp(stream))
                }
                Target::Unix(path) => UnixStream::connect(path).await.map(Connected::Unix),
            }
        };
        let connected = match tokio::time::timeout(CONNECT_MAX, connect).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(self.unreachable(&io_text(&error))),
            Err(_) => {
                let time = super::text::span(CONNECT_MAX.as_secs());
                return Err(self.unreachable(&format!("no connection within {time}")));
            }
        };
        match connected {
            Connected::Tcp(stream) => self.exchange(TokioIo::new(stream), request).await,
            Connected::Unix(stream) => self.exchange(TokioIo::new(stream), request).await,
        }
    }

    async fn exchange<S>(
        &self,
        stream: S,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, Refusal>
    where
        S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let handshake = hyper::client::conn::http1::handshake(stream).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error.to_string()))?;
        self.connections.start("http connection", async move {
            let _the_sender_is_told = connection.await;
        });
        sender.send_request(request).await.map_err(|error| self.broken(&error.to_string()))
    }

    /// The body of a good answer; a bad one as its refusal.
    async fn document(&self, response: hyper::Response<Incoming>) -> Result<String, Refusal> {
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.broken(&error.to_string()))?.to_bytes();
        let document = String::from_utf8_lossy(&body).trim().to_owned();
        if status.is_success() {
            return Ok(document);
        }
        match serde_json::from_str::<Failure>(&document) {
            Ok(failure) => Err(failure.error),
            Err(_) => {
                let begin: String = document.chars().take(200).collect();
                Err(Refusal::new(Code::Internal, format!("{} answered {status}", self.shown)).cause(begin))
            }
        }
    }

    fn unreachable(&self, why: &str) -> Refusal {
        let refusal = Refusal::new(
            Code::CoordinatorUnreachable,
            format!("cannot reach the coordinator at {}", self.shown),
        )
        .cause(format!("connect: {why}"))
        .cause(self.whence.clone());
        match &self.target {
            Target::Unix(_) => refusal.cause("a turn's socket is gone when its host closes"),
            Target::Tcp(_) => refusal
                .next("start one: posthouse up")
                .next("or point to one: export POSTHOUSE_URL=http://HOST:7420"),
        }
    }

    fn broken(&self, why: &str) -> Refusal {
        Refusal::new(
            Code::CoordinatorUnreachable,
            format!("the connection to the coordinator at {} broke", self.shown),
        )
        .cause(why)
        .cause(self.whence.clone())
        .effect("whether it was done is not known")
    }
}

enum Connected {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// How long a request may be kept waiting by its own wish.
fn waits(request: &Request) -> Duration {
    match serde_json::to_value(request) {
        Ok(fields) => {
            let ms = fields.get("timeout_ms").and_then(serde_json::Value::as_u64);
            Duration::from_millis(ms.unwrap_or(0))
        }
        Err(_) => Duration::ZERO,
    }
}

/// `host:port` of an address that is written `http://host[:port]`.
fn authority(url: &str) -> Result<String, Refusal> {
    let broken = |message: String| Refusal::new(Code::BadConfig, message).effect("nothing was sent");
    let Some(rest) = url.strip_prefix("http://") else {
        return Err(broken(format!("{url:?} is not an address of the form http://HOST:PORT")));
    };
    let authority = rest.split('/').next().unwrap_or("");
    let uri: Result<hyper::http::uri::Authority, _> = authority.parse();
    match uri {
        Ok(uri) if uri.host().is_empty() => Err(broken(format!("{url:?} names no host"))),
        Ok(uri) => Ok(format!("{}:{}", uri.host(), uri.port_u16().unwrap_or(80))),
        Err(error) => Err(broken(format!("{url:?} is not an address")).because(&error)),
    }
}

/// Whether an address is this machine's own, so that the data directory's token may go there. The unspecified one, on
/// which a coordinator in a container listens, means this machine to whoever connects to it.
fn is_local(authority: &str) -> bool {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let own = |address: std::net::IpAddr| address.is_loopback() || address.is_unspecified();
    bare == "localhost" || bare.parse().is_ok_and(own)
}

fn token_of(path: &Path) -> Option<String> {
    let text = posthouse_shared::durable::Files::real().read(path, TOKEN_BYTES_MAX).ok()?;
    let token = String::from_utf8(text).ok()?.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

/// The system's word without its number, in lower case.
fn io_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_others_refused() {
        assert_eq!(authority("http://127.0.0.1:7420").unwrap(), "127.0.0.1:7420");
        assert_eq!(authority("http://beta/").unwrap(), "beta:80");
        assert_eq!(authority("http://[::1]:7").unwrap(), "[::1]:7");
        for bad in ["", "https://a", "127.0.0.1:1", "http://", "http://a b"] {
            assert_eq!(authority(bad).unwrap_err().code, Code::BadConfig, "{bad}");
        }
    }

    #[test]
    fn the_token_of_the_data_directory_stays_on_this_machine() {
        for local in ["127.0.0.1:7420", "127.9.9.9:1", "[::1]:7420", "localhost:1", "0.0.0.0:7420", "[::]:1"]
        {
            assert!(is_local(local), "{local}");
        }
        for other in ["10.0.0.1:7420", "beta:80", "localhost.example:80", "[::2]:1"] {
            assert!(!is_local(other), "{other}");
        }
    }
}
