//! The one table between requests and HTTP. A request goes out as method, path and either a query (GET) or a
//! JSON body, and comes back from them; nothing else knows paths.

use serde_json::{Map, Value};

use crate::codes::Code;
use crate::refusal::Refusal;
use crate::wire::requests::Request;

/// Method, path template, operation. `{x}` takes the field `x` of the request.
const ROUTES: &[(&str, &str, &str)] = &[
    ("GET", "/v1/status", "status"),
    ("GET", "/v1/config", "config"),
    ("POST", "/v1/teams", "team_create"),
    ("GET", "/v1/teams", "team_list"),
    ("GET", "/v1/teams/{team}", "team_show"),
    ("DELETE", "/v1/teams/{team}", "team_delete"),
    ("GET", "/v1/agents", "agent_list"),
    ("POST", "/v1/teams/{team}/agents", "spawn"),
    ("GET", "/v1/teams/{team}/agents/{name}", "agent_show"),
    ("POST", "/v1/teams/{team}/agents/{name}/stop", "stop"),
    ("POST", "/v1/teams/{team}/agents/{name}/resume", "resume"),
    ("POST", "/v1/teams/{team}/agents/{name}/shutdown", "shutdown"),
    ("GET", "/v1/teams/{team}/agents/{name}/log", "log"),
    ("POST", "/v1/teams/{team}/agents/{name}/inbox", "inbox"),
    ("POST", "/v1/teams/{team}/messages", "send"),
    ("GET", "/v1/messages/{id}", "trace"),
    ("POST", "/v1/teams/{team}/tasks", "task_add"),
    ("GET", "/v1/teams/{team}/tasks", "task_list"),
    ("GET", "/v1/teams/{team}/tasks/{id}", "task_show"),
    ("PATCH", "/v1/teams/{team}/tasks/{id}", "task_update"),
    ("POST", "/v1/teams/{team}/tasks/{id}/claim", "task_claim"),
    ("POST", "/v1/teams/{team}/tasks/{id}/release", "task_release"),
    ("POST", "/v1/teams/{team}/tasks/{id}/complete", "task_complete"),
    ("POST", "/v1/teams/{team}/tasks/{id}/cancel", "task_cancel"),
    ("POST", "/v1/teams/{team}/tasks/{id}/check", "task_check"),
    ("POST", "/v1/teams/{team}/schedules", "schedule_add"),
    ("GET", "/v1/teams/{team}/schedules", "schedule_list"),
    ("DELETE", "/v1/teams/{team}/schedules/{id}", "schedule_delete"),
    ("GET", "/v1/quarantine", "quarantine_list"),
    ("GET", "/v1/quarantine/{id}", "quarantine_show"),
    ("POST", "/v1/quarantine/{id}/redeliver", "quarantine_redeliver"),
    ("POST", "/v1/quarantine/{id}/drop", "quarantine_drop"),
    ("GET", "/v1/hosts", "host_list"),
    ("POST", "/v1/hosts/tokens", "host_token"),
    ("POST", "/v1/hosts/{host}/adopt", "host_adopt"),
    ("DELETE", "/v1/hosts/{host}", "host_remove"),
    ("GET", "/v1/attention", "attention"),
    ("GET", "/v1/teams/{team}/why/{thing}", "why"),
    ("POST", "/v1/teams/{team}/wait", "wait"),
    ("GET", "/v1/teams/{team}/brief", "brief"),
];

/// Query keys that are numbers or booleans; all others are text.
const TYPED_QUERY: &[&str] = &["after", "timeout_ms", "limit"];

/// A request as HTTP carries it.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpForm {
    /// The method.
    pub method: &'static str,
    /// Path, with the query where there is one; percent-encoded.
    pub path: String,
    /// The JSON body where there is one.
    pub body: Option<String>,
}

