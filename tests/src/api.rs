//! Requests to the coordinator's HTTP interface, one connection each, with nothing of the project's own client in
//! between. An answer that did not arrive is told apart from a refusal: only the first may be asked again.

use std::io::{Read, Write};
use std::net::TcpStream;

use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Failure;
use posthouse_shared::wire::requests::Request;
use serde_json::Value;

use crate::cluster::PATIENCE;

/// A caller with the operator's token.
#[derive(Debug, Clone)]
pub struct Api {
    address: String,
    token: String,
}

/// Why there is no reply.
#[derive(Debug)]
pub enum Fault {
    /// The coordinator refused.
    Refused(Box<Refusal>),
    /// No whole answer came: it may have been done or not.
    Unknown(String),
}

impl Api {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { address, token: token.to_owned() }
    }

    /// Asks, and gives the answer's document.
    pub fn ask(&self, request: &Request) -> Result<Value, Fault> {
        let (status, body) = self.exchange(request).map_err(|error| Fault::Unknown(error.to_string()))?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&body).map_err(|error| Fault::Unknown(error.to_string()));
        }
        match serde_json::from_slice::<Failure>(&body) {
            Ok(failure) => Err(Fault::Refused(Box::new(failure.error))),
            Err(error) => panic!("status {status} without an error document ({error}): {body:?}"),
        }
    }

    fn exchange(&self, request: &Request) -> std::io::Result<(u16, Vec<u8>)> {
        let form = request.to_http().expect("every request has a route");
        let body = form.body.unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            form.method,
            form.path,
            self.address,
            self.token,
            body.len()
        );
        stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&answer).ok_or_else(|| std::io::Error::other("the answer was cut off"))
    }
}

/// Status and body of a whole answer.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let split = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..split]).ok()?.to_ascii_lowercase();
    let body = &answer[split + 4..];
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if let Some(length) = field("content-length:") {
        let length: usize = length.parse().ok()?;
        return (body.len() >= length).then(|| (status, body[..length].to_vec()));
    }
    (field("transfer-encoding:") == Some("chunked"))
        .then(|| unchunked(body))
        .flatten()
        .map(|body| (status, body))
}

fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).ok()?.trim(), 16).ok()?;
        body = body.get(end + 2..)?;
        if length == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(body.get(..length)?);
        body = body.get(length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(parse(sized), Some((200, b"hi".to_vec())));
        assert_eq!(parse(&sized[..sized.len() - 1]), None);
        let chunked = b"HTTP/1.1 404 x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n";
        assert_eq!(parse(chunked), Some((404, b"hi!".to_vec())));
        assert_eq!(parse(&chunked[..chunked.len() - 6]), None);
    }
}
