//! Temp sessions: kept in memory, and gone with the last connection that used them.

use ctx_journal::{LogPath, lock};
use ctx_session::{Command, SessionId};

use crate::engine::Engine;

/// A connection's share in a temp session.
pub struct Hold {
    engine: Engine,
    id: SessionId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = lock(&self.engine.inner.holds);
        let Some(count) = holds.get_mut(&self.id) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        holds.remove(&self.id);
        drop(holds);
        let (engine, id) = (self.engine.clone(), self.id);
        // Without a runtime the process is on its way out, and the temp session with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { engine.forget_temp(id).await });
        }
    }
}

impl Engine {
    /// Keeps a temp session alive; it is cancelled and forgotten when the last hold is dropped.
    pub fn hold(&self, id: SessionId) -> Hold {
        *lock(&self.inner.holds).entry(id).or_insert(0) += 1;
        Hold { engine: self.clone(), id }
    }

    async fn forget_temp(&self, id: SessionId) {
        if lock(&self.inner.holds).contains_key(&id) {
            // Another connection came for it meanwhile.
            return;
        }
        let owner = self.inner.registry.get(id).map_or(self.inner.daemon_uid, |summary| summary.meta.owner);
        // A session that is over already has nothing to be ended.
        let _ = self.inner.command(id, Command::End { by: owner, partial: None }).await;
        self.inner.registry.remove(id);
        let link = lock(&self.inner.active).get(&id).cloned();
        if let Some(link) = link {
            link.shut_down().await;
        }
        let inner = self.inner.clone();
        let _ = tokio::task::spawn_blocking(move || inner.worker.forget_terminals(owner, id)).await;
        if let Ok(log) = LogPath::new(format!("temp/{id}/events.jsonl")) {
            let _ = self.inner.memory.remove(&log);
        }
    }
}
