//! What the authority decides, through its handle and over real files.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod authority_support;

use authority_support::*;
use posthouse_coordinator::authority::{BoardCommand, Command, Lifecycle, Reply};
use posthouse_node::port::GaveUp;
use posthouse_shared::codes::Code;
use posthouse_shared::message::Kind;
use posthouse_shared::name::AgentName;
use posthouse_shared::task::{TaskChange, TaskStatus};
use posthouse_shared::team::Standing;

fn code(reply: Result<Reply, posthouse_shared::refusal::Refusal>) -> Code {
    let refusal = reply.unwrap_err();
    assert_eq!(refusal.effect.as_deref(), Some("nothing was changed"), "{refusal}");
    refusal.code
}

fn complete(id: &str, generation: Option<&str>) -> BoardCommand {
    BoardCommand::Complete {
        id: id.to_owned(),
        generation: generation.map(|g| g.parse().unwrap()),
        result: Some("42".to_owned()),
    }
}

#[test]
fn at15_a_restart_gives_the_same_team_members_and_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    for name in ["ada", "bob"] {
        ask(&authority, spawn(name)).unwrap();
    }
    for (id, blockers) in [("size", &[][..]), ("todo", &[]), ("report", &["size", "todo"])] {
        ask(&authority, add(id, blockers)).unwrap();
    }
    task(ask(&authority, board_as("ada", claim("size"))));
    ask(&authority, board_as("ada", complete("size", None))).unwrap();
    task(ask(&authority, board_as("bob", claim("todo"))));
    let before = content(&authority);
    let lead = member(&authority, "lead");
    authority.close();
    let authority = open(dir.path(), 2).unwrap();
    assert_eq!(content(&authority), before);
    assert_eq!(member(&authority, "lead"), lead, "the same data id keeps the lead's grant");
    assert_eq!(authority.state().head.term, 1);
    task(ask(&authority, board_as("bob", complete("todo", None))));
    let report = task(ask(&authority, board_as("ada", claim("report"))));
    assert_eq!(report.status, TaskStatus::InProgress);
}

#[test]
fn a_claim_is_refused_with_what_stands_in_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    ask(&authority, spawn("bob")).unwrap();
    for (id, blockers) in [("a", &[][..]), ("b", &["a"]), ("c", &[]), ("d", &[])] {
        ask(&authority, add(id, blockers)).unwrap();
    }
    let mine = task(ask(&authority, board_as("ada", claim("a"))));
    let taken = ask(&authority, board_as("bob", claim("a"))).unwrap_err();
    assert_eq!(taken.code, Code::TaskClaimed);
    assert!(taken.message.contains("ada"), "{taken}");
    let blocked = ask(&authority, board_as("bob", claim("b"))).unwrap_err();
    assert_eq!(blocked.code, Code::TaskBlocked);
    assert!(blocked.message.contains("a (in_progress)"), "{blocked}");
    assert_eq!(code(ask(&authority, board_as("ada", claim("c")))), Code::ClaimerBusy);
    let unknown = ask(&authority, board_as("adda", claim("c"))).unwrap_err();
    assert_eq!((unknown.code, unknown.closest[0].name.as_str()), (Code::UnknownAgent, "ada"));
    let change = TaskChange { blocked_by: Some(vec!["b".parse().unwrap()]), ..TaskChange::default() };
    let update = BoardCommand::Update { id: "a".to_owned(), change: Box::new(change) };
    let cycle = ask(&authority, board(update)).unwrap_err();
    assert_eq!(cycle.code, Code::TaskCycle);
    assert!(cycle.message.contains("a -> b -> a"), "{cycle}");

    ask(&authority, board(BoardCommand::Release { id: "a".to_owned(), generation: None })).unwrap();
    let again = task(ask(&authority, board_as("bob", claim("a"))));
    assert!(again.generation > mine.generation);
    let old = mine.generation.unwrap().to_string();
    assert_eq!(code(ask(&authority, board_as("ada", complete("a", Some(&old))))), Code::WrongGeneration);
    let now = again.generation.unwrap().to_string();
    let done = task(ask(&authority, board_as("bob", complete("a", Some(&now)))));
    assert_eq!(task(ask(&authority, board_as("bob", complete("a", Some(&now))))), done);
    assert_eq!(code(ask(&authority, board_as("ada", complete("a", None)))), Code::TaskDone);
    assert_eq!(task(ask(&authority, board_as("ada", claim("b")))).status, TaskStatus::InProgress);
}

