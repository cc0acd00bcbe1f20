//! Team files: what is read from a good one, and the exact words about a bad one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests read as sentences, and fail by panicking"
)]

use std::path::{Path, PathBuf};

use posthouse_coordinator::team_file::{Diagnostics, Source, TeamFile, TeamFileError};
use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Missed, RunnerSpec};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    /// `teams/audit.toml` below the root, asked for from `elsewhere`.
    fn source(&self, set: &[(&str, &str)]) -> Source {
        std::fs::create_dir_all(self.root().join("teams")).unwrap();
        Source {
            shown: "audit.toml".to_owned(),
            path: self.root().join("teams/audit.toml"),
            typed_in: self.root().join("elsewhere"),
            set: set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            rehome_after_ms: 300_000,
        }
    }

    fn program(&self, path: &str) -> PathBuf {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/bin/sh", &path).unwrap();
        path
    }
}

fn wrong(text: &str, set: &[(&str, &str)]) -> Diagnostics {
    TeamFile::parse(text, &Place::new().source(set)).unwrap_err()
}

fn messages(text: &str) -> Vec<String> {
    wrong(text, &[]).list.into_iter().map(|one| one.message).collect()
}

const MEMBER: &str = "[team]\nname = \"audit\"\n[[member]]\nname = \"counter\"\nrole = \"measure\"\nrunner = \"command\"\ncommand = [\"sh\"]\nprompt = \"p\"\n";

#[test]
fn a_good_file_is_resolved_whole() {
    let place = Place::new();
    let program = place.program("deploy/count.sh");
    let text = r#"
[team]
name = "audit"
goal = "Audit ${dir} as $${dir}"
rehome_after = "never"
busy_check = false
[vars]
dir = { path = "." }
who = "someone"
[[member]]
name = "counter"
role = "measure"
runner = "command"
command = ["deploy/count.sh", "${dir}"]
cwd = "."
prompt = "Hello ${who}"
self_claim = true
labels = { gpu = "yes" }
[[task]]
subject = "Report"
id = "report"
blocked_by = ["size"]
role = "measure"
[[task]]
subject = "Size"
id = "size"
metadata = { depth = 3, deep = { who = "${who}" } }
[[task]]
subject = "Unnamed"
[[schedule]]
cron = "0 9 * * 1-5"
to = "counter"
message = "Daily"
missed = "once"
"#;
    let mut source = place.source(&[("who", "Ada")]);
    let file = TeamFile::parse(text, &source).unwrap();
    let teams = place.root().join("teams");
    assert_eq!(file.name.as_str(), "audit");
    assert_eq!(file.config.goal.as_deref(), Some(format!("Audit {} as ${{dir}}", teams.display()).as_str()));
    assert_eq!((file.config.rehome_after_ms, file.config.busy_check), (None, false));
    let member = &file.members[0];
    let command = vec![program.display().to_string(), teams.display().to_string()];
    assert_eq!(member.runner, RunnerSpec::Command { command });
    assert_eq!(
        (member.cwd.as_path(), member.prompt.as_str(), member.self_claim),
        (&*teams, "Hello Ada", true)
    );
    assert_eq!(member.labels["gpu"], "yes");
    let ids: Vec<&str> = file.tasks.iter().map(|task| task.id.as_ref().unwrap().as_str()).collect();
    assert_eq!(ids, ["size", "report", "task-3"]);
    assert_eq!(file.tasks[0].metadata["deep"]["who"], "Ada");
    assert_eq!(
        (file.schedules[0].missed, file.schedules[0].id.as_ref().unwrap().as_str()),
        (Missed::Once, "schedule-1")
    );

    // The same file is the same, from wherever it is asked for; another variable makes it another.
    source.typed_in = PathBuf::from("/");
    assert_eq!(TeamFile::parse(text, &source).unwrap(), file);
    source.set = vec![("dir".to_owned(), "below".to_owned()), ("who".to_owned(), "Ada".to_owned())];
    let other = TeamFile::parse(text, &source).unwrap();
    assert_eq!(other.vars["dir"], "/below");
    assert_ne!(other.config.file_digest, file.config.file_digest);
}

