//! One child process from start to end, in a process group of its own. Its input is written while its output
//! is drained, so a program that reads nothing or prints for ever blocks nobody; what is kept in memory is
//! bounded. When it has ended, what is left of its group is killed before the leader is reaped: until then
//! the kernel gives the group's id to nobody else, so no stranger can be hit.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::children::{Children, MARK_VARIABLE};
use crate::runner::Cancel;
use crate::runner::log::AgentLog;

/// How long output may go on after the program has ended: a daemon that it left behind may keep it open.
const END_OF_OUTPUT_WAIT: Duration = Duration::from_millis(300);
/// Read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// What to start.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Where; must be there.
    pub cwd: PathBuf,
    /// The whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// How much of its stdout is kept, from the beginning.
    pub stdout_bytes_max: u64,
    /// How much of its stderr is kept, from the end.
    pub stderr_bytes_max: u64,
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program, the working directory or the specification is no good: another attempt fails too.
    #[error("{0}")]
    Unusable(String),
    /// The machine has no room for it now.
    #[error("start {program}: {source}")]
    NotNow {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// Whether we had sent it a signal.
    pub signalled: bool,
    /// The head of its stdout; a cut is said in it.
    pub stdout: String,
    /// The tail of its stderr.
    pub stderr: String,
}

impl Ended {
    /// The signal that ended it, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Runs a process to its end. `wish` can ask for that end at any time. If the future is dropped, the group
/// is killed.
pub async fn run(
    launch: Launch,
    children: &Children,
    log: &AgentLog,
    mut wish: watch::Receiver<Option<Cancel>>,
    sign: impl Fn() + Sync,
) -> Result<Ended, LaunchError> {
    let (group, pipes) = start(&launch, children)?;
    let stdout = Mutex::new(Head::new(launch.stdout_bytes_max));
    let stderr = Mutex::new(Tail::new(launch.stderr_bytes_max));
    let mut signalled = false;
    {
        let feed = feed(pipes.stdin, &launch.stdin);
        let out = drain(pipes.stdout, |bytes| {
            log.write(bytes);
            stdout.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            sign();
        });
        let err = drain(pipes.stderr, |bytes| {
            log.write(bytes);
            stderr.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            sign();
        });
        let output = async { tokio::join!(out, err) };
        tokio::pin!(feed, output);
        let (mut fed, mut drained) = (false, false);
        let mut kill_at: Option<Instant> = None;
        let mut heard = None;
        loop {
            // Copied out before the wait, so that no lock of the channel is held across it.
            let asked = *wish.borrow_and_update();
            if asked != heard {
                heard = asked;
                signalled = true;
                match asked {
                    Some(Cancel::Within(grace)) => {
                        group.signal(Signal::TERM);
                        group.signal(Signal::CONT);
                        let at = Instant::now() + grace;
                        kill_at = Some(kill_at.map_or(at, |earlier| earlier.min(at)));
                    }
                    Some(Cancel::Now) | None => group.signal(Signal::KILL),
                }
            }
            let kill = async {
                match kill_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = group.ended() => break,
                () = &mut feed, if !fed => fed = true,
                _ = &mut output, if !drained => drained = true,
                changed = wish.changed() => if changed.is_err() {
                    // Nobody is left who could want it.
                    signalled = true;
                    group.signal(Signal::KILL);
                    group.ended().await;
                    break;
                },
                () = kill => {
                    group.signal(Signal::KILL);
                    group.ended().await;
                    break;
                }
            }
        }
        if !drained && tokio::time::timeout(END_OF_OUTPUT_WAIT, &mut output).await.is_err() {
            group.signal(Signal::KILL);
            let _whoever_left_the_group_keeps_it_open =
                tokio::time::timeout(END_OF_OUTPUT_WAIT, &mut output).await;
        }
    }
    let status =
        group.end(children).map_err(|source| LaunchError::NotNow { program: launch.name(), source })?;
    let stdout = stdout.into_inner().unwrap_or_else(PoisonError::into_inner).text();
    let stderr = stderr.into_inner().unwrap_or_else(PoisonError::into_inner).text();
    Ok(Ended { status, signalled, stdout, stderr })
}

impl Launch {
    fn name(&self) -> String {
        self.command.first().cloned().unwrap_or_default()
    }
}

struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

fn start(launch: &Launch, children: &Children) -> Result<(Group, Pipes), LaunchError> {
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err(LaunchError::Unusable("the command is empty".to_owned()));
    };
    if !launch.cwd.is_dir() {
        return Err(LaunchError::Unusable(format!(
            "the working directory {} is not there",
            launch.cwd.display()
        )));
    }
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&launch.environment)
        .env(MARK_VARIABLE, children.next_mark())
        .current_dir(&launch.cwd)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| not_started(program, source))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let not_now = |source| LaunchError::NotNow { program: program.clone(), source };
    let group = Group::new(child).map_err(not_now)?;
    if let Err(error) = children.record(group.pid) {
        // The mark in its environment finds it too.
        tracing::warn!(%error, "record child process");
    }
    let pipes = Pipes {
        stdin: pipes.0.map(ChildStdin::from_std).transpose().map_err(not_now)?,
        stdout: pipes.1.map(ChildStdout::from_std).transpose().map_err(not_now)?,
        stderr: pipes.2.map(ChildStderr::from_std).transpose().map_err(not_now)?,
    };
    Ok((group, pipes))
}

