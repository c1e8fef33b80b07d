//! The tables of `index.db`, and how the file is opened, checked and thrown away.
//!
//! There are no migrations: another version, or a file that is not sound, is deleted and built again from the
//! logs. Changelog: 1 is the first; it has the seed's tables whose records exist (sessions, messages, runs,
//! tool_calls). 2: `sessions.archived`. 3: checkpoints, prompt_edits, compactions with their aggregates, approvals; a
//! run's kind and finish reason, and a run without a message; `sessions.bound_issue` is an id. 4: issues and todos. 5: an
//! approval's clock, which stands still with a pause; a run's tokens with those of its compactions. 6: the print of the
//! last record that was read, and keys that are never given twice. 7: `messages.pinned`. 8: `messages.superseded` tells
//! compacted from taken back; full text of scripts without spaces. 9: `sessions.reading` and `listed`: a row is shown as
//! it was until its log has been read to the end. 10: what is deleted is overwritten. 11: checkpoints, compactions and
//! approvals as the session's rules have them, in JSON. 12: subagent_invocations, and who made a tool call. 13:
//! `sessions.imports`, and which messages were taken back. 14: `sessions.damage` and `broken`. 15: run_pty_transcripts.
//! 16: model_calls, and what sessions and runs cost. Every other table comes with its records and the next number.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::{DbError, control, issues};

/// Goes up with every change of the tables or of what is written into them.
pub const SCHEMA_VERSION: i64 = 16;

