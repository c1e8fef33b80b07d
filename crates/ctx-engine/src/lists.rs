//! Lists of sessions, page by page, and what is shown of a session without loading it.
//!
//! Which sessions are on a page, and their states, the registry says: it is never older than what anyone was
//! acknowledged. What it does not know of a session that has not been loaded since the start comes from the index,
//! if the index has read the whole log, and else from the log itself. It is asked for once.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ctx_session::admission::Counts;
use ctx_session::record::Scope;
use ctx_session::{Name, Refusal, SessionId, StateName};
use ctx_views::db::{ListQuery, Sort};
use tokio::sync::broadcast;

use crate::details::Details;
use crate::engine::Engine;
use crate::lookup::blocking;
use crate::notifications::News;
use crate::registry::{Broken, Summary};
use crate::request::Caller;
use crate::spaces::Sight;

/// Which sessions, newest first by id: a page stays where it is while sessions come and change.
#[derive(Debug, Clone)]
pub struct ListWish {
    pub project: Option<Name>,
    pub state: Option<StateName>,
    pub agent: Option<String>,
    pub cwd: Option<String>,
    /// The host directory that they began in, or one above it.
    pub dir: Option<String>,
    /// In the title, the name or the first message, or said in it. Follows a moment behind.
    pub text: Option<String>,
    /// Also those that were put away.
    pub archived: bool,
    pub limit: usize,
    pub after: Option<SessionId>,
}

/// A page of sessions.
#[derive(Debug, Clone)]
pub struct Listed {
    /// One whose log cannot be read has no details.
    pub items: Vec<(Arc<Summary>, Option<Arc<Details>>)>,
    /// What `after` is for the next page.
    pub next: Option<SessionId>,
}

impl Engine {
    /// A session and its details, loaded only if nobody knows them.
    pub async fn show(&self, caller: Caller, id: SessionId) -> Result<(Arc<Summary>, Arc<Details>), Refusal> {
        let mut summary = self.find(caller, id)?;
        if summary.broken == Some(Broken::Log) {
            // It may be back; otherwise it is shown as it was.
            let _ = self.look(caller, id).await;
            summary = self.find(caller, id)?;
        }
        if let Some(details) = summary.details.clone() {
            return Ok((summary, details));
        }
        if summary.meta.scope != Scope::Temp {
            self.fill(&[id]).await;
        }
        let summary = self.find(caller, id)?;
        if let Some(details) = summary.details.clone() {
            return Ok((summary, details));
        }
        let session = self.look(caller, id).await?;
        Ok((self.find(caller, id)?, Arc::new(Details::of(&session))))
    }

