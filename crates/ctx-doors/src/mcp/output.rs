//! `session_output`: a page of an earlier command's output, read in its turn and only while somebody waits for it.

use ctx_host::{OutputRequest, Page};
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::outbox::Work;
use super::server::McpServer;

impl McpServer {
    /// Reads a page. A request that is cancelled, or whose host is gone, stops the reading.
    pub(super) async fn output(
        &self,
        id: String,
        request: OutputRequest,
        cancelled: CancellationToken,
    ) -> Result<Page, Failure> {
        let work = if request.grep.is_some() { Work::Search } else { Work::Page };
        let turn = tokio::select! {
            turn = self.outbox().turn(work) => turn,
            () = cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        let host = self.host.clone();
        let unwanted = CancellationToken::new();
        // Also when this call is dropped in the middle.
        let _until_here = unwanted.clone().drop_guard();
        // A pattern may have to look through a gigabyte: not on a thread that serves others. The turn goes with it, for
        // it lasts until the thread has stopped.
        let reading = tokio::task::spawn_blocking(move || {
            let page = host.output_while(&id, &request, &|| !unwanted.is_cancelled());
            page.map(|page| (page, turn))
        });
        let read = tokio::select! {
            read = reading => read,
            () = cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        let (page, turn) = read.map_err(|error| Failure::Internal(error.to_string()))??;
        turn.until_answered(cancelled);
        Ok(page)
    }
}
