//! Who may ask for what (P8). The operator may do all; an agent acts in its own team, as itself; a teammate
//! may do what a teammate needs, and leaves the rest to the lead.

use posthouse_shared::codes::Code;
use posthouse_shared::refusal::Refusal;
use posthouse_shared::wire::Caller;
use posthouse_shared::wire::requests::Request;
use serde_json::Value;

/// What every teammate may ask for, in its own team.
const TEAMMATE: &[&str] = &[
    "status",
    "config",
    "team_show",
    "agent_list",
    "agent_show",
    "log",
    "send",
    "inbox",
    "task_list",
    "task_show",
    "task_update",
    "task_claim",
    "task_release",
    "task_complete",
    "task_check",
    "schedule_list",
    "trace",
    "why",
    "wait",
    "attention",
];

/// What belongs to the operator alone, an agent-run lead included.
const OPERATOR: &[&str] =
    &["team_create", "team_delete", "team_list", "host_list", "host_token", "host_adopt", "host_remove"];

/// Lets the request pass, or says why not.
pub fn check(caller: &Caller, request: &Request) -> Result<(), Refusal> {
    let Caller::Agent { id, .. } = caller else { return Ok(()) };
    let fields = serde_json::to_value(request).unwrap_or_default();
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let op = text("op").unwrap_or_default();
    if let Some(team) = text("team").filter(|team| *team != id.team.as_str()) {
        return Err(Refusal::new(Code::NotYourself, format!("{id} cannot act in team \"{team}\""))
            .effect("nothing was done"));
    }
    if let Some(other) = text("as").filter(|name| *name != id.agent.as_str()) {
        return Err(Refusal::new(Code::NotYourself, format!("{id} cannot act as \"{other}\""))
            .cause("the caller comes from the credential of the turn, not from --as")
            .effect("nothing was done")
            .next("leave --as away"));
    }
    let allowed = match id.agent.is_lead() {
        true => !OPERATOR.contains(&op),
        false => TEAMMATE.contains(&op),
    };
    if allowed {
        return Ok(());
    }
    Err(Refusal::new(Code::OperatorOnly, format!("{id} may not {}", op.replace('_', " ")))
        .effect("nothing was done")
        .next("posthouse send lead \"...\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthouse_shared::generation::Generation;
    use posthouse_shared::name::AgentId;

    fn agent(id: &str) -> Caller {
        Caller::Agent { id: AgentId::try_from(id.to_owned()).unwrap(), generation: Generation::new(1, 1) }
    }

    fn code(caller: &Caller, request: &Request) -> Option<Code> {
        check(caller, request).err().map(|refusal| refusal.code)
    }

    #[test]
    fn an_agent_acts_as_itself_in_its_own_team() {
        let claim = |team: &str, name: Option<&str>| Request::TaskClaim {
            team: team.to_owned(),
            id: "T-1".to_owned(),
            as_agent: name.map(str::to_owned),
            request_id: None,
        };
        let scout = agent("scout@main");
        assert_eq!(code(&scout, &claim("main", None)), None);
        assert_eq!(code(&scout, &claim("main", Some("scout"))), None);
        assert_eq!(code(&scout, &claim("main", Some("lint"))), Some(Code::NotYourself));
        assert_eq!(code(&scout, &claim("other", None)), Some(Code::NotYourself));
        assert_eq!(code(&Caller::Operator, &claim("other", Some("lint"))), None);
    }

    #[test]
    fn teammates_start_no_teammates_and_end_none() {
        let shutdown = Request::Shutdown { team: "main".to_owned(), name: "a".to_owned(), force: false };
        assert_eq!(code(&agent("scout@main"), &shutdown), Some(Code::OperatorOnly));
        assert_eq!(code(&agent("lead@main"), &shutdown), None);
        assert_eq!(
            code(&agent("lead@main"), &Request::TeamDelete { team: "main".to_owned() }),
            Some(Code::OperatorOnly)
        );
    }

    #[test]
    fn the_lists_name_operations_that_exist() {
        for op in TEAMMATE.iter().chain(OPERATOR) {
            let found = serde_json::from_value::<Request>(serde_json::json!({ "op": op }));
            let unknown = found.is_err_and(|error| error.to_string().contains("unknown variant"));
            assert!(!unknown, "{op}");
        }
    }
}