#[test]
fn a_teammate_is_itself_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    ask(&authority, spawn("bob")).unwrap();
    ask(&authority, add("a", &[])).unwrap();
    let ada = agent(&authority, "ada");
    let by_ada = |command| authority.decide_blocking(ada.clone(), command, None);
    assert_eq!(code(by_ada(board_as("bob", claim("a")))), Code::NotYourself);
    assert_eq!(code(by_ada(spawn("eve"))), Code::OperatorOnly);
    assert_eq!(code(by_ada(board(BoardCommand::Cancel { id: "a".to_owned() }))), Code::OperatorOnly);
    assert_eq!(task(by_ada(board(claim("a")))).owner.as_ref().map(AgentName::as_str), Some("ada"));
    assert_eq!(code(ask(&authority, spawn("ada"))), Code::NameTaken);
    assert_eq!(code(ask(&authority, spawn("posthouse"))), Code::ReservedName);
    assert_eq!(code(ask(&authority, create())), Code::NameTaken);
}

#[test]
fn a_task_that_failed_too_often_is_on_hold_until_a_person_releases_it() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    ask(&authority, add("a", &[])).unwrap();
    let ada = agent(&authority, "ada");
    for how in [GaveUp::Stopped, GaveUp::Stopped]
        .into_iter()
        .chain(std::iter::repeat_n(GaveUp::Failed { why: "exit 101".to_owned() }, 5))
    {
        let next = authority.decide_blocking(ada.clone(), board(BoardCommand::ClaimNext), None).unwrap();
        let Reply::Claimed(Some(claimed)) = next else { panic!("{next:?}") };
        let give_up = BoardCommand::GiveUp { id: claimed.id, generation: claimed.generation, how };
        authority.decide_blocking(ada.clone(), board(give_up), None).unwrap();
    }
    let next = authority.decide_blocking(ada.clone(), board(BoardCommand::ClaimNext), None).unwrap();
    assert_eq!(next, Reply::Claimed(None));
    let held = ask(&authority, board_as("ada", claim("a"))).unwrap_err();
    assert_eq!(held.code, Code::TaskOnHold);
    assert!(held.message.contains("exit 101"), "{held}");
    let told = authority.state().unsent().filter(|mail| mail.body.contains("on hold")).count();
    assert_eq!(told, 1);
    let release = BoardCommand::Release { id: "a".to_owned(), generation: None };
    assert_eq!(code(authority.decide_blocking(ada, board(release.clone()), None)), Code::TaskOnHold);
    assert_eq!(task(ask(&authority, board(release))).attempts, 0);
    task(ask(&authority, board_as("ada", claim("a"))));
}

#[test]
fn a_claim_of_a_teammate_that_failed_returns_and_the_lead_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    ask(&authority, add("a", &[])).unwrap();
    let ada = agent(&authority, "ada");
    let first = task(authority.decide_blocking(ada.clone(), board(claim("a")), None));
    let stop = Command::Lifecycle { team: "main".to_owned(), name: "ada".to_owned(), what: Lifecycle::Stop };
    let Reply::Member(_, stopped) = ask(&authority, stop).unwrap() else { panic!() };
    assert_eq!(stopped.standing, Standing::Stopped);
    let failed = |applied| Command::Standing { applied, standing: Standing::Failed };
    let stale = authority.decide_blocking(ada.clone(), failed(stopped.birth), None);
    assert_eq!(code(stale), Code::WrongGeneration);
    authority.decide_blocking(ada.clone(), failed(stopped.commanded), None).unwrap();
    let state = authority.state();
    let board_now = &state.find_team("main").unwrap().board;
    let freed = board_now.get(&first.id).unwrap();
    assert_eq!((freed.status, freed.owner.as_ref()), (TaskStatus::Pending, None));
    let kinds: Vec<Kind> = state.unsent().map(|mail| mail.kind).collect();
    assert_eq!(kinds, [Kind::Task, Kind::Stop, Kind::Notice]);
    let ids: Vec<_> = state.unsent().map(|mail| mail.id).collect();
    ask(&authority, Command::Notified { through: state.head.index }).unwrap();
    assert_eq!(authority.state().unsent().count(), 0);
    authority.close();
    let authority = open(dir.path(), 2).unwrap();
    assert_eq!(authority.state().unsent().count(), 0, "{ids:?}");
    assert_eq!(code(ask(&authority, board_as("ada", claim("a")))), Code::ClaimerNotActive);
}

