//! How commands reach the daemon: its API and the sockets of its agents.

mod api;
mod hand_over;
mod live;
mod query;
mod socket;

pub use api::Api;
pub use hand_over::{hand_over, no_main, tell_of_servers};
pub use live::{As, LiveFrame, LiveSocket, Place};
pub use query::Query;
pub use socket::{AgentSocket, Received};

use std::io;

use ctx_session::Code;

use crate::failure::Failure;
use crate::root::Root;

/// A runtime for one command: it talks to one peer at a time.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start the async runtime", error))
}

/// Why a socket of this root does not take connections.
fn cannot_connect(root: &Root, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => root.daemon_down(),
        io::ErrorKind::PermissionDenied => {
            Failure::new(Code::Eacces, format!("you are not allowed to use {}: {error}", root.path.display()))
        }
        _ => Failure::new(Code::Ehostdown, format!("cannot reach the daemon: {error}")),
    }
}
