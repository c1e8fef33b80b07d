//! Where the rows of a list come from: the sessions' files, or the index.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctx_api::http::{Damage, List, Session};
use ctx_journal::LogPath;
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::record::{Failure as SessionFailure, Usage};
use ctx_session::{Code, Missing, Name, StateName, Timestamp};
use ctx_views::db::{Flawed, IndexReader, ListQuery, SessionItem, Sort};
use ctx_views::files::Meta;
use ctx_views::read::{Object, Reader, SessionsDir, Summary};

use super::{Args, SortWord};
use crate::client::{Api, Query};
use crate::failure::Failure;
use crate::index::Index;
use crate::root::Root;
use crate::sessions::{own_uid, plain_name};
use crate::{index, output, words};

/// Sessions of one directory that are looked at by their files before the index is asked.
const PATIENCE: usize = 1000;

/// A session as the list shows it.
pub struct Row {
    pub meta: Meta,
    /// As a person names its directory: `coder/default+01K…` when another session has its name now.
    pub session: String,
    /// Without that id.
    pub plain_name: String,
    pub cwd: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Its directory beneath the root.
    pub dir: PathBuf,
    /// Whether the project's file has changed since; None: no project file, or no daemon to ask.
    pub stale: Option<bool>,
    /// A run that has failed, but whose end could not be written yet: only the daemon knows.
    pub failing: Option<SessionFailure>,
    /// Why its newest run failed, until the next one begins.
    pub run_failure: Option<SessionFailure>,
    /// Tool calls that wait for an answer: only the daemon knows.
    pub approvals: usize,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// What its model calls have cost.
    pub usage: Usage,
    /// As the daemon shows it, where it was asked.
    pub known: Option<Box<Session>>,
}

/// What a session waits for, in the order in which a person wants to see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Approval,
    Paused,
    Failed,
    Queued,
    Nothing,
}

impl Row {
    /// What its log has lost, as the daemon says, or the file that was written when the session was last loaded.
    pub fn damage(&self) -> Option<Damage> {
        let known = self.known.as_ref().and_then(|session| session.damage);
        let told = |missing: Missing| Damage { lines: missing.records, since_seq: missing.since_seq };
        known.or_else(|| self.meta.damage.map(told))
    }

    pub fn need(&self) -> Need {
        match self.meta.state {
            _ if self.approvals > 0 => Need::Approval,
            StateName::Paused => Need::Paused,
            StateName::Failed => Need::Failed,
            StateName::Running if self.failing.is_some() => Need::Failed,
            StateName::Idle if self.run_failure.is_some() => Need::Failed,
            StateName::Queued => Need::Queued,
            StateName::Idle | StateName::Running | StateName::Ended => Need::Nothing,
        }
    }
}

/// What is asked for, in order, one more than `limit` if there are more.
pub fn rows(args: &Args, root: &Root, limit: usize) -> Result<Vec<Row>, Failure> {
    let reader = root.reader()?;
    if !asks_much(args)
        && let Some(rows) = from_files(args, &reader, limit, Some(PATIENCE))?
    {
        return Ok(rows);
    }
    match index::open(root) {
        Ok(Index::File(index)) => from_index(args, &reader, &index, limit),
        Ok(Index::Daemon(api)) => with_daemon(args, &reader, &api, limit),
        Err(failure) => {
            // Slower, and without what was said; the list itself is right.
            if args.text.is_some() {
                output::say("the index is missing; only names and titles are searched");
            }
            match failure {
                Failure::ReaderGone => Err(failure),
                Failure::Said { .. } | Failure::Told { .. } => {
                    Ok(from_files(args, &reader, limit, None)?.unwrap_or_default())
                }
            }
        }
    }
}

