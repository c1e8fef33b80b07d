//! The log itself, as it stands.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Who, session_id};

/// How much is read and sent at a time.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct RecordsQuery {
    /// The seq to begin with.
    from: u64,
}

/// The session's records from a seq on, one JSON object a line
#[utoipa::path(get, path = "/sessions/{id}/records", tag = "sessions",
    params(("id" = String, Path), RecordsQuery),
    responses((status = 200, body = String, content_type = "application/jsonl")))]
pub(super) async fn stream(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<RecordsQuery>,
) -> Answer<Response> {
    let id = session_id(&id)?;
    let engine = api.engine.clone();
    // The first piece is read before the answer begins, so that what cannot be read is refused.
    let first = engine.log_piece(caller, id, query.from, PIECE_BYTES).await?;
    let pieces = stream::unfold(Some(Ok(first)), move |state| {
        let engine = engine.clone();
        async move {
            let piece: Result<ctx_engine::Piece, ctx_session::Refusal> = state?;
            match piece {
                Err(refusal) => Some((Err(std::io::Error::other(refusal.message)), None)),
                Ok(piece) => {
                    let next = match piece.next {
                        Some(from) => Some(engine.log_piece(caller, id, from, PIECE_BYTES).await),
                        None => None,
                    };
                    Some((Ok(Bytes::from(piece.text)), next))
                }
            }
        }
    });
    Ok(([(CONTENT_TYPE, "application/jsonl")], Body::from_stream(pieces)).into_response())
}
