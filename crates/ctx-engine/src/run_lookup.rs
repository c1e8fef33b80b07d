//! Which session a run belongs to, for those who know the run alone. Only the newest runs are remembered; who asks
//! for an older one names its session.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use ctx_session::{RunId, SessionId};

/// How many runs are remembered.
const RUNS: usize = 10_000;

#[derive(Debug, Default)]
pub struct RecentRuns {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    session_of: HashMap<RunId, SessionId>,
    order: VecDeque<RunId>,
}

impl RecentRuns {
    pub fn remember(&self, run: RunId, session: SessionId) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.session_of.insert(run, session).is_some() {
            return;
        }
        table.order.push_back(run);
        if table.order.len() > RUNS
            && let Some(oldest) = table.order.pop_front()
        {
            table.session_of.remove(&oldest);
        }
    }

    pub fn session_of(&self, run: RunId) -> Option<SessionId> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).session_of.get(&run).copied()
    }
}
