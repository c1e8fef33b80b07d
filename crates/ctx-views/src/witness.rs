//! Asks around what session a log is, where its first record does not say: the reading that
//! [`crate::identity`] decides upon.

use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use ctx_journal::{Journal, JournalError, LogPath};
use ctx_session::model_name::provider;
use ctx_session::record::{Context, RunBody, SessionBody, SessionMeta};
use ctx_session::{Body, SessionId};

use crate::dir::RootDir;
use crate::files::{CWD, META, Meta, record_of};
use crate::identity::{self, First, Identity, Place, Witnesses};

/// How much of a damaged first line, or of a small file, is looked at.
const REMAINS_BYTES: u64 = 64 * 1024;
const EVENTS: &str = "events.jsonl";

/// Where to ask.
pub struct Sources<'a> {
    pub journal: &'a dyn Journal,
    /// None where sessions have no files.
    pub root: Option<&'a RootDir>,
    /// What the index says of the session at this place.
    pub index: &'a dyn Fn(&LogPath) -> Option<SessionMeta>,
}

impl Sources<'_> {
    /// What session a log is; nothing for logs that are no session's.
    pub fn identify(&self, log: &LogPath) -> Result<Option<Identity>, JournalError> {
        let Some(place) = Place::of(log) else { return Ok(None) };
        let first = identity::first(&place, self.journal.head(log)?.as_ref());
        Ok(Some(self.identify_by(log, &place, first)))
    }

    /// The same, by a first record that was read already.
    pub fn identify_by(&self, log: &LogPath, place: &Place, first: First) -> Identity {
        identity::identify(place, first, || self.witnesses(log))
    }

    fn witnesses(&self, log: &LogPath) -> Witnesses {
        let (later, context) = self.what_follows(log);
        Witnesses {
            log: later,
            remains: self.remains(log),
            files: self.files(log),
            index: (self.index)(log),
            context,
        }
    }

    /// A record that says what session this is, and what the first run worked under.
    fn what_follows(&self, log: &LogPath) -> (Option<SessionMeta>, Option<Context>) {
        let (mut meta, mut context) = (None, None);
        let read = self.journal.read(log, 0, &mut |entry| {
            if entry.kind != "session_meta" && (entry.kind != "context" || context.is_some()) {
                return ControlFlow::Continue(());
            }
            match record_of(&entry).map(|record| record.body) {
                Some(Body::Session(SessionBody::Meta(found))) => meta = Some(*found),
                Some(Body::Run(RunBody::Context(found))) => context = Some(*found),
                Some(_) | None => {}
            }
            if meta.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // A log that cannot be read is told of by whoever reads it for its own sake.
        if read.is_ok() { (meta, context) } else { (None, None) }
    }

    /// The session's id, if the damage has spared it.
    fn remains(&self, log: &LogPath) -> Option<SessionId> {
        const KEY: &str = "\"session_id\":\"";
        let text = self.text(log, EVENTS)?;
        let line = text.lines().next()?;
        let rest = line.get(line.find(KEY)? + KEY.len()..)?;
        rest.split('"').next()?.parse().ok()
    }

    fn files(&self, log: &LogPath) -> Option<SessionMeta> {
        let meta: Meta = serde_json::from_str(&self.text(log, META)?).ok()?;
        let cwd =
            self.text(log, CWD).map_or_else(|| "/".to_owned(), |cwd| cwd.trim_end_matches('\n').to_owned());
        Some(SessionMeta {
            session_id: meta.id,
            name: meta.name,
            scope: meta.scope,
            space: meta.space,
            owner: meta.owner,
            agent: meta.agent,
            project: meta.project,
            cwd,
            dir: meta.dir,
            workspace: None,
            provider: provider(&meta.model).map(str::to_owned),
            model: meta.model,
            title: None,
            client: meta.client,
            origin: meta.origin,
            forked_from: meta.forked_from,
            dsl_hash: None,
            dsl_snapshot: None,
            requested: None,
            app: String::new(),
        })
    }

    /// The beginning of a file beside the log.
    fn text(&self, log: &LogPath, name: &str) -> Option<String> {
        let file = self.root?.dir(Path::new(log.dir())).ok()?.read(name).ok()??;
        let mut bytes = Vec::new();
        file.take(REMAINS_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