    /// A page of the sessions that the caller may see.
    pub async fn page(&self, caller: Caller, wish: ListWish) -> Result<Listed, Refusal> {
        let limit = wish.limit.max(1);
        let mut found = match &wish.text {
            None => {
                let sight = self.sight(caller);
                self.inner.registry.newest(wish.after, limit + 1, |s| fits(&sight, &wish, s))
            }
            Some(text) => self.with_text(caller, &wish, text).await?,
        };
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|summary| summary.id());
        let unknown: Vec<SessionId> =
            found.iter().filter(|summary| summary.details.is_none()).map(|summary| summary.id()).collect();
        if !unknown.is_empty() {
            self.fill(&unknown).await;
        }
        let mut items = Vec::with_capacity(found.len());
        for summary in found {
            items.push(match summary.details.clone() {
                Some(details) => (summary, Some(details)),
                None => self.known(caller, summary).await,
            });
        }
        Ok(Listed { items, next })
    }

    /// Those in whose texts something is found, as far as the index has read them.
    async fn with_text(
        &self,
        caller: Caller,
        wish: &ListWish,
        text: &str,
    ) -> Result<Vec<Arc<Summary>>, Refusal> {
        let created = |id: SessionId| {
            let known = self.inner.registry.get(id).map(|summary| summary.created_at);
            known.unwrap_or_else(|| id.0.timestamp())
        };
        let mut query = ListQuery::newest(self.viewer(caller), wish.limit.max(1) + 1);
        query.sort = Sort::Created;
        query.archived = true;
        query.project = wish.project.clone();
        query.dir = wish.dir.clone();
        query.text = Some(text.to_owned());
        query.after = wish.after.map(|id| format!("{}:{id}", created(id).as_millis()));
        let sight = self.sight(caller);
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let engine = self.clone();
            let asked = query.clone();
            let page = blocking(move || engine.ask_index(|queries| queries.list(&asked))).await?;
            // States and the like are as the registry knows them now, whatever the index has read.
            let summaries = page.items.iter().filter_map(|item| self.inner.registry.get(item.id()));
            found.extend(summaries.filter(|s| fits(&sight, wish, s) && seen.insert(s.id())));
            match page.next {
                Some(next) if found.len() <= wish.limit => query.after = Some(next),
                Some(_) | None => return Ok(found),
            }
        }
    }

    /// Looks up in the index what the registry does not know, where the index has read as far as the log goes.
    async fn fill(&self, ids: &[SessionId]) {
        let engine = self.clone();
        let ids = ids.to_vec();
        let asked = blocking(move || {
            let items = engine.ask_index(|queries| {
                ids.iter().map(|id| queries.session(*id)).collect::<Result<Vec<_>, _>>()
            })?;
            for item in items.into_iter().flatten() {
                // A log that was changed while no daemon was there: only the log knows what it has lost.
                let root = engine.inner.root.as_ref();
                let file = root.and_then(|root| root.identity(Path::new(item.log.as_str())).ok());
                if file.is_none_or(|(_, len)| len != item.end_bytes) {
                    continue;
                }
                let Some(details) = Details::of_row(&item).map(Arc::new) else { continue };
                engine.inner.registry.update(item.id(), |summary| {
                    let is_whole = summary.next_seq == Some(item.next_seq);
                    if summary.details.is_none() && is_whole && summary.state == item.row.state {
                        summary.details = Some(details);
                    }
                });
            }
            Ok(())
        });
        if let Err(refusal) = asked.await {
            tracing::warn!(%refusal, "sessions are listed from their logs");
        }
    }

    /// One that the page found before its details were known.
    async fn known(&self, caller: Caller, summary: Arc<Summary>) -> (Arc<Summary>, Option<Arc<Details>>) {
        match self.show(caller, summary.id()).await {
            Ok((summary, details)) => (summary, Some(details)),
            // One session that cannot be read must not hide the others.
            Err(refusal) => {
                tracing::warn!(session = %summary.id(), %refusal, "listed by what is known without its log");
                (summary, None)
            }
        }
    }
}

/// Whether a session is on a list.
fn fits(sight: &Sight, wish: &ListWish, summary: &Summary) -> bool {
    let meta = &summary.meta;
    meta.scope != Scope::Temp
        && sight.sees(meta)
        && wish.project.as_ref().is_none_or(|project| meta.project == *project)
        && (wish.archived || !summary.archived)
        && wish.state.is_none_or(|state| summary.state == state)
        && wish
            .agent
            .as_deref()
            .is_none_or(|wanted| meta.agent.as_ref().is_some_and(|agent| agent.as_str() == wanted))
        && wish.cwd.as_ref().is_none_or(|cwd| summary.cwd == *cwd)
        && wish
            .dir
            .as_ref()
            .is_none_or(|dir| meta.dir.as_ref().is_some_and(|own| Path::new(own).starts_with(dir)))
}

impl Engine {
    /// Every change of the running counts from now on. What of it a listener may know is told by
    /// [`Engine::counts_for`].
    pub fn count_changes(&self) -> broadcast::Receiver<Arc<Counts>> {
        self.inner.slots.changes()
    }

    /// The counts as far as this caller may see them.
    pub fn counts_for(&self, caller: Caller, counts: &Counts) -> Counts {
        if caller.uid == self.inner.daemon_uid { counts.clone() } else { counts.of_operator(caller.uid) }
    }

    /// News of every session and issue from now on; whom they may be shown to is asked with [`Engine::find`] and
    /// [`Engine::find_issue`].
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.inner.news.subscribe()
    }
}
