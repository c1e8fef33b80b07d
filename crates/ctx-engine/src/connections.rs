//! Operators' interactive connections: how one is told that it has to close. What is said over it is its door's.

use std::collections::HashMap;
use std::sync::Mutex;

use ctx_journal::lock;
use ctx_session::record::DetachReason;
use ctx_session::{Command, Refusal, SessionId, Ulid};
use tokio::sync::oneshot;

use crate::engine::{Caller, Engine};

/// Every attached connection, and the way to tell it why it is closed.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Mutex<HashMap<Ulid, oneshot::Sender<DetachReason>>>,
}

impl Connections {
    fn add(&self, connection: Ulid) -> oneshot::Receiver<DetachReason> {
        let (closer, closed) = oneshot::channel();
        lock(&self.table).insert(connection, closer);
        closed
    }

    fn remove(&self, connection: Ulid) -> Option<oneshot::Sender<DetachReason>> {
        lock(&self.table).remove(&connection)
    }

    /// Tells a connection to close. One that has gone by itself needs no telling.
    pub fn close(&self, connection: Ulid, reason: DetachReason) {
        if let Some(closer) = self.remove(connection) {
            let _ = closer.send(reason);
        }
    }
}

impl Engine {
    /// Attaches an operator's interactive connection. What is returned tells why it has to close, once it has.
    pub async fn attach(
        &self,
        caller: Caller,
        id: SessionId,
        connection: Ulid,
        device_hint: Option<String>,
        takeover: bool,
    ) -> Result<oneshot::Receiver<DetachReason>, Refusal> {
        self.find(caller, id)?;
        let closed = self.inner.connections.add(connection);
        let attach = Command::Attach { connection, user: caller.uid, device_hint, takeover };
        match self.inner.command(id, attach).await {
            Ok(_) => Ok(closed),
            Err(refusal) => {
                self.inner.connections.remove(connection);
                Err(refusal)
            }
        }
    }

    pub async fn detach(&self, id: SessionId, connection: Ulid, reason: DetachReason) -> Result<(), Refusal> {
        self.inner.connections.remove(connection);
        self.inner.command(id, Command::Detach { connection, reason }).await.map(drop)
    }
}
