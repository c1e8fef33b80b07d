//! Which MCP sessions are in use, and since when the others are quiet. Not which sessions there are: the SDK knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The id of an MCP session, as the SDK has it.
pub(super) type SessionId = Arc<str>;

/// The uses of one server's sessions. Cloning it is cheap.
#[derive(Clone, Default)]
pub(super) struct Uses {
    by_session: Arc<Mutex<HashMap<SessionId, Use>>>,
}

struct Use {
    /// Requests, streams and tool calls that are under way.
    held: usize,
    quiet_since: Instant,
}

/// A session is in use as long as this is there.
pub(super) struct Hold {
    uses: Uses,
    session: SessionId,
}

impl Uses {
    fn table(&self) -> MutexGuard<'_, HashMap<SessionId, Use>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn hold(&self, session: SessionId) -> Hold {
        let mut table = self.table();
        let entry = table.entry(SessionId::clone(&session));
        entry.or_insert_with(|| Use { held: 0, quiet_since: Instant::now() }).held += 1;
        drop(table);
        Hold { uses: self.clone(), session }
    }

    /// Those of these sessions that nobody has used for so long. One that is seen for the first time begins to be
    /// quiet now, and one that is not among them is forgotten.
    pub fn quiet_for(&self, sessions: &[SessionId], long: Duration, now: Instant) -> Vec<SessionId> {
        let mut table = self.table();
        table.retain(|session, one| one.held > 0 || sessions.contains(session));
        let mut quiet = Vec::new();
        for session in sessions {
            let one = table.entry(SessionId::clone(session)).or_insert(Use { held: 0, quiet_since: now });
            if one.held == 0 && now.saturating_duration_since(one.quiet_since) >= long {
                quiet.push(SessionId::clone(session));
            }
        }
        quiet
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(one) = self.uses.table().get_mut(&self.session) {
            one.held = one.held.saturating_sub(1);
            one.quiet_since = Instant::now();
        }
    }
}
