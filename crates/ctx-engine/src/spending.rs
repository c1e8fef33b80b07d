//! What model calls have cost today, and whether another one may be paid for.
//!
//! The records are the truth: what this daemon has written it counts as it writes it, and what was paid before it began, on
//! the same day, the index knows. A call counts when it is over, so calls under way at once may go beyond a limit together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctx_journal::lock;
use ctx_session::record::{CompactionBody, Failure, MessageBody, PluginCost, Record, SessionMeta, Usage};
use ctx_session::{Body, Code, Limits, Name, Timestamp, Usd};

use crate::followers::Behind;

/// A day, in milliseconds: days are those of UTC.
const DAY: u64 = 86_400_000;
/// How long a call waits for an index that is still being read.
const INDEX_PATIENCE: Duration = Duration::from_secs(30);

type Whose = (u32, Name);

/// What was paid on one day, by operator and project.
#[derive(Debug, Clone, Default)]
struct Day {
    number: u64,
    shares: HashMap<Whose, u64>,
}

impl Day {
    fn of_project(&self, whose: &Whose) -> u64 {
        self.shares.get(whose).copied().unwrap_or(0)
    }

    fn of_operator(&self, operator: u32) -> u64 {
        self.shares.iter().filter(|((one, _), _)| *one == operator).map(|(_, cost)| *cost).sum()
    }
}

pub(crate) struct Spending {
    began: Timestamp,
    /// Since this daemon began.
    live: Mutex<Day>,
    /// On the day it began, before it did; None: not asked for yet.
    before: Mutex<Option<Arc<Day>>>,
}

/// What a session would spend for.
pub(crate) struct Spender {
    pub operator: u32,
    pub project: Name,
    pub session: Usd,
}

fn day_of(time: Timestamp) -> u64 {
    time.as_millis() / DAY
}

/// What a record says was paid.
fn usage_of(body: &Body) -> Option<Usage> {
    match body {
        Body::Message(MessageBody::AssistantFinished(message)) => message.usage,
        Body::Compaction(CompactionBody::Recorded(made)) => made.plugin_cost.as_ref().map(PluginCost::usage),
        _ => None,
    }
}

impl Spending {
    pub fn since(began: Timestamp) -> Spending {
        let live = Mutex::new(Day { number: day_of(began), shares: HashMap::new() });
        Spending { began, live, before: Mutex::default() }
    }

    /// Counts what was written just now. What was copied from an earlier time was paid then.
    pub fn note(&self, meta: &SessionMeta, records: &[Record]) {
        for record in records {
            let cost = usage_of(&record.body).map_or(0, |usage| usage.cost_nano_usd);
            let number = day_of(record.time);
            if cost == 0 || record.time < self.began {
                continue;
            }
            let mut live = lock(&self.live);
            if live.number < number {
                *live = Day { number, shares: HashMap::new() };
            }
            if live.number == number {
                let share = live.shares.entry((meta.owner, meta.project.clone())).or_insert(0);
                *share = share.saturating_add(cost);
            }
        }
    }

    /// Whether another call may be paid for; else what stands in the way. Blocks where the index has to be asked.
    pub fn check(
        &self,
        spender: &Spender,
        limits: &Limits,
        behind: &Behind,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let is_reached = |limit: Usd, spent: u64| limit.nano > 0 && spent >= limit.nano;
        let of_session = limits.spend_session_usd;
        if is_reached(of_session, spender.session.nano) {
            return Err(reached("spend_session_usd", of_session, spender.session, "this session has spent"));
        }
        let (of_project, of_operator) = (limits.spend_project_day_usd, limits.spend_operator_day_usd);
        if of_project.nano == 0 && of_operator.nano == 0 {
            return Ok(());
        }
        let whose = (spender.operator, spender.project.clone());
        let today = day_of(now);
        let mut spent = (0_u64, 0_u64);
        let mut add = |day: &Day| {
            if day.number == today {
                spent.0 = spent.0.saturating_add(day.of_project(&whose));
                spent.1 = spent.1.saturating_add(day.of_operator(spender.operator));
            }
        };
        if day_of(self.began) == today {
            add(&self.before(behind));
        }
        add(&lock(&self.live));
        if is_reached(of_project, spent.0) {
            let whose = format!("today (UTC) project {} has spent", spender.project);
            return Err(reached("spend_project_day_usd", of_project, Usd::of_nano(spent.0), &whose));
        }
        if is_reached(of_operator, spent.1) {
            let whose = "today (UTC) your sessions have spent";
            return Err(reached("spend_operator_day_usd", of_operator, Usd::of_nano(spent.1), whose));
        }
        Ok(())
    }

    /// What was paid on the day this daemon began, before it did. Kept once the index has read all logs.
    fn before(&self, behind: &Behind) -> Arc<Day> {
        let mut before = lock(&self.before);
        if let Some(day) = &*before {
            return day.clone();
        }
        let number = day_of(self.began);
        let nothing = || Arc::new(Day { number, shares: HashMap::new() });
        let Some(index) = behind.index() else { return nothing() };
        let is_whole = index.wait_lists(INDEX_PATIENCE);
        let from = Timestamp::from_millis(number.saturating_mul(DAY));
        let paid = match index.ask(|queries| queries.paid(from, self.began)) {
            Ok(paid) => paid,
            Err(error) => {
                tracing::warn!(%error, "what was spent before this daemon began is not known");
                return nothing();
            }
        };
        let named = |share: ctx_views::db::Share| {
            let project = Name::new(&share.project).ok()?;
            Some(((share.operator, project), share.cost_nano_usd))
        };
        let day = Arc::new(Day { number, shares: paid.into_iter().filter_map(named).collect() });
        if is_whole {
            *before = Some(day.clone());
        }
        day
    }
}

fn reached(key: &str, limit: Usd, spent: Usd, whose: &str) -> Failure {
    Failure {
        code: Code::Edquot,
        reason: "spend_limit".to_owned(),
        message: format!(
            "{whose} {spent}, and limits.{key} is {limit}; raise it in the config file and restart the daemon to go on"
        ),
    }
}