#[test]
fn an_unknown_blocker_is_shown_at_its_place_with_the_nearest_task() {
    let tasks =
        ["lines", "todo", "links"].map(|id| format!("[[task]]\nid = \"{id}\"\nsubject = \"s\"\n")).concat();
    let text = format!(
        "{MEMBER}{tasks}[[task]]\nid = \"report\"\nsubject = \"s\"\nblocked_by = [\"lnes\", \"todo\", \"links\"]\n"
    );
    let expected = "\
error[PH0110]: team file audit.toml: task \"report\" waits on \"lnes\", which is not defined
   ╭─ audit.toml:21:15
21 │ blocked_by = [\"lnes\", \"todo\", \"links\"]
   │               ^^^^^^ no task with this id; did you mean \"lines\"?
   ╰─ tasks defined: lines, todo, links, report
help: posthouse team check audit.toml
";
    assert_eq!(wrong(&text, &[]).render(true), expected);
    let ascii = wrong(&text, &[]).render(false);
    assert!(ascii.is_ascii() && ascii.contains("   --> audit.toml:21:15"), "{ascii}");
}

#[test]
fn all_errors_of_a_file_are_told_in_one_go_and_in_order() {
    let text = r#"
[team]
name = "Audit"
gaol = "x"
[[member]]
name = "counter"
runner = "comand"
prompt = "${nope}"
[[member]]
name = "counter"
runner = "command"
command = []
prompt = "p"
[[member]]
name = "lead"
runner = "command"
[[task]]
id = "a"
subject = "s"
role = "measure"
[[task]]
id = "a"
subject = "again"
[[task]]
id = "b"
[[task]]
id = "c"
subject = "waits on one with an error"
blocked_by = ["b"]
[[schedule]]
cron = "61 * * * *"
to = "conter"
message = 7
[[schedule]]
cron = "* * *"
to = "counter"
message = "m"
missed = "twice"
"#;
    let found = messages(text);
    let expected = [
        "team name \"Audit\" holds 'A' at position 0; use a-z, 0-9 and -, beginning with a letter or digit",
        "[team] has no key \"gaol\"",
        "no runner \"comand\"",
        "no variable \"nope\"",
        "there are two members \"counter\"",
        "the name \"lead\" is reserved",
        "task \"a\" asks for the role \"measure\", which no member has",
        "there are two tasks \"a\"",
        "task \"b\" has no subject",
        "\"61 * * * *\" is not a cron expression",
        "schedule 1 is for \"conter\", who is not defined",
        "schedule 1: message is text in quotes, not integer",
        "\"* * *\" is not a cron expression",
        "\"twice\" is no rule for missed ticks",
    ];
    let known: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(known, expected);
}

#[test]
fn a_circle_of_tasks_is_named() {
    let text = format!(
        "{MEMBER}[[task]]\nid = \"a\"\nsubject = \"s\"\nblocked_by = [\"c\"]\n[[task]]\nid = \"b\"\nsubject = \"s\"\nblocked_by = [\"a\"]\n[[task]]\nid = \"c\"\nsubject = \"s\"\nblocked_by = [\"b\"]\n"
    );
    assert_eq!(messages(&text), ["tasks wait in a circle: a -> c -> b -> a"]);
    let own = format!("{MEMBER}[[task]]\nid = \"a\"\nsubject = \"s\"\nblocked_by = [\"a\"]\n");
    assert_eq!(messages(&own), ["tasks wait in a circle: a -> a"]);
}

#[test]
fn what_a_later_build_does_is_refused_by_name() {
    for (line, message) in [
        ("isolation = \"worktree\"", "isolation in a worktree"),
        (
            "permissions = { mode = \"default\" }",
            "member \"counter\": permissions belongs to runners of models",
        ),
        ("agent = \"a.md\"", "member \"counter\": agent belongs to runners of models"),
    ] {
        let found = wrong(&format!("{MEMBER}{line}\n"), &[]);
        assert_eq!(found.code(), Code::NotInThisBuild, "{line}");
        assert_eq!(found.list[0].message, message);
    }
    for runner in ["claude", "model", "acp:codex"] {
        let found = wrong(&MEMBER.replace("\"command\"", &format!("\"{runner}\"")), &[]);
        assert_eq!(found.code(), Code::NotInThisBuild, "{runner}");
    }
}

#[test]
fn a_setting_that_nothing_uses_is_an_error_with_the_nearest_variable() {
    let text = format!("{MEMBER}cwd = \"${{where}}\"\n[vars]\nwhere = \".\"\n");
    let found = wrong(&text, &[("wher", "x")]);
    assert_eq!(found.list[0].message, "--set wher: no text of the file uses ${wher}");
    assert_eq!(found.list[0].label, "not used; did you mean \"where\"?");
}

#[test]
fn a_variable_that_is_not_set_is_marked_where_it_stands() {
    let found = wrong(&format!("{MEMBER}color = \"a ${{dri}} b\"\n[vars]\ndir = \".\"\n"), &[]);
    let text = found.render(true);
    assert!(
        text.contains("9 │ color = \"a ${dri} b\"\n  │            ^^^^^^ not set; did you mean \"dir\"?"),
        "{text}"
    );
}

#[test]
fn what_only_a_shell_understands_is_left_to_it() {
    let shell = "${x:-y} ${x-} ${#x} ${x%.c} $x $(y)";
    let text = format!("{MEMBER}[[task]]\nid = \"a\"\nsubject = \"{shell}\"\n");
    let file = TeamFile::parse(&text, &Place::new().source(&[])).unwrap();
    assert_eq!(file.tasks[0].subject, shell);
    assert_eq!(messages(&text.replace("$x ", "${ x }")), ["no variable \" x \""]);
}

#[test]
fn programs_are_looked_for_beside_the_file_and_above_it() {
    let place = Place::new();
    let text = MEMBER.replace("[\"sh\"]", "[\"bin/tool\"]");
    let source = place.source(&[]);
    let missing = TeamFile::parse(&text, &source).unwrap_err();
    assert_eq!(missing.list[0].message, "member \"counter\": no program \"bin/tool\"");
    let above = place.program("bin/tool");
    let found = |file: TeamFile| {
        let RunnerSpec::Command { command } = &file.members[0].runner;
        PathBuf::from(&command[0])
    };
    assert_eq!(found(TeamFile::parse(&text, &source).unwrap()), above);
    let beside = place.program("teams/bin/tool");
    assert_eq!(found(TeamFile::parse(&text, &source).unwrap()), beside);
    std::fs::remove_file(&beside).unwrap();
    std::fs::File::create(&beside).unwrap();
    let mute = TeamFile::parse(&text, &source).unwrap_err();
    assert_eq!(mute.list[0].message, "member \"counter\": \"bin/tool\" cannot be run");
}

#[test]
fn broken_toml_and_unreadable_files_are_told_as_such() {
    let found = wrong("[team]\nname = \n", &[]);
    assert_eq!(found.code(), Code::BadTeamFile);
    assert!(found.render(true).contains("audit.toml:2:"), "{}", found.render(true));
    assert!(!messages("").is_empty());
    let source = Source { path: PathBuf::from("/no/such/file.toml"), ..Place::new().source(&[]) };
    let error = TeamFile::read(&source).unwrap_err();
    assert!(matches!(error, TeamFileError::Read { .. }));
    let refusal = Refusal::from(&error);
    assert_eq!((refusal.code, refusal.message.as_str()), (Code::BadTeamFile, "read team file audit.toml"));
}

#[test]
fn the_file_that_init_writes_is_good() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/init.toml")).unwrap();
    let file = TeamFile::parse(&text, &Place::new().source(&[])).unwrap();
    let plan = file.plan().to_string();
    assert!(plan.contains("  again: Count them again (role count), after files\n"), "{plan}");
    assert!(plan.ends_with("nothing was started\n"), "{plan}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z\\[\\]=\"${}\\n, .#é]{0,120}", cut in 0_usize..600) {
        let place = Place::new();
        let source = place.source(&[("dir", "x")]);
        let whole = format!("{MEMBER}{text}");
        for text in [text.as_str(), whole.as_str(), MEMBER.get(..cut.min(MEMBER.len())).unwrap_or("")] {
            if let Err(wrong) = TeamFile::parse(text, &source) {
                let _shown = (wrong.render(true), wrong.render(false), wrong.refusal());
            }
        }
    }
}