/// Times are epoch milliseconds, ids are ULIDs as text. `sessions.key` and `messages.key` are names within this
/// file only, and other in every rebuild.
const TABLES: &str = "
CREATE TABLE sessions (
  -- never given twice: what was read for a row that was forgotten must not end up in another
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  log TEXT NOT NULL UNIQUE,
  meta TEXT NOT NULL,
  owner INTEGER NOT NULL,
  scope TEXT NOT NULL,
  space TEXT,
  agent TEXT,
  project TEXT NOT NULL,
  name TEXT NOT NULL,
  title TEXT,
  preview TEXT,
  state TEXT NOT NULL,
  failure TEXT,
  cwd TEXT NOT NULL,
  model_override TEXT,
  forked_from TEXT,
  bound_issue TEXT,
  -- JSON: the imports that brought it in or added to it and were not taken back, oldest first
  imports TEXT,
  archived INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ended_at INTEGER,
  posted_at INTEGER,
  last_run TEXT,
  last_run_over INTEGER NOT NULL,
  -- JSON: the newest checkpoint, unless it was left, and the compaction that waits to be decided on
  pause TEXT,
  -- JSON: how many records the log has lost, and from where on
  damage TEXT,
  runs INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  tokens_cached INTEGER NOT NULL DEFAULT 0,
  -- in billionths of a dollar
  cost_nano INTEGER NOT NULL DEFAULT 0,
  -- the seq up to which runs and this row, and up to which messages and tool calls, have been read
  next_seq INTEGER NOT NULL,
  text_seq INTEGER NOT NULL,
  -- where in which file a record was found to end: unchanged means that nothing has to be read
  inode INTEGER NOT NULL DEFAULT 0,
  end_bytes INTEGER NOT NULL DEFAULT 0,
  end_seq INTEGER NOT NULL DEFAULT -1,
  end_time INTEGER NOT NULL DEFAULT 0,
  -- tells that record from another under the same seq
  end_print INTEGER NOT NULL DEFAULT 0,
  -- the log was not there at the last start
  missing INTEGER NOT NULL DEFAULT 0,
  -- JSON: why the session has failed, where the log does not say it
  broken TEXT,
  -- JSON: the row so far, while the log is being read; the other columns show what was there before
  reading TEXT,
  -- the log has been read to its end once
  listed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_updated ON sessions(updated_at, id);
CREATE INDEX sessions_created ON sessions(created_at, id);
CREATE INDEX sessions_name ON sessions(name, id);

CREATE TABLE runs (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  -- message, compaction, continuation
  kind TEXT NOT NULL,
  -- none where the operator asked for a compaction
  message_id TEXT,
  state TEXT NOT NULL,
  finish_reason TEXT,
  model TEXT,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  completed_at INTEGER,
  duration_ms INTEGER,
  tokens_in INTEGER NOT NULL DEFAULT 0,
  tokens_out INTEGER NOT NULL DEFAULT 0,
  tokens_cached INTEGER NOT NULL DEFAULT 0,
  cost_nano INTEGER NOT NULL DEFAULT 0,
  error TEXT,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX runs_session ON runs(session, seq);

-- what every model call cost, also those of subagents and of compactions
CREATE TABLE model_calls (
  session INTEGER NOT NULL,
  -- of the message, or of the compaction
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  model TEXT,
  -- when it was over
  created_at INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL DEFAULT 0,
  tokens_out INTEGER NOT NULL DEFAULT 0,
  tokens_cached INTEGER NOT NULL DEFAULT 0,
  cost_nano INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX model_calls_paid ON model_calls(created_at) WHERE cost_nano > 0;

CREATE TABLE messages (
  key INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  role TEXT NOT NULL,
  -- its text; of a tool's output the first 4 KiB
  content TEXT NOT NULL,
  cut INTEGER NOT NULL DEFAULT 0,
  -- the typed parts, where there is more than text
  parts TEXT,
  created_at INTEGER NOT NULL,
  -- 0: it counts; 1: taken back, by a rollback or a discard; 2: compacted
  superseded INTEGER NOT NULL DEFAULT 0,
  -- no compaction takes it
  pinned INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX messages_session ON messages(session, seq);
CREATE INDEX messages_taken_back ON messages(key) WHERE superseded = 1;

-- what goes in is spaced (`spaced.rs`): its tokens are not always where those of `messages.content` are
CREATE VIRTUAL TABLE message_text USING fts5(
  content, content='messages', content_rowid='key', tokenize='unicode61 remove_diacritics 2'
);
-- how much is gathered in memory before it becomes a segment: fewer segments are merged less often
INSERT INTO message_text (message_text, rank) VALUES ('hashsize', 16777216);
-- what a purge takes is gone, not only marked so
INSERT INTO message_text (message_text, rank) VALUES ('secure-delete', 1);

CREATE TABLE tool_calls (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  caller TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  input TEXT NOT NULL,
  output TEXT,
  cut INTEGER NOT NULL DEFAULT 0,
  -- pending, done, failed, interrupted
  state TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  completed_at INTEGER,
  duration_ms INTEGER,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX tool_calls_run ON tool_calls(session, run_id, seq);

CREATE TABLE subagent_invocations (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  subagent_name TEXT NOT NULL,
  model TEXT NOT NULL,
  -- none of one that is not caged
  cage_id TEXT,
  -- spawned, running, done, failed, killed
  state TEXT NOT NULL,
  cause TEXT,
  exit_code INTEGER,
  message TEXT,
  spawned_at INTEGER NOT NULL,
  exited_at INTEGER,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX subagent_invocations_run ON subagent_invocations(session, run_id, seq);

-- item is JSON, as the rules of a session have it (`ctx_session::control`), with times as in the log; the columns
-- below it are read out of it
-- the transcripts of terminals that are closed
CREATE TABLE run_pty_transcripts (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  -- none where the operator opened it
  run_id TEXT,
  pty_id TEXT NOT NULL,
  -- the file, from the root
  transcript TEXT NOT NULL,
  line_count INTEGER NOT NULL,
  reason TEXT NOT NULL,
  exit_code INTEGER,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  item TEXT NOT NULL,
  run_id TEXT AS (item ->> '$.created.turn_id'),
  created_at TEXT AS (item ->> '$.created_at'),
  -- operator, model, compaction
  created_by TEXT AS (item ->> '$.created.created_by'),
  user INTEGER AS (item ->> '$.created.by'),
  reason TEXT AS (item ->> '$.created.reason'),
  compaction_id TEXT AS (item ->> '$.created.compaction_id'),
  message_cursor TEXT AS (item ->> '$.created.cursor'),
  -- JSON: the prompts in effect, by target and hash
  prompts TEXT AS (item -> '$.created.prompts'),
  resumed_at TEXT AS (item ->> '$.resumed_at'),
  rolled_back INTEGER AS (item ->> '$.rolled_back'),
  superseded_by TEXT AS (item ->> '$.superseded_by'),
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX checkpoints_session ON checkpoints(session, seq);

-- the text of a prompt is a blob of its hash
CREATE VIEW prompt_edits AS
  SELECT c.session, c.seq, e.key AS position, c.id AS checkpoint_id, e.value ->> '$.edited.target' AS target,
    e.value ->> '$.edited.old_hash' AS old_hash, e.value ->> '$.edited.new_hash' AS new_hash,
    e.value ->> '$.edited.by' AS user, e.value ->> '$.at' AS edited_at
  FROM checkpoints AS c, json_each(c.item, '$.edits') AS e;

CREATE TABLE compactions (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  item TEXT NOT NULL,
  run_id TEXT AS (item ->> '$.made.turn_id'),
  agent_path TEXT AS (item ->> '$.made.agent_path'),
  created_at TEXT AS (item ->> '$.created_at'),
  trigger TEXT AS (item ->> '$.made.trigger'),
  strategy TEXT AS (item ->> '$.made.strategy'),
  -- proposed, applied, rejected
  state TEXT AS (item ->> '$.state'),
  threshold_estimate REAL AS (item ->> '$.made.threshold_estimate'),
  after_estimate REAL AS (ifnull(item ->> '$.approved.after_estimate', item ->> '$.made.after_estimate')),
  window_upper REAL AS (item ->> '$.made.window_upper'),
  window_lower REAL AS (item ->> '$.made.window_lower'),
  -- a rejected one supersedes and elides nothing; what it proposed is in the JSON
  superseded_message_ids TEXT AS (iif(item ->> '$.rejected' IS NOT NULL, '[]',
    ifnull(item -> '$.approved.superseded_message_ids', item -> '$.made.superseded_message_ids'))),
  -- as the operator approved it, where they did; what is empty is absent in the JSON
  elided_call_ids TEXT AS (ifnull(iif(item ->> '$.rejected' IS NOT NULL, '[]',
    iif(item ->> '$.approved' IS NULL, item -> '$.made.elided_call_ids', item -> '$.approved.elided_call_ids')), '[]')),
  summary_message_id TEXT AS (
    iif(item ->> '$.approved' IS NULL, item ->> '$.made.summary_message_id', item ->> '$.approved.summary_message_id')),
  summary TEXT AS (iif(item ->> '$.rejected' IS NOT NULL, NULL,
    iif(item ->> '$.approved' IS NULL, item ->> '$.made.summary', item ->> '$.approved.summary'))),
  plugins_fired TEXT AS (item -> '$.made.plugins_fired'),
  plugin_cost TEXT AS (item -> '$.made.plugin_cost'),
  fallback_occurred INTEGER AS (item ->> '$.rejected' IS NOT NULL OR item ->> '$.made.fallback_occurred'),
  fallback_reason TEXT AS (ifnull(item ->> '$.rejected', item ->> '$.made.fallback_reason')),
  operator_flag TEXT AS (item ->> '$.flag'),
  operator_notes TEXT AS (item ->> '$.notes'),
  checkpoint_id TEXT AS (item ->> '$.made.checkpoint_id'),
  rolled_back INTEGER AS (item ->> '$.rolled_back'),
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX compactions_session ON compactions(session, seq);
CREATE INDEX compactions_run ON compactions(session, run_id);
CREATE INDEX compactions_agent ON compactions(session, agent_path);

-- rows that stand for the oldest compactions of a session
CREATE TABLE compaction_aggregates (
  session INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  count INTEGER NOT NULL,
  before INTEGER NOT NULL,
  PRIMARY KEY (session, seq)
) WITHOUT ROWID;

CREATE TABLE approvals (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  item TEXT NOT NULL,
  run_id TEXT AS (item ->> '$.asked.turn_id'),
  call_id TEXT AS (item ->> '$.asked.call_id'),
  tool TEXT AS (item ->> '$.asked.tool'),
  subject TEXT AS (item ->> '$.asked.subject'),
  created_at TEXT AS (item ->> '$.created_at'),
  -- allow, deny, timeout, interrupted; none while it waits
  outcome TEXT AS (item ->> '$.settled[0].outcome'),
  settled_at TEXT AS (item ->> '$.settled[1]'),
  user INTEGER AS (item ->> '$.settled[0].by'),
  note TEXT AS (item ->> '$.settled[0].note'),
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE INDEX approvals_session ON approvals(session, seq);
CREATE INDEX approvals_open ON approvals(session, seq) WHERE outcome IS NULL;

-- of projects, whoever works on them
CREATE TABLE issues (
  id TEXT PRIMARY KEY,
  project TEXT NOT NULL,
  number INTEGER NOT NULL,
  title TEXT NOT NULL,
  body TEXT NOT NULL,
  -- open, in_progress, resolved, closed
  status TEXT NOT NULL,
  -- JSON: texts, and whether each is met
  criteria TEXT NOT NULL,
  owner INTEGER NOT NULL,
  -- who bound it last; works on it while sessions.bound_issue says so
  session TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  -- how many records its project's log had then
  seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX issues_project ON issues(project, number);

CREATE TABLE todos (
  issue TEXT NOT NULL,
  position INTEGER NOT NULL,
  id TEXT NOT NULL,
  text TEXT NOT NULL,
  -- open, in_progress, done, dropped
  status TEXT NOT NULL,
  note TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (issue, position)
) WITHOUT ROWID;

CREATE TABLE damage (
  log TEXT NOT NULL,
  line INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (log, offset, message)
) WITHOUT ROWID;
";

/// How a connection is set up before it is used.
const WRITER: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 16000;
PRAGMA journal_size_limit = 67108864;
PRAGMA temp_store = MEMORY;
PRAGMA mmap_size = 0;
PRAGMA secure_delete = ON;
";

/// The file of the database and those that SQLite puts beside it.
fn files(path: &Path) -> [PathBuf; 3] {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    [path.to_owned(), beside("-wal"), beside("-shm")]
}

/// The files of a database as they are on disk, to tell when they are others: someone may remove them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OnDisk([Option<(u64, u64)>; 3]);

impl OnDisk {
    pub(super) fn look(path: &Path) -> OnDisk {
        use std::os::unix::fs::MetadataExt;
        OnDisk(
            files(path).map(|file| std::fs::symlink_metadata(file).ok().map(|data| (data.dev(), data.ino()))),
        )
    }

    /// Whether one that was there is gone, or another is in its place.
    pub(super) fn are_others(&self, path: &Path) -> bool {
        let now = OnDisk::look(path);
        self.0.iter().zip(now.0).any(|(then, now)| then.is_some() && *then != now)
    }
}

/// Why a database had to be made from nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remade {
    /// There was none.
    New,
    /// It was of another version.
    OtherVersion(i64),
    /// It was not sound.
    Corrupt(String),
}

/// Opens the database to write. One that cannot be used is thrown away: it is the truth for nothing.
pub(super) fn open(path: &Path) -> Result<(Connection, Option<Remade>), DbError> {
    let why = match open_existing(path) {
        Ok(Ok(connection)) => return Ok((connection, None)),
        Ok(Err(why)) => why,
        Err(error) if needs_remake(&error) => Remade::Corrupt(error.to_string()),
        Err(error) => return Err(DbError::sqlite(path, error)),
    };
    Ok((make(path)?, Some(why)))
}

fn open_existing(path: &Path) -> rusqlite::Result<Result<Connection, Remade>> {
    if !path.exists() {
        return Ok(Err(Remade::New));
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != SCHEMA_VERSION {
        return Ok(Err(Remade::OtherVersion(version)));
    }
    // Reads a page of every table: a file that was cut or overwritten seldom passes.
    let full_text = "message_text WHERE message_text MATCH 'a'";
    let tables = [
        "sessions",
        "runs",
        "messages",
        "tool_calls",
        "subagent_invocations",
        "run_pty_transcripts",
        "damage",
        full_text,
    ];
    for from in tables.into_iter().chain(control::TABLES).chain(issues::TABLES) {
        connection.query_row(&format!("SELECT 1 FROM {from} LIMIT 1"), [], |_| Ok(())).optional()?;
    }
    Ok(Ok(connection))
}

/// Throws away what is there and makes an empty database.
pub(super) fn make(path: &Path) -> Result<Connection, DbError> {
    for file in files(path) {
        match std::fs::remove_file(&file) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(DbError::Io { path: file, action: "remove the file", error }),
        }
    }
    make_private(path)?;
    let wrong = |error| DbError::sqlite(path, error);
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(wrong)?;
    let tables = format!("BEGIN; {TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;");
    connection.execute_batch(&tables).map_err(wrong)?;
    Ok(connection)
}

/// An empty file that only the daemon reads; SQLite gives those beside it the same mode.
fn make_private(path: &Path) -> Result<(), DbError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|error| DbError::Io { path: path.to_owned(), action: "make the file", error })
}

fn connect(path: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without it, a statement is planned anew for each new value of a parameter that statistics could say something about;
    // there are no statistics here. It was a third of a rebuild's time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if mode.contains(OpenFlags::SQLITE_OPEN_READ_WRITE) {
        connection.execute_batch(WRITER)?;
    }
    Ok(connection)
}

/// Opens the database to change something in it, if there is one of our version.
pub(super) fn open_to_change(path: &Path) -> Result<Option<Connection>, DbError> {
    if !path.exists() {
        return Ok(None);
    }
    let opened = || -> rusqlite::Result<Option<Connection>> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((version == SCHEMA_VERSION).then_some(connection))
    };
    opened().map_err(|error| DbError::sqlite(path, error))
}

/// Opens the database to read.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, DbError> {
    let connection =
        connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|error| DbError::sqlite(path, error))?;
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    match version.map_err(|error| DbError::sqlite(path, error))? {
        SCHEMA_VERSION => Ok(connection),
        version => Err(DbError::OtherVersion { path: path.to_owned(), version }),
    }
}

/// Whether a question found the file itself bad. One that fails for another reason would fail again.
pub(super) fn is_broken(error: &DbError) -> bool {
    let DbError::Sqlite { error: rusqlite::Error::SqliteFailure(failure, _), .. } = error else {
        return false;
    };
    use ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, SystemIoFailure};
    matches!(failure.code, DatabaseCorrupt | NotADatabase | SystemIoFailure | CannotOpen)
}

/// Whether an error of the writer is mended by making the database anew: every one but those that pass by themselves.
/// The statements are ours, so one that SQLite refuses met a database that is not what we made.
pub(super) fn needs_remake(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, OperationInterrupted, OutOfMemory};
    let passes =
        |code| matches!(code, DatabaseBusy | DatabaseLocked | DiskFull | OperationInterrupted | OutOfMemory);
    !error.sqlite_error_code().is_some_and(passes)
}
