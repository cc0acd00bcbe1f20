//! A coordinator that answers by script and keeps what it was asked; and the command line run against it in
//! this process, with its streams kept.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use posthouse_coordinator::cli::{self, Host, Run, Terminal, Up, World};
use posthouse_coordinator::config::Environment;
use posthouse_shared::clock::{ManualClock, Stamp};
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use serde_json::Value;

/// One request as it came: `METHOD /path`, the token, the body.
#[derive(Debug, Clone)]
pub struct Asked {
    pub line: String,
    pub token: String,
    pub body: Value,
}

type Answers = dyn Fn(usize, &Asked) -> (u16, String) + Send + Sync;

/// The scripted coordinator.
pub struct Fake {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Fake {
    pub fn answering(answers: impl Fn(usize, &Asked) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers): (_, Arc<Answers>) = (Arc::clone(&asked), Arc::new(answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &kept, &*answers);
            }
        });
        Self { url, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(stream: TcpStream, kept: &Mutex<Vec<Asked>>, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let find =
            |line: &String| line.to_lowercase().strip_prefix(name).map(|value| value.trim().to_owned());
        head.iter().find_map(find).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length:").parse().unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let line = head[0].trim_end_matches(" HTTP/1.1").to_owned();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let asked = Asked { line, token: header("authorization: bearer"), body };
    let count = {
        let mut kept = kept.lock().unwrap();
        kept.push(asked.clone());
        kept.len() - 1
    };
    let (status, text) = answers(count, &asked);
    let length = text.len();
    let mut stream = reader.into_inner();
    let _the_client_may_be_gone =
        write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub code: u8,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Stdout as exactly one JSON document.
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}

/// A command to run.
pub struct Shell {
    pub dir: tempfile::TempDir,
    pub variables: Vec<(&'static str, String)>,
    pub terminal: Terminal,
    pub stdin: String,
    pub broken_stdout: bool,
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>, bool);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1 {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Hooks;

impl Host for Hooks {
    fn up(&self, up: Up) -> Result<u8, Refusal> {
        assert_eq!(up.config.listen.value, "127.0.0.1:0");
        Ok(0)
    }
    fn run(&self, run: Run) -> Result<u8, Refusal> {
        Err(Refusal::new(Code::TeamFileChanged, format!("{} fresh={}", run.file.name, run.fresh)))
    }
}

/// The time in all tests.
pub const NOW: &str = "2026-11-30T14:05:00Z";

impl Shell {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            variables: Vec::new(),
            terminal: Terminal::piped(),
            stdin: String::new(),
            broken_stdout: false,
        }
    }

    pub fn against(fake: &Fake) -> Self {
        let mut shell = Self::new();
        shell.variables = vec![("POSTHOUSE_URL", fake.url.clone()), ("POSTHOUSE_TOKEN", "secret".to_owned())];
        shell
    }

    pub fn cwd(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        let home = ("HOME", self.cwd().join("home").display().to_string());
        let all = [home].into_iter().chain(self.variables.iter().cloned());
        let (out, err) = (Kept(Arc::default(), self.broken_stdout), Kept::default());
        let now: Stamp = NOW.parse().unwrap();
        let mut world = World {
            environment: Environment::of(&self.cwd(), all),
            terminal: self.terminal,
            clock: Arc::new(ManualClock::at(now)),
            stdin: Box::new(std::io::Cursor::new(self.stdin.clone())),
            stdout: Box::new(out.clone()),
            stderr: Box::new(err.clone()),
        };
        let arguments = std::iter::once("posthouse").chain(arguments.iter().copied()).map(OsString::from);
        let code = cli::dispatch(arguments, &mut world, &Hooks);
        let text = |kept: &Kept| String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        Ran { code, out: text(&out), err: text(&err) }
    }
}
