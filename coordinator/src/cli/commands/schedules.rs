//! Messages at times: `schedule`.

use posthouse_shared::codes::Code;
use posthouse_shared::name::{AgentName, NameError, ScheduleId};
use posthouse_shared::refusal::Refusal;
use posthouse_shared::team::{Missed, ScheduleSpec};
use posthouse_shared::wire::replies::{Done, ScheduleReply, ScheduleView, SchedulesReply};
use posthouse_shared::wire::requests::Request;

use crate::cli::args::{ListFormat, MissedArg, ScheduleCommand};
use crate::cli::failure::Ended;
use crate::cli::table::{Cell, Table};
use crate::cli::text::time;
use crate::cli::world::{Look, Session};
use crate::team_file::cron_expression;

/// `schedule ...`
pub async fn schedule(session: &mut Session<'_>, command: ScheduleCommand) -> Result<u8, Ended> {
    let team = session.team();
    match command {
        ScheduleCommand::Add { cron, to, message, id, missed, team: _ } => {
            let bad = |error: NameError| Refusal::new(Code::BadName, error.to_string());
            cron_expression(&cron).map_err(|why| {
                Refusal::new(Code::BadRequest, format!("{cron:?} is not a cron expression"))
                    .cause(why)
                    .effect("nothing was created")
                    .next("five fields in UTC, minute hour day month weekday: posthouse schedule add \"0 9 * * 1-5\" NAME TEXT")
            })?;
            let spec = ScheduleSpec {
                id: id.map(ScheduleId::new).transpose().map_err(bad)?,
                cron,
                to: AgentName::new(to).map_err(bad)?,
                message: session.text(&message)?,
                missed: match missed {
                    MissedArg::Skip => Missed::Skip,
                    MissedArg::Once => Missed::Once,
                },
            };
            let request = Request::ScheduleAdd { team, spec };
            session
                .show::<ScheduleReply>(&request, |reply, look| {
                    let one = &reply.schedule;
                    format!("{}  next {}\n", one.schedule.id, next(one, look))
                })
                .await
        }
        ScheduleCommand::Ls { list, .. } => {
            session
                .list::<SchedulesReply>(&Request::ScheduleList { team }, list.output, |answer, look| {
                    schedules(&answer.reply.schedules, look)
                })
                .await
        }
        ScheduleCommand::Delete { id, .. } => {
            session
                .show::<Done>(&Request::ScheduleDelete { team, id }, |reply, _| format!("{}\n", reply.done))
                .await
        }
    }
}

fn next(one: &ScheduleView, look: &Look) -> String {
    one.next.map_or_else(|| "never".to_owned(), |at| time(at, look.now))
}

fn schedules(all: &[ScheduleView], look: &Look) -> String {
    if look.format == ListFormat::Name {
        return all.iter().map(|one| format!("{}\n", one.schedule.id)).collect();
    }
    if all.is_empty() {
        return "no schedules\n".to_owned();
    }
    let wide = look.format == ListFormat::Wide;
    let mut titles = vec!["ID", "CRON", "TO", "NEXT", "MISSED", "MESSAGE"];
    if wide {
        titles.extend(["BIRTH", "THROUGH"]);
    }
    let mut table = Table::new(titles, "MESSAGE");
    for one in all {
        let schedule = &one.schedule;
        let missed = match schedule.missed {
            Missed::Skip => "skip",
            Missed::Once => "once",
        };
        let mut row: Vec<Cell> = vec![
            schedule.id.as_str().into(),
            schedule.cron.as_str().into(),
            schedule.to.as_str().into(),
            next(one, look).into(),
            missed.into(),
            look.terminal.safe(&schedule.message).into(),
        ];
        if wide {
            row.push(schedule.birth.to_string().into());
            row.push(time(schedule.through, look.now).into());
        }
        table.row(row);
    }
    table.render(&look.terminal)
}
