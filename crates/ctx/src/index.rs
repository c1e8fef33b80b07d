//! Access of commands to the index: they read the database file, which needs no daemon; if the file belongs to another user,
//! they ask the daemon, which answers with the caller's own data.

use std::path::{Path, PathBuf};

use ctx_api::http::{self, List, SearchHit, SearchSessions};
use ctx_api::model;
use ctx_session::conversation::Role;
use ctx_session::{Code, Timestamp};
use ctx_views::db::{
    DbError, Hit, IndexReader, Page, Piece, SearchQuery, SearchSort, SessionHits, Spent, Standing, Stats,
    StatsQuery, ToolStats, Viewer,
};
use ctx_views::read::{Place, Reader};

use crate::client::{Api, Query};
use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::sessions::own_uid;

pub use crate::root::INDEX;
/// Hits that the daemon is asked for at once.
const PAGE: usize = 1000;

pub fn path(root: &Root) -> PathBuf {
    root.path.join(INDEX)
}

/// The index, to be asked.
pub enum Index<'a> {
    File(IndexReader),
    /// On a root that others use too. What is asked is answered as the file would answer it.
    Daemon(Api<'a>),
}

/// The index, if there is one that can be asked.
pub fn open(root: &Root) -> Result<Index<'_>, Failure> {
    // Says what is to be done where there is no root at all.
    root.reader()?;
    let path = path(root);
    let not_yet = || {
        let hint = if root.is_up() {
            "the daemon rebuilds it within seconds; try again"
        } else {
            "start the daemon with `ctx serve`, or build the index with `ctx reindex`"
        };
        Err(Failure::new(Code::Enoent, format!("no index yet at {}", path.display())).hint(hint))
    };
    match std::fs::File::open(&path) {
        Ok(_) => match IndexReader::open(&path) {
            // The daemon is about to make it.
            Err(DbError::OtherVersion { version: 0, .. }) => not_yet(),
            opened => Ok(Index::File(opened?)),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => not_yet(),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Ok(Index::Daemon(ask_daemon(root, &path)?))
        }
        Err(error) => Err(Failure::io(path.display(), error)),
    }
}

/// The daemon, asked about a file of its own.
pub fn ask_daemon<'a>(root: &'a Root, path: &Path) -> Result<Api<'a>, Failure> {
    if root.is_up() {
        return Ok(Api::new(root));
    }
    let message =
        format!("only its owner can read {}, and no daemon is running to answer for it", path.display());
    Err(Failure::new(Code::Ehostdown, message)
        .hint("`ctx ls`, `ctx history` and `ctx show` work without the daemon"))
}

impl Index<'_> {
    pub fn search(&self, query: &SearchQuery) -> Result<Page<Hit>, Failure> {
        match self {
            Index::File(index) => Ok(index.queries().search(query)?),
            Index::Daemon(api) => search_by(api, query),
        }
    }

    /// The sessions with the best matches, each with at most so many of them; and whether there are more.
    pub fn search_sessions(
        &self,
        query: &SearchQuery,
        per_session: usize,
    ) -> Result<(Vec<SessionHits>, bool), Failure> {
        match self {
            Index::File(index) => Ok(index.queries().search_sessions(query, per_session)?),
            Index::Daemon(api) => {
                let asked = asked("/search/sessions", query, query.limit.min(PAGE)).with("hits", per_session);
                let found: SearchSessions = api.get(asked.as_str())?;
                let session = |found: http::SearchSession| SessionHits {
                    hits: found.hits.into_iter().map(hit_of).collect(),
                    matches: found.matches,
                };
                Ok((found.items.into_iter().map(session).collect(), found.more))
            }
        }
    }

    /// Whether something matches that is not shown because it was taken back.
    pub fn finds_taken_back(&self, query: &SearchQuery) -> Result<bool, Failure> {
        match self {
            Index::File(index) => Ok(index.queries().finds_taken_back(query)?),
            Index::Daemon(api) => {
                let all = SearchQuery { superseded: true, sort: SearchSort::Newest, ..query.clone() };
                let found = search_by(api, &all)?;
                Ok(found.items.iter().any(|hit| hit.standing == Standing::TakenBack))
            }
        }
    }

    /// Models are named as in the API: provider:model.
    pub fn stats(&self, query: &StatsQuery) -> Result<Stats, Failure> {
        match self {
            Index::File(index) => {
                let mut stats = index.queries().stats(query)?;
                stats.runs_by_model.iter_mut().for_each(|(model, _)| *model = model::in_api(model));
                stats.by_model.iter_mut().for_each(|one| one.word = model::in_api(&one.word));
                Ok(stats)
            }
            Index::Daemon(api) => Ok(stats_of(stats_by(api, query)?)),
        }
    }

    /// Sessions of which not all text has been read.
    fn unread(&self) -> Result<u64, Failure> {
        match self {
            Index::File(index) => Ok(index.queries().unread()?),
            Index::Daemon(api) => {
                // No session changes so late: nothing else has to be counted.
                let since = Some(Timestamp::from_millis(u64::from(u32::MAX) * 1_000));
                let none = StatsQuery { viewer: Viewer::All, agent: None, project: None, since };
                Ok(stats_by(api, &none)?.unread)
            }
        }
    }

    /// Says so when not everything has been read into the index yet.
    pub fn say_if_behind(&self, root: &Root) -> Result<(), Failure> {
        let unread = self.unread()?;
        if unread > 0 {
            let when = if root.is_up() { "the daemon is reading them" } else { "`ctx reindex` reads them" };
            output::say(format_args!("the index is incomplete: {unread} sessions are not read yet; {when}"));
        }
        Ok(())
    }
}

