//! Operators' interactive connections: how one is told that it has to close. What is said over it is its door's.

use std::collections::HashMap;
use std::sync::Mutex;

use ctx_journal::lock;
use ctx_session::Ulid;
use ctx_session::record::DetachReason;
use tokio::sync::oneshot;

/// Every attached connection, and the way to tell it why it is closed.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    table: Mutex<HashMap<Ulid, oneshot::Sender<DetachReason>>>,
}

impl Connections {
    pub fn add(&self, connection: Ulid) -> oneshot::Receiver<DetachReason> {
        let (closer, closed) = oneshot::channel();
        lock(&self.table).insert(connection, closer);
        closed
    }

    pub fn remove(&self, connection: Ulid) -> Option<oneshot::Sender<DetachReason>> {
        lock(&self.table).remove(&connection)
    }

    /// Tells a connection to close. One that has gone by itself needs no telling.
    pub fn close(&self, connection: Ulid, reason: DetachReason) {
        if let Some(closer) = self.remove(connection) {
            let _ = closer.send(reason);
        }
    }
}
