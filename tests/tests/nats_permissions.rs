//! The configuration in `deploy/nats`: a team works under it, and each user is refused what is not its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use posthouse_tests::cluster::{Host, Posthouse};
use posthouse_tests::home::Home;
use posthouse_tests::nats::Nats;
use posthouse_tests::repository::{agent, top};
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(10);
const PASSWORDS: &str = "alpha aa11\n# a comment\nbeta bb22\ngamma cc33\n";

/// What `deploy/nats/users` prints for these lines, and whether it took them.
fn users(coordinator: &str, passwords: &str) -> (bool, String) {
    let mut child = Command::new(top().join("deploy/nats/users"))
        .arg(coordinator)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(passwords.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

fn configured() -> Option<Nats> {
    let directory = tempfile::tempdir().unwrap();
    for file in ["server.conf", "common.conf"] {
        std::fs::copy(top().join("deploy/nats").join(file), directory.path().join(file)).unwrap();
    }
    let (taken, text) = users("alpha", PASSWORDS);
    assert!(taken);
    std::fs::write(directory.path().join("users.conf"), text).unwrap();
    Nats::configured(directory)
}

fn url(nats: &Nats, user: &str, password: &str) -> String {
    nats.url().replace("nats://", &format!("nats://{user}:{password}@"))
}

/// A user's connection, and what the server refuses it.
struct User {
    client: Client,
    refusals: mpsc::Receiver<String>,
}

impl User {
    async fn connect(nats: &Nats, host: &str, password: &str) -> Self {
        let (refused, refusals) = mpsc::channel(64);
        let told = move |event: Event| {
            let refused = refused.clone();
            async move {
                if let Event::ServerError(error) = event {
                    let _nobody_listens_any_more = refused.send(error.to_string()).await;
                }
            }
        };
        let options = ConnectOptions::with_user_and_password(host.to_owned(), password.to_owned())
            .custom_inbox_prefix(format!("_INBOX.{host}"))
            .event_callback(told);
        Self { client: options.connect(nats.url()).await.unwrap(), refusals }
    }

    /// The answer of the server to what was just sent: the refusals until it answers a ping.
    async fn refused(&mut self) -> Vec<String> {
        // The server works off what it is sent in order: its error stands before its pong.
        self.client.flush().await.unwrap();
        let mut refusals = Vec::new();
        while let Ok(Some(refusal)) =
            tokio::time::timeout(Duration::from_millis(200), self.refusals.recv()).await
        {
            refusals.push(refusal.to_lowercase());
        }
        refusals
    }

    async fn may_publish(&mut self, subject: &str, may: bool) {
        self.client.publish(subject.to_owned(), "".into()).await.unwrap();
        let refused = self.refused().await;
        let told =
            refused.iter().any(|text| text.contains("publish") && text.contains(&subject.to_lowercase()));
        assert_eq!(refused.is_empty(), may, "publish to {subject}: {refused:?}");
        assert!(may || told, "{subject}: {refused:?}");
    }

    async fn may_listen(&mut self, subject: &str, may: bool) {
        let _held = self.client.subscribe(subject.to_owned()).await.unwrap();
        let refused = self.refused().await;
        assert_eq!(refused.is_empty(), may, "subscribe to {subject}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_of_the_bus_speaks_as_itself_and_hears_what_is_its_own() {
    let Some(nats) = configured() else { return };
    let mut beta = User::connect(&nats, "beta", "bb22").await;
    for subject in
        ["ph.relay.alpha.beta", "ph.relay_control.gamma.beta", "ph.receipt.alpha.beta", "ph.ask", "ph.beat"]
    {
        beta.may_publish(subject, true).await;
    }
    for subject in [
        "ph.relay.alpha.gamma",
        "ph.relay_control.alpha.alpha",
        "ph.receipt.alpha.gamma",
        "ph.orders.gamma",
        "_INBOX.gamma.x",
        "$JS.API.STREAM.DELETE.PH_RELAY",
        "$JS.API.STREAM.PURGE.PH_RELAY",
        "$JS.API.STREAM.CREATE.PH_OTHER",
        "$JS.API.STREAM.MSG.GET.PH_RELAY",
        "$JS.API.DIRECT.GET.PH_RELAY",
        "$JS.API.CONSUMER.CREATE.PH_RELAY.x",
        "$JS.API.CONSUMER.DELETE.PH_RELAY.relay-gamma-1-3",
        "$JS.API.CONSUMER.MSG.NEXT.PH_JOURNAL.x",
    ] {
        beta.may_publish(subject, false).await;
    }
    for subject in ["ph.receipt.beta.*", "ph.orders.beta", "_INBOX.beta.>"] {
        beta.may_listen(subject, true).await;
    }
    for subject in [
        "ph.relay.beta.*",
        "ph.relay.gamma.*",
        "ph.receipt.gamma.*",
        "ph.receipt.*.*",
        "ph.orders.gamma",
        "ph.ask",
        "ph.beat",
        "_INBOX.>",
        "_INBOX.gamma.>",
        "$JS.API.>",
        ">",
    ] {
        beta.may_listen(subject, false).await;
    }

    let mut alpha = User::connect(&nats, "alpha", "aa11").await;
    for subject in ["ph.relay.beta.alpha", "ph.orders.beta", "_INBOX.beta.x", "$JS.API.STREAM.NAMES"] {
        alpha.may_publish(subject, true).await;
    }
    // Not even the coordinator speaks as another host.
    for subject in ["ph.relay.gamma.beta", "ph.receipt.gamma.beta", "ph.beat"] {
        alpha.may_publish(subject, false).await;
    }
    for subject in ["ph.ask", "ph.beat", "ph.receipt.alpha.*"] {
        alpha.may_listen(subject, true).await;
    }
    for subject in ["ph.receipt.beta.*", "_INBOX.beta.>", ">"] {
        alpha.may_listen(subject, false).await;
    }

    for (user, password) in [("beta", "cc33"), ("delta", "bb22"), ("", "")] {
        let nobody = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned());
        let answer = nobody.connection_timeout(SOON).connect(nats.url()).await;
        assert!(answer.is_err(), "{user:?} with {password:?}");
    }
}

#[test]
fn a_team_works_over_two_hosts_with_a_user_each() {
    let Some(nats) = configured() else { return };
    let home = Home::new();
    let posthouse = Posthouse::serve(&home, &url(&nats, "alpha", "aa11"), &[]);
    posthouse.team();
    let beta = Host::join(&posthouse, &url(&nats, "beta", "bb22"), "beta", &[]);
    posthouse.ok(&["spawn", "scout", "--host", "beta", "--prompt", "hello", "--", &agent("echo.sh")]);
    let id = posthouse.send("scout", "there and back");
    posthouse.wait(&format!("message/{id}=done"));
    posthouse.wait("team=settled");
    assert_eq!(beta.term(), 0);
    assert_eq!(posthouse.term(), 0);
}

#[test]
fn what_would_break_the_file_of_users_is_refused() {
    for (coordinator, passwords) in [
        ("alpha", "beta bb22\n"),
        ("alpha", "alpha\n"),
        ("alpha", "alpha aa11 more\n"),
        ("alpha", "alpha aa\"11\n"),
        ("alpha", "alpha aa11\nb*ta bb22\n"),
        ("alpha", "alpha aa11\nb.ta bb22\n"),
    ] {
        assert!(!users(coordinator, passwords).0, "{passwords:?}");
    }
}
