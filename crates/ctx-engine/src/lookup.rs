//! Questions to the views behind: full text over messages, counts, and the audit log. Whoever asks sees their own alone, and
//! the daemon's owner sees all. Views follow behind the sessions, so the newest may be missing for a moment.

use ctx_journal::LogPath;
use ctx_session::conversation::Role;
use ctx_session::{Code, Name, Refusal, SessionId, Timestamp};
use ctx_views::audit::{AuditQuery, AuditReader, EventName};
use ctx_views::db::{DbError, Queries, SearchQuery, StatsQuery, Viewer};

pub use ctx_views::audit::{AuditLine, RecordOf};
pub use ctx_views::db::{
    Hit, Page, Piece as SnippetPiece, SearchSort, SessionHits, Spent, Standing, Stats, ToolStats,
};

use crate::engine::Engine;
use crate::followers::AUDIT;
use crate::request::Caller;

/// What to look for in the messages.
#[derive(Debug, Clone)]
pub struct Search {
    pub text: String,
    pub session: Option<SessionId>,
    pub agent: Option<Name>,
    pub project: Option<Name>,
    pub role: Option<Role>,
    /// In sessions that began in this directory or below it, or work there.
    pub dir: Option<String>,
    /// In sessions whose source says that they were on this branch.
    pub branch: Option<String>,
    /// What this tool gave.
    pub tool: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Also what was taken back.
    pub superseded: bool,
    pub sort: SearchSort,
    pub limit: usize,
    pub cursor: Option<String>,
}

impl Search {
    fn seen_by(self, viewer: Viewer) -> SearchQuery {
        let Search {
            text,
            session,
            agent,
            project,
            role,
            dir,
            branch,
            tool,
            since,
            until,
            superseded,
            sort,
            limit,
            cursor,
        } = self;
        SearchQuery {
            viewer,
            text,
            agent,
            project,
            role,
            session,
            dir,
            branch,
            tool,
            since,
            until,
            superseded,
            sort,
            limit,
            after: cursor,
        }
    }
}

/// Over which sessions to count.
#[derive(Debug, Clone)]
pub struct StatsWish {
    pub agent: Option<Name>,
    pub project: Option<Name>,
    /// Those that changed since.
    pub since: Option<Timestamp>,
}

/// Which audit lines, newest first.
#[derive(Debug, Clone)]
pub struct AuditWish {
    pub session: Option<SessionId>,
    /// Names of events, any of them; none: all.
    pub events: Vec<String>,
    /// Only what this user did.
    pub user: Option<u32>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub limit: usize,
    pub before: Option<u64>,
}

impl Engine {
    pub(crate) fn viewer(&self, caller: Caller) -> Viewer {
        if caller.uid == self.inner.daemon_uid {
            return Viewer::All;
        }
        Viewer::User { uid: caller.uid, spaces: self.inner.sight(caller).spaces }
    }

    /// A page of messages that match.
    pub async fn search(&self, caller: Caller, search: Search) -> Result<Page<Hit>, Refusal> {
        let query = search.seen_by(self.viewer(caller));
        let engine = self.clone();
        blocking(move || engine.ask_index(|queries| queries.search(&query))).await
    }

    /// The sessions with the best matches, each with at most so many of them; and whether there are more.
    pub async fn search_sessions(
        &self,
        caller: Caller,
        search: Search,
        per_session: usize,
    ) -> Result<(Vec<SessionHits>, bool), Refusal> {
        let query = search.seen_by(self.viewer(caller));
        let engine = self.clone();
        blocking(move || engine.ask_index(|queries| queries.search_sessions(&query, per_session))).await
    }

    /// What the caller's sessions come to, and how many of them the index has not read to their end yet.
    pub async fn stats(&self, caller: Caller, wish: StatsWish) -> Result<(Stats, u64), Refusal> {
        let StatsWish { agent, project, since } = wish;
        let query = StatsQuery { viewer: self.viewer(caller), agent, project, since };
        let engine = self.clone();
        blocking(move || {
            engine.ask_index(|queries| Ok((queries.stats(&query)?, queries.unread_of(&query.viewer)?)))
        })
        .await
    }

    /// Asks the index. Blocks.
    pub(crate) fn ask_index<T>(
        &self,
        query: impl FnOnce(&Queries<'_>) -> Result<T, DbError>,
    ) -> Result<T, Refusal> {
        let missing = || Refusal::new(Code::Eio, "the index is missing; the daemon's log has the reason");
        let index = self.behind().index().ok_or_else(missing)?;
        index.ask(query).map_err(|error| {
            let refusal = Refusal::new(error.code(), error.to_string());
            match error {
                DbError::BadCursor { .. } => refusal.blaming("cursor"),
                DbError::BadQuery { .. } => refusal.blaming("q"),
                DbError::Log(_)
                | DbError::Sqlite { .. }
                | DbError::Io { .. }
                | DbError::OtherVersion { .. }
                | DbError::View(_) => refusal,
            }
        })
    }

    /// A page of the audit log, and where the next begins.
    pub async fn audit(
        &self,
        caller: Caller,
        wish: AuditWish,
    ) -> Result<(Vec<AuditLine>, Option<u64>), Refusal> {
        let named = |name: &String| {
            let found = EventName::AUDITED.iter().copied().find(|event| event.as_str() == name);
            found.ok_or_else(|| Refusal::invalid("event", "unknown audit event"))
        };
        let events = wish.events.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        let is_owner = caller.uid == self.inner.daemon_uid;
        if !is_owner && wish.user.is_some_and(|user| user != caller.uid) {
            // What others did does not exist for them.
            return Ok((Vec::new(), None));
        }
        let query = AuditQuery {
            user: if is_owner { wish.user } else { Some(caller.uid) },
            session: wish.session,
            events,
            since: wish.since,
            until: wish.until,
            before: wish.before,
            limit: wish.limit,
        };
        let journal = self.inner.journal.clone();
        blocking(move || {
            let log = LogPath::new(AUDIT).map_err(|error| Refusal::new(Code::Eio, error.to_string()))?;
            let reader = AuditReader::new(journal, log);
            let newest = if is_owner { reader.newest(&query) } else { reader.newest_of(caller.uid, &query) };
            newest.map_err(|error| Refusal::new(error.code(), error.to_string()))
        })
        .await
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::new(Code::Eio, format!("asking a view broke: {error}"))))
}