#[test]
fn a_repeated_request_gets_the_first_answer_or_is_told_that_it_is_superseded() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    ask(&authority, add("a", &[])).unwrap();
    ask(&authority, add("b", &[])).unwrap();
    let again = |authority: &posthouse_coordinator::authority::Authority, what: BoardCommand| {
        authority.decide_blocking(OPERATOR, board_as("ada", what), Some("r-1".to_owned()))
    };
    let first = task(again(&authority, claim("a")));
    authority.close();
    let authority = open(dir.path(), 2).unwrap();
    let index = authority.state().head.index;
    assert_eq!(task(again(&authority, claim("a"))), first, "remembered over a restart");
    assert_eq!(authority.state().head.index, index, "and not decided twice");
    assert_eq!(code(again(&authority, claim("b"))), Code::Superseded);
    ask(&authority, board(BoardCommand::Release { id: "a".to_owned(), generation: None })).unwrap();
    assert_eq!(code(again(&authority, claim("a"))), Code::Superseded);
}

#[test]
fn a_name_that_was_shut_down_may_be_taken_again_with_another_birth() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    let (ada, before) = (agent(&authority, "ada"), member(&authority, "ada"));
    let end = Command::Standing { applied: before.commanded, standing: Standing::Shutdown };
    authority.decide_blocking(ada.clone(), end, None).unwrap();
    ask(&authority, spawn("ada")).unwrap();
    assert!(member(&authority, "ada").birth > before.birth);
    let stale = authority.decide_blocking(ada, board(BoardCommand::ClaimNext), None);
    assert_eq!(code(stale), Code::WrongGeneration);
}

#[test]
fn a_host_that_cannot_take_a_teammate_is_an_error_and_never_a_fallback() {
    let dir = tempfile::tempdir().unwrap();
    let authority = open(dir.path(), 1).unwrap();
    ask(&authority, create()).unwrap();
    let on = |host: Option<&str>, gpu: Option<&str>| {
        let mut spec = spec("ada");
        spec.host = host.map(|host| host.parse().unwrap());
        spec.labels = gpu.map(|gpu| ("gpu".to_owned(), gpu.to_owned())).into_iter().collect();
        Command::Spawn { team: "main".to_owned(), spec: Box::new(spec) }
    };
    let unknown = ask(&authority, on(Some("alpah"), None)).unwrap_err();
    assert_eq!((unknown.code, unknown.closest[0].name.as_str()), (Code::UnknownHost, "alpha"));
    let lacking = ask(&authority, on(Some("alpha"), Some("yes"))).unwrap_err();
    assert_eq!(lacking.code, Code::NoHostFits);
    assert!(lacking.cause[0].contains("gpu"), "{lacking:?}");
    assert_eq!(code(ask(&authority, on(None, Some("yes")))), Code::NoHostFits);
    ask(&authority, on(None, Some("no"))).unwrap();
}

#[test]
fn a_start_that_is_not_a_later_one_of_the_same_data_is_refused_until_adopted() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), 3).unwrap().close();
    for boot in [2, 3] {
        let refusal = open(dir.path(), boot).unwrap_err().refusal();
        assert_eq!(refusal.code, Code::DataForeign);
    }
    let foreign = |adopt| {
        let mut options = options(posthouse_shared::durable::Files::real(), dir.path(), 9);
        options.start.data_id = "data-2".to_owned();
        options.adopt = adopt;
        posthouse_coordinator::authority::Authority::open(options)
    };
    assert!(foreign(false).is_err());
    let adopted = foreign(true).unwrap();
    assert_eq!(adopted.state().head.term, 2, "another data id begins another term");
}