impl Request {
    /// The operation's name, as in `op`.
    pub fn op(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => text(fields.get("op")),
            Ok(_) | Err(_) => String::new(),
        }
    }

    /// The request as HTTP carries it.
    pub fn to_http(&self) -> Result<HttpForm, Refusal> {
        let internal = |what: &str| Refusal::new(Code::Internal, format!("encode request: {what}"));
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else {
            return Err(internal("no object"));
        };
        let op = text(fields.remove("op").as_ref());
        let Some((method, template, _)) = ROUTES.iter().find(|(_, _, name)| *name == op) else {
            return Err(internal(&format!("no route for {op}")));
        };
        let mut path = String::new();
        for segment in template.split('/').skip(1) {
            path.push('/');
            match parameter(segment) {
                Some(name) => path.push_str(&encode(&text(fields.remove(name).as_ref()))),
                None => path.push_str(segment),
            }
        }
        if matches!(*method, "GET" | "DELETE") {
            let query: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}={}", encode(&text(Some(value))))).collect();
            if !query.is_empty() {
                path = format!("{path}?{}", query.join("&"));
            }
            return Ok(HttpForm { method, path, body: None });
        }
        Ok(HttpForm { method, path, body: Some(Value::Object(fields).to_string()) })
    }

    /// The request in an HTTP message. `path` holds the query; `body` may be empty.
    pub fn from_http(method: &str, path: &str, body: &[u8]) -> Result<Self, Refusal> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let found = ROUTES.iter().find_map(|(verb, template, op)| {
            (*verb == method).then(|| fit(template, &segments)).flatten().map(|fields| (*op, fields))
        });
        let Some((op, in_path)) = found else {
            return Err(Refusal::new(Code::BadRequest, format!("no operation at {method} {path}")));
        };
        let mut fields = match body {
            [] => Map::new(),
            body => match serde_json::from_slice::<Value>(body) {
                Ok(Value::Object(fields)) => fields,
                Ok(_) => return Err(Refusal::new(Code::BadRequest, "the body is not a JSON object")),
                Err(error) => {
                    return Err(Refusal::new(Code::BadRequest, "read the body as JSON").because(&error));
                }
            },
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            let typed = TYPED_QUERY.contains(&key).then(|| serde_json::from_str(&value).ok()).flatten();
            fields.insert(decode(key)?, typed.unwrap_or(Value::String(value)));
        }
        for (name, value) in in_path {
            fields.insert(name.to_owned(), Value::String(decode(value)?));
        }
        fields.insert("op".to_owned(), Value::String(op.to_owned()));
        serde_json::from_value(Value::Object(fields))
            .map_err(|error| Refusal::new(Code::BadRequest, format!("{op}: {error}")))
    }
}

fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn fit<'a>(template: &'static str, segments: &[&'a str]) -> Option<Vec<(&'static str, &'a str)>> {
    let wanted: Vec<&'static str> = template.split('/').skip(1).collect();
    if wanted.len() != segments.len() {
        return None;
    }
    let mut fields = Vec::new();
    for (wanted, segment) in wanted.into_iter().zip(segments) {
        match parameter(wanted) {
            Some(name) => fields.push((name, *segment)),
            None if wanted == *segment => {}
            None => return None,
        }
    }
    Some(fields)
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn encode(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    // A segment of dots alone would be folded away by clients that normalise paths.
    let dots = text.bytes().all(|b| b == b'.');
    text.bytes().fold(String::new(), |mut out, b| {
        if plain(b) && !dots {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
        out
    })
}

fn decode(text: &str) -> Result<String, Refusal> {
    let broken = || Refusal::new(Code::BadRequest, format!("{text:?} is not percent-encoded UTF-8"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(b) = rest.next() {
        if b != b'%' {
            bytes.push(if b == b'+' { b' ' } else { b });
            continue;
        }
        let pair = [rest.next().ok_or_else(broken)?, rest.next().ok_or_else(broken)?];
        let digits = std::str::from_utf8(&pair).map_err(|_| broken())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| broken())?);
    }
    String::from_utf8(bytes).map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn there_and_back(request: &Request) -> Request {
        let form = request.to_http().unwrap();
        Request::from_http(form.method, &form.path, form.body.unwrap_or_default().as_bytes()).unwrap()
    }

    #[test]
    fn each_route_is_reached_and_each_operation_has_one() {
        for (method, template, op) in ROUTES {
            let path = template.replace(['{', '}'], "");
            match Request::from_http(method, &path, b"") {
                Ok(request) => assert_eq!(request.op(), *op),
                Err(refusal) => {
                    assert!(refusal.message.starts_with(&format!("{op}: missing field")), "{refusal}")
                }
            }
        }
    }

    #[test]
    fn what_is_not_a_request_is_refused_as_such() {
        for (method, path, body) in [
            ("GET", "/v1/nothing", ""),
            ("PUT", "/v1/status", ""),
            ("POST", "/v1/teams/a/messages", "[]"),
            ("POST", "/v1/teams/a/messages", "{"),
            ("POST", "/v1/teams/a/messages", r#"{"to":7,"body":"x"}"#),
            ("GET", "/v1/messages/%zz", ""),
        ] {
            let refusal = Request::from_http(method, path, body.as_bytes()).unwrap_err();
            assert_eq!(refusal.code, Code::BadRequest, "{method} {path}");
        }
    }

    proptest! {
        #[test]
        fn requests_survive_http(team in ".{0,20}", to in ".{0,20}", body in ".{0,50}", after in any::<u64>(), urgent in any::<bool>()) {
            for request in [
                Request::Send { team: team.clone(), to: to.clone(), body, id: None, summary: None, in_reply_to: None, urgent, as_agent: Some(to.clone()) },
                Request::Log { team: team.clone(), name: to.clone(), after, timeout_ms: 7 },
                Request::Why { team: team.clone(), thing: to.clone() },
                Request::AgentList { team: Some(team.clone()) },
                Request::TaskCheck { team, id: to, generation: Some(Generation::new(1, after)), as_agent: None },
            ] {
                prop_assert_eq!(there_and_back(&request), request);
            }
        }
    }

    use crate::generation::Generation;
}
