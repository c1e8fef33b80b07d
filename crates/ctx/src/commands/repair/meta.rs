//! The first record of a session's log, made anew where it is damaged: from what is left of it, the index, the
//! session's files, its place, and its first run.

use std::io::Read;
use std::ops::ControlFlow;

use ctx_engine::start::meta_of;
use ctx_journal::{Entry, Journal, LogPath};
use ctx_session::record::{Context, Decoded, SessionMeta};
use ctx_session::{Body, SessionId};
use ctx_views::db::IndexReader;
use ctx_views::files::{self, Meta};

use crate::index;
use crate::root::Root;

/// How much of a damaged first line is looked at.
const REMAINS_BYTES: u64 = 64 * 1024;

/// What can be known of a log besides its first record.
pub struct Known<'a> {
    root: &'a Root,
    log: &'a LogPath,
}

impl<'a> Known<'a> {
    pub fn new(root: &'a Root, log: &'a LogPath) -> Known<'a> {
        Known { root, log }
    }

    /// The body to put in place of record 0; nothing where it is good, and for logs that are no session's.
    pub fn first(&self, entry: Option<&Entry>) -> Option<String> {
        let is_good = entry.is_some_and(|entry| {
            matches!(Body::decode(&entry.kind, &entry.text), Decoded::Known(Body::SessionMeta(_)))
        });
        let by_place = meta_of(self.log).filter(|_| !is_good)?;
        let mut meta = self.by_index().or_else(|| self.by_files()).unwrap_or(by_place);
        if let Some(id) = self.id_in_remains() {
            meta.session_id = id;
        }
        if let Some(context) = self.first_context().filter(|_| meta.model.is_empty()) {
            (meta.model, meta.cwd) = (context.model, context.cwd);
        }
        meta.app = concat!("ctx ", env!("CARGO_PKG_VERSION"), " (repaired)").to_owned();
        Some(Body::SessionMeta(Box::new(meta)).to_json())
    }

    fn by_index(&self) -> Option<SessionMeta> {
        let index = IndexReader::open(&index::path(self.root)).ok()?;
        index.queries().meta_at(self.log).ok().flatten().filter(|meta| !meta.model.is_empty())
    }

    fn by_files(&self) -> Option<SessionMeta> {
        let file = |name: &str| std::fs::read_to_string(self.root.path.join(self.log.dir()).join(name)).ok();
        let meta: Meta = serde_json::from_str(&file(files::META)?).ok()?;
        if meta.model.is_empty() {
            return None;
        }
        let cwd =
            file(files::CWD).map_or_else(|| "/".to_owned(), |cwd| cwd.trim_end_matches('\n').to_owned());
        Some(SessionMeta {
            session_id: meta.id,
            name: meta.name,
            scope: meta.scope,
            space: meta.space,
            owner: meta.owner,
            agent: meta.agent,
            project: meta.project,
            cwd,
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

    /// The session's id, if the damage has spared it.
    fn id_in_remains(&self) -> Option<SessionId> {
        const KEY: &str = "\"session_id\":\"";
        let file = std::fs::File::open(self.root.path.join(self.log.as_str())).ok()?;
        let mut bytes = Vec::new();
        file.take(REMAINS_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().next()?;
        let rest = line.get(line.find(KEY)? + KEY.len()..)?;
        rest.split('"').next()?.parse().ok()
    }

    /// Under what the first run worked.
    fn first_context(&self) -> Option<Context> {
        let mut found = None;
        let read = self.root.journal().ok()?.read(self.log, 0, &mut |entry| {
            if entry.kind != "context" {
                return ControlFlow::Continue(());
            }
            if let Decoded::Known(Body::Context(context)) = Body::decode(&entry.kind, &entry.text) {
                found = Some(*context);
            }
            ControlFlow::Break(())
        });
        read.ok().and(found)
    }
}