/// A search as the daemon is asked for it.
fn asked(path: &str, query: &SearchQuery, limit: usize) -> Query {
    Query::new(path)
        .with("q", &query.text)
        .with_some("session", query.session)
        .with_some("agent", query.agent.as_ref())
        .with_some("project", query.project.as_ref())
        .with_some("dir", query.dir.as_ref())
        .with_some("branch", query.branch.as_ref())
        .with_some("tool", query.tool.as_ref())
        .with_some("role", query.role.map(Role::as_str))
        .with_some("since", query.since.map(Timestamp::as_millis))
        .with_some("until", query.until.map(Timestamp::as_millis))
        .with("superseded", query.superseded)
        .with("sort", if query.sort == SearchSort::Newest { "newest" } else { "rank" })
        .with("limit", limit)
}

fn search_by(api: &Api<'_>, query: &SearchQuery) -> Result<Page<Hit>, Failure> {
    let mut found = Page { items: Vec::new(), next: query.after.clone() };
    loop {
        let limit = query.limit.saturating_sub(found.items.len()).min(PAGE);
        let asked = asked("/search", query, limit).with_some("cursor", found.next.as_ref());
        let page: List<SearchHit> = api.get(asked.as_str())?;
        found.items.extend(page.items.into_iter().map(hit_of));
        found.next = page.next;
        if found.next.is_none() || found.items.len() >= query.limit {
            return Ok(found);
        }
    }
}

fn hit_of(hit: SearchHit) -> Hit {
    Hit {
        session: hit.session_id,
        session_name: hit.session_name,
        session_title: hit.session_title,
        agent: hit.agent,
        project: hit.project,
        cwd: hit.cwd,
        seq: hit.seq,
        message: hit.message_id,
        run: hit.run_id,
        role: hit.role,
        tool: hit.tool,
        time: Timestamp::from_millis(hit.created_at),
        standing: match hit.standing {
            http::Standing::Counts => Standing::Counts,
            http::Standing::Compacted => Standing::Compacted,
            http::Standing::TakenBack => Standing::TakenBack,
        },
        score: hit.score,
        snippet: hit
            .snippet
            .into_iter()
            .map(|piece| Piece { text: piece.text, is_hit: piece.is_hit })
            .collect(),
    }
}

fn stats_by(api: &Api<'_>, query: &StatsQuery) -> Result<http::Stats, Failure> {
    let asked = Query::new("/stats")
        .with_some("agent", query.agent.as_ref())
        .with_some("project", query.project.as_ref())
        .with_some("since", query.since.map(Timestamp::as_millis));
    api.get(asked.as_str())
}

fn spent(rows: Vec<http::Spent>) -> Vec<Spent> {
    let one = |row: http::Spent| Spent {
        word: row.key,
        calls: row.calls,
        unpriced: row.tokens.unpriced_calls,
        usage: row.tokens.into(),
    };
    rows.into_iter().map(one).collect()
}

fn stats_of(stats: http::Stats) -> Stats {
    // In the order of the file's answer: the largest first, then by word.
    let counts = |counts: std::collections::BTreeMap<String, u64>| {
        let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    };
    let tool = |tool: http::ToolCount| ToolStats {
        tool: tool.tool,
        calls: tool.calls,
        failed: tool.failed,
        total_ms: tool.total_ms,
    };
    Stats {
        sessions: stats.sessions,
        sessions_by_state: counts(stats.sessions_by_state),
        sessions_by_agent: counts(stats.sessions_by_agent),
        sessions_by_project: counts(stats.sessions_by_project),
        runs_by_state: counts(stats.runs_by_state),
        runs_by_model: counts(stats.runs_by_model),
        messages_by_role: counts(stats.messages_by_role),
        tools: stats.tools.into_iter().map(tool).collect(),
        usage: stats.usage.into(),
        run_ms: stats.run_ms,
        by_day: spent(stats.by_day),
        by_week: spent(stats.by_week),
        by_model: spent(stats.by_model),
        by_project: spent(stats.by_project),
        by_agent: spent(stats.by_agent),
    }
}

/// What the user at the keyboard may see: their own, and what is in the spaces that let them in.
pub fn viewer(reader: &Reader) -> Result<Viewer, Failure> {
    let spaces = reader.places(own_uid())?.into_iter().filter_map(|place| match place {
        Place::Shared { space } => Some(space),
        Place::Private { .. } => None,
    });
    Ok(Viewer::User { uid: own_uid(), spaces: spaces.collect() })
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}