fn not_started(program: &str, source: io::Error) -> LaunchError {
    match source.kind() {
        io::ErrorKind::NotFound => LaunchError::Unusable(format!("the program {program} is not there")),
        io::ErrorKind::PermissionDenied => {
            LaunchError::Unusable(format!("the program {program} may not be run"))
        }
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            LaunchError::Unusable(format!("start {program}: {source}"))
        }
        _ if source.raw_os_error() == Some(8) => {
            LaunchError::Unusable(format!("the program {program} is not in a format that can be run"))
        }
        _ => LaunchError::NotNow { program: program.to_owned(), source },
    }
}

/// A child that leads a group. While it is not reaped, its id stands for that group and no other.
struct Group {
    child: Child,
    pid: Pid,
    exit: AsyncFd<OwnedFd>,
    reaped: bool,
}

impl Group {
    fn new(mut child: Child) -> io::Result<Self> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let opened = pid.ok_or_else(|| io::Error::other("no pid")).and_then(|pid| {
            let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
            Ok((pid, watch_exit(pidfd)?))
        });
        match opened {
            Ok((pid, exit)) => Ok(Self { child, pid, exit, reaped: false }),
            Err(error) => {
                let _it_may_have_ended = child.kill();
                let _reaped = child.wait();
                Err(error)
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _nobody_left_is_fine = kill_process_group(self.pid, signal);
        }
    }

    /// Waits for the leader's end without reaping it. Cancel-safe.
    async fn ended(&self) {
        let _an_error_shows_when_it_is_reaped =
            self.exit.readable().await.map(|mut ready| ready.retain_ready());
    }

    /// Kills what is left of the group, then reaps the leader.
    fn end(mut self, children: &Children) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.child.wait();
        self.reaped = true;
        children.forget(self.pid);
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _reaped = self.child.wait();
        }
    }
}

#[expect(deprecated, reason = "its successor is unsafe; an OwnedFd that only we hold is what it wants")]
fn watch_exit(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

async fn feed(stdin: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut stdin) = stdin {
        // A program need not read its input: a broken pipe is no error.
        let _unread = stdin.write_all(bytes).await;
    }
}

async fn drain(from: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        take(chunk.get(..read).unwrap_or_default());
    }
}

/// The beginning of a stream.
struct Head {
    kept: Vec<u8>,
    max: usize,
    all: u64,
}

impl Head {
    fn new(max: u64) -> Self {
        Self { kept: Vec::new(), max: usize::try_from(max).unwrap_or(usize::MAX), all: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.max.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
        self.all = self.all.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    fn text(self) -> String {
        let cut = self.all > u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if cut {
            text.push_str(&format!("\n[cut: {} bytes were printed, {} are kept]", self.all, self.kept.len()));
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// The end of a stream.
struct Tail {
    kept: VecDeque<u8>,
    max: usize,
}

impl Tail {
    fn new(max: u64) -> Self {
        Self { kept: VecDeque::new(), max: usize::try_from(max).unwrap_or(usize::MAX) }
    }

    fn push(&mut self, bytes: &[u8]) {
        let last = bytes.len().saturating_sub(self.max);
        self.kept.extend(bytes.get(last..).unwrap_or_default());
        let over = self.kept.len().saturating_sub(self.max);
        self.kept.drain(..over);
    }

    fn text(self) -> String {
        let bytes: Vec<u8> = self.kept.into();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}
