//! Questions to the views behind: full text over messages, and the audit log. Whoever asks sees their own alone, and
//! the daemon's owner sees all. Views follow behind the sessions, so the newest may be missing for a moment.

use ctx_journal::LogPath;
use ctx_session::{Code, Refusal, SessionId};
use ctx_views::audit::{AuditQuery, AuditReader, EventName};
use ctx_views::db::{DbError, Queries, SearchQuery, Viewer};

pub use ctx_views::audit::{AuditLine, RecordOf};
pub use ctx_views::db::{Hit, Page, Piece as SnippetPiece};

use crate::behind::AUDIT;
use crate::engine::{Caller, Engine};

/// What to look for in the messages.
#[derive(Debug, Clone)]
pub struct Search {
    pub text: String,
    pub session: Option<SessionId>,
    pub limit: usize,
    pub cursor: Option<String>,
}

/// Which audit lines, newest first.
#[derive(Debug, Clone)]
pub struct AuditWish {
    pub session: Option<SessionId>,
    /// The name of an event; none: all.
    pub event: Option<String>,
    pub limit: usize,
    pub before: Option<u64>,
}

impl Engine {
    pub(crate) fn viewer(&self, caller: Caller) -> Viewer {
        if caller.uid == self.inner.daemon_uid {
            return Viewer::All;
        }
        Viewer::User { uid: caller.uid, spaces: Vec::new() }
    }

    /// A page of messages that match.
    pub async fn search(&self, caller: Caller, search: Search) -> Result<Page<Hit>, Refusal> {
        let mut query = SearchQuery::new(self.viewer(caller), &search.text, search.limit);
        query.session = search.session;
        query.after = search.cursor;
        let engine = self.clone();
        blocking(move || engine.ask_index(|queries| queries.search(&query))).await
    }

    /// Asks the index. Blocks.
    pub(crate) fn ask_index<T>(
        &self,
        query: impl FnOnce(&Queries<'_>) -> Result<T, DbError>,
    ) -> Result<T, Refusal> {
        let missing = || Refusal::new(Code::Eio, "there is no index; see the daemon's log");
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
        let events = match &wish.event {
            None => Vec::new(),
            Some(name) => {
                let found = EventName::ALL.into_iter().find(|event| event.as_str() == name);
                vec![found.ok_or_else(|| Refusal::invalid("event", "there is no audit event of that name"))?]
            }
        };
        let query = AuditQuery {
            user: (caller.uid != self.inner.daemon_uid).then_some(caller.uid),
            session: wish.session,
            events,
            before: wish.before,
            limit: wish.limit,
            ..AuditQuery::default()
        };
        let journal = self.inner.journal.clone();
        blocking(move || {
            let log = LogPath::new(AUDIT).map_err(|error| Refusal::new(Code::Eio, error.to_string()))?;
            let newest = AuditReader::new(journal, log).newest(&query);
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