/// Whether other projects have sessions that can go on.
pub fn is_more_elsewhere(args: &Args, root: &Root) -> bool {
    let own = args.only.as_ref().and_then(Option::as_ref);
    let other = || -> Result<bool, Failure> {
        let reader = root.reader()?;
        for place in reader.places(own_uid())? {
            for sessions in reader.session_dirs(&place)? {
                for newest in reader.newest(&sessions, 1)? {
                    if Some(&reader.meta(&newest)?.project) != own {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    };
    // A hint is a courtesy: what cannot be read is not told.
    other().unwrap_or(false)
}

/// Whether every session would have to be looked at.
fn asks_much(args: &Args) -> bool {
    let filters = args.project.is_some() || args.cwd.is_some() || args.dir.is_some() || args.text.is_some();
    filters || !args.states.is_empty() || args.sort != SortWord::Updated
}

fn from_index(args: &Args, reader: &Reader, index: &IndexReader, limit: usize) -> Result<Vec<Row>, Failure> {
    let mut states: Vec<StateName> = args.states.iter().map(|word| word.state()).collect();
    if states.is_empty() && !args.all {
        states.extend(StateName::ALL.into_iter().filter(|state| *state != StateName::Ended));
    }
    let query = ListQuery {
        states,
        agent: args.agent.clone(),
        project: args.project.clone().or_else(|| args.only.clone().flatten()),
        cwd: args.cwd.clone(),
        dir: args.dir.as_ref().and_then(|dir| dir.to_str()).map(str::to_owned),
        text: args.text.clone(),
        archived: args.archived,
        sort: match args.sort {
            SortWord::Updated => Sort::Updated,
            SortWord::Created => Sort::Created,
            SortWord::Name => Sort::Name,
        },
        ..ListQuery::newest(index::viewer(reader)?, limit.saturating_add(1))
    };
    Ok(index.queries().list(&query)?.items.into_iter().map(Row::of_item).collect())
}

/// The caller's own files, where the index is someone else's; what was said the daemon tells.
fn with_daemon(args: &Args, reader: &Reader, api: &Api<'_>, limit: usize) -> Result<Vec<Row>, Failure> {
    let Some(text) = &args.text else {
        return Ok(from_files(args, reader, limit, None)?.unwrap_or_default());
    };
    let any_text = Args { text: None, limit: 0, ..args.clone() };
    let mut rows = from_files(&any_text, reader, usize::MAX, None)?.unwrap_or_default();
    let projects: BTreeSet<Name> = rows.iter().map(|row| row.meta.project.clone()).collect();
    let mut found = HashSet::new();
    for project in projects {
        let mut cursor: Option<String> = None;
        loop {
            let asked = Query::new(&format!("/projects/{project}/sessions"))
                .with("archived", true)
                .with("limit", PATIENCE)
                .with("text", text)
                .with_some("cursor", cursor);
            let page: List<Session> = api.get(asked.as_str())?;
            found.extend(page.items.into_iter().map(|session| session.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    rows.retain(|row| found.contains(&row.meta.id) || fits(args, row));
    rows.truncate(limit.saturating_add(1));
    Ok(rows)
}

/// Nothing when more sessions than `patience` in one directory would have to be looked at.
fn from_files(
    args: &Args,
    reader: &Reader,
    limit: usize,
    patience: Option<usize>,
) -> Result<Option<Vec<Row>>, Failure> {
    let many = if asks_much(args) { usize::MAX } else { limit };
    let mut rows = Vec::new();
    for place in reader.places(own_uid())? {
        for sessions in reader.session_dirs(&place)? {
            let is_agents =
                args.agent.as_ref().is_none_or(|agent| sessions.object == Object::Agent(agent.clone()));
            if is_agents && !is_of_another_project(args, reader, &sessions.object) {
                let Some(newest) = newest(args, reader, &sessions, many, patience)? else { return Ok(None) };
                rows.extend(newest);
            }
        }
    }
    rows.retain(|row| fits(args, row));
    leave_out_copies(&mut rows);
    match args.sort {
        SortWord::Updated => rows.sort_by_key(|row| std::cmp::Reverse((row.updated_at, row.meta.id))),
        SortWord::Created => rows.sort_by_key(|row| std::cmp::Reverse((row.created_at, row.meta.id))),
        SortWord::Name => rows.sort_by(|a, b| (&a.meta.name, a.meta.id).cmp(&(&b.meta.name, b.meta.id))),
    }
    rows.truncate(limit.saturating_add(1));
    Ok(Some(rows))
}

/// Whether an agent's sessions all belong to a project that is not asked for: its directory may hold thousands. The
/// sessions of imported agents and of models have the project of their own directory.
fn is_of_another_project(args: &Args, reader: &Reader, object: &Object) -> bool {
    let (Some(Some(only)), Object::Agent(agent)) = (&args.only, object) else { return false };
    let project = ctx_agent::project::shown_for(reader.root(), agent);
    !IMPORT_AGENTS.contains(&agent.as_str()) && project.is_some_and(|project| project != *only)
}

/// A directory that someone copied within the root is no other session: the one that is called as its session is stays.
fn leave_out_copies(rows: &mut Vec<Row>) {
    let is_called_so = |row: &Row| {
        let dir_name =
            row.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        plain_name(&dir_name) == row.meta.name.as_str()
    };
    rows.sort_by_key(|row| !is_called_so(row));
    let mut seen = HashSet::new();
    rows.retain(|row| seen.insert(row.meta.id));
}

/// Whether sessions are asked for that the index file does not name: those that are over, or put away.
fn wants_unlisted(args: &Args) -> bool {
    args.all || args.archived || args.needs_me || args.states.iter().any(|word| word.state().is_over())
}

fn fits(args: &Args, row: &Row) -> bool {
    let meta = &row.meta;
    let has = |field: &str, text: &str| field.to_lowercase().contains(&text.to_lowercase());
    let text = |text: &String| {
        has(meta.name.as_str(), text) || meta.title.as_deref().is_some_and(|title| has(title, text))
    };
    let state = if args.states.is_empty() {
        args.all || meta.state != StateName::Ended
    } else {
        args.states.iter().any(|word| word.state() == meta.state)
    };
    state
        && (args.archived || !meta.archived)
        && args.project.as_ref().is_none_or(|project| *project == meta.project)
        && args.only.as_ref().is_none_or(|only| only.as_ref() == Some(&meta.project))
        && args
            .dir
            .as_ref()
            .is_none_or(|dir| meta.dir.as_ref().is_some_and(|own| Path::new(own).starts_with(dir)))
        && args.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
        && args.text.as_ref().is_none_or(text)
}

/// The newest sessions of one directory, one more than `limit` so that it shows that there are more.
fn newest(
    args: &Args,
    reader: &Reader,
    sessions: &SessionsDir,
    limit: usize,
    patience: Option<usize>,
) -> Result<Option<Vec<Row>>, Failure> {
    let wanted = limit.saturating_add(1);
    let mut asked = wanted;
    if wants_unlisted(args) {
        if patience.is_some_and(|patience| reader.count(sessions).is_ok_and(|count| count > patience)) {
            return Ok(None);
        }
        asked = usize::MAX;
    }
    loop {
        let names = match wants_unlisted(args) {
            true => reader.newest_of_all(sessions, asked)?,
            false => reader.newest(sessions, asked)?,
        };
        let all_seen = names.len() < asked;
        let mut kept = Vec::new();
        for session in &names {
            // A session that cannot be read does not hide the others.
            match reader.summary(session) {
                Ok(summary) => kept.extend(Some(Row::of_summary(summary)).filter(|row| fits(args, row))),
                Err(error) => output::say(format_args!("{session}: {error}")),
            }
            if kept.len() >= wanted {
                break;
            }
        }
        // Those that are not shown may crowd out the others: ask for more until there are enough.
        if kept.len() >= wanted || all_seen {
            return Ok(Some(kept));
        }
        asked = asked.saturating_mul(4);
        if patience.is_some_and(|patience| asked > patience.max(wanted)) {
            return Ok(None);
        }
    }
}

/// Shows what the index knows and the files do not: who has failed, and whose log has lost something. Sessions whose
/// directory is gone are in no other list.
pub fn mark_flawed(args: &Args, root: &Root, rows: &mut Vec<Row>) {
    let Ok(Index::File(index)) = index::open(root) else { return };
    let Ok(viewer) = root.reader().and_then(|reader| index::viewer(&reader)) else { return };
    // A list without it is better than none.
    let Ok(flawed) = index.queries().flawed(&viewer) else { return };
    for Flawed { item, is_gone, broken } in flawed {
        let gone = || SessionFailure {
            code: Code::Enoent,
            reason: "log_missing".to_owned(),
            message: "its log is gone; `ctx doctor` says more".to_owned(),
        };
        let broken = broken.or_else(|| is_gone.then(gone));
        let mut row = Row::of_item(item);
        if let Some(known) = rows.iter_mut().find(|known| known.meta.id == row.meta.id) {
            known.meta.damage = known.meta.damage.or(row.meta.damage);
            known.break_down(broken);
            continue;
        }
        row.break_down(broken);
        let is_agents = args.agent.as_ref().is_none_or(|agent| row.meta.agent.as_ref() == Some(agent));
        if row.meta.state == StateName::Failed && is_agents && fits(args, &row) {
            rows.push(row);
        }
    }
}

/// Waits until the index has read what the files of these sessions tell of already: it follows a moment behind. Without a
/// daemon nobody reads on, and one that has much to read is not waited for.
pub fn wait_for_index(root: &Root, rows: &[Row]) {
    /// In milliseconds; what changed before has been read, or will not be soon.
    const RECENT: u64 = 5_000;
    const LONGEST: Duration = Duration::from_millis(500);
    const PAUSE: Duration = Duration::from_millis(5);
    let is_recent = |row: &&Row| row.updated_at.as_millis() + RECENT > words::now().as_millis();
    let recent: Vec<_> = rows.iter().filter(is_recent).map(|row| (row.meta.id, row.updated_at)).collect();
    let Ok(Index::File(index)) = index::open(root) else { return };
    let ids: Vec<_> = recent.iter().map(|(id, _)| *id).collect();
    let is_behind = || {
        let read = index.queries().updates_of(&ids).unwrap_or_default();
        recent.iter().any(|(id, changed)| read.get(id).is_none_or(|read| read < changed))
    };
    let begun = Instant::now();
    while is_behind() && begun.elapsed() < LONGEST && root.is_up() {
        std::thread::sleep(PAUSE);
    }
}

/// Shows whose newest run failed. The index knows the runs; without it the list is right but for that.
pub fn mark_failed_runs(root: &Root, rows: &mut [Row]) {
    let is_idle = |row: &&mut Row| row.meta.state == StateName::Idle;
    let ids: Vec<_> = rows.iter_mut().filter(is_idle).map(|row| row.meta.id).collect();
    if ids.is_empty() {
        return;
    }
    let Ok(Index::File(index)) = index::open(root) else { return };
    let Ok(mut failed) = index.queries().failed_runs(&ids) else { return };
    for row in rows.iter_mut().filter(is_idle) {
        row.run_failure = failed.remove(&row.meta.id);
    }
}

impl Row {
    /// Failed, where its log does not say so.
    fn break_down(&mut self, broken: Option<SessionFailure>) {
        if let Some(failure) = broken {
            (self.meta.state, self.meta.failure) = (StateName::Failed, Some(failure));
        }
    }

    pub fn of_summary(summary: Summary) -> Row {
        let object = &summary.session.sessions.object;
        Row {
            session: summary.session.to_string(),
            plain_name: format!("{object}/{}", summary.meta.name),
            cwd: summary.cwd,
            created_at: summary.created_at,
            updated_at: summary.updated_at,
            dir: summary.session.path(),
            failing: None,
            run_failure: None,
            approvals: 0,
            pause_reason: None,
            usage: Usage::default(),
            known: None,
            meta: summary.meta,
            stale: None,
        }
    }

    fn of_item(item: SessionItem) -> Row {
        let SessionItem { log, row, .. } = item;
        let object = object_of(&log);
        let dir_name = log.dir().rsplit('/').next().unwrap_or_default();
        let model = row.model().to_owned();
        let told = row.meta;
        let meta = Meta {
            id: told.session_id,
            name: told.name,
            title: row.title,
            scope: told.scope,
            space: told.space,
            owner: told.owner,
            agent: told.agent,
            project: told.project,
            dir: told.dir,
            model,
            client: told.client,
            origin: told.origin,
            forked_from: told.forked_from,
            bound_issue: row.bound_issue,
            archived: row.archived,
            superseded: None,
            pinned: None,
            damage: row.missing,
            state: row.state,
            failure: row.failure,
        };
        Row {
            session: format!("{object}/{dir_name}"),
            plain_name: format!("{object}/{}", meta.name),
            cwd: row.cwd,
            created_at: row.created_at,
            updated_at: row.updated_at,
            dir: PathBuf::from(log.dir()),
            failing: None,
            run_failure: None,
            approvals: 0,
            pause_reason: None,
            usage: row.usage,
            known: None,
            meta,
            stale: None,
        }
    }
}

/// Whom a session is with, by its place: an agent's name, or `model/…`.
fn object_of(log: &LogPath) -> String {
    let parts: Vec<&str> = log.dir().split('/').collect();
    match parts.as_slice() {
        [_, _, "agent", agent, ..] => (*agent).to_owned(),
        [_, _, "model", model @ .., "session", _] => {
            format!("model/{}", model.join("/").trim_end_matches(".d"))
        }
        _ => log.dir().to_owned(),
    }
}
