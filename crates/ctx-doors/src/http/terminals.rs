//! Terminals over HTTP. Each belongs to the user it runs as, and is nobody else's business.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ctx_api::http::{List, NewTerminal, Terminal, TerminalCursor, TerminalInput, TerminalScreen};
use ctx_engine::{Caller, Clock, SystemClock};
use ctx_session::{Code, Refusal};
use ctx_terminal::{Size, TerminalError, Terminals};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::Api;
use super::error::{Answer, ApiError};
use super::extract::{Asked, At, Given, Who};
use super::json::Json;

/// The size of a terminal whose client has none.
const SIZE: Size = Size { cols: 80, rows: 24 };
/// Lines that a search answers with.
const FOUND_MAX: usize = 1_000;
/// How much of a transcript is made at a time, and how many of these wait to be sent.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES: usize = 4;

/// The size that a client asks for.
pub(crate) fn size_of(cols: Option<u16>, rows: Option<u16>) -> Result<Size, Refusal> {
    for (field, number) in [("cols", cols), ("rows", rows)] {
        if number.is_some_and(|number| !(1..=1_000).contains(&number)) {
            return Err(Refusal::invalid(field, format!("{field} must be from 1 to 1000")));
        }
    }
    Ok(Size::new(cols.unwrap_or(SIZE.cols), rows.unwrap_or(SIZE.rows)))
}

/// A value's word in JSON.
fn word(value: impl serde::Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

/// A terminal as the API shows it.
pub fn shown_terminal(terminal: &ctx_terminal::Terminal) -> Terminal {
    let (status, end) = (terminal.status.as_ref(), terminal.end.as_ref());
    let size = status.map(|status| status.size);
    let screen = end.map(|end| Size { cols: end.screen.cols, rows: end.screen.rows });
    let Size { cols, rows } = size.or(screen).unwrap_or(SIZE);
    let bytes = status.map(|status| (status.bytes, status.lines));
    let (bytes, lines) = bytes.or(end.map(|end| (end.bytes, end.lines))).unwrap_or_default();
    Terminal {
        id: terminal.about.id,
        name: terminal.about.name.clone(),
        session: terminal.about.session.map(|session| session.to_string()),
        caged: terminal.about.is_caged,
        command: terminal.about.command.clone(),
        cwd: terminal.about.cwd.display().to_string(),
        state: word(terminal.state).unwrap_or_default(),
        exit_code: end.and_then(|end| end.exit_code),
        reason: terminal.reason().and_then(word),
        cols,
        rows,
        attached: status.map_or(0, |status| status.attached),
        waiting: status.and_then(|status| status.waiting).and_then(word),
        title: status.map(|status| status.title.clone()).unwrap_or_default(),
        created_at: terminal.about.created_at.as_millis(),
        ended_at: end.map(|end| end.ended_at.as_millis()),
        bytes,
        lines,
        socket: terminal.socket().display().to_string(),
        transcript: terminal.transcript().display().to_string(),
        transcript_error: status
            .map(|status| &status.transcript_error)
            .or(end.map(|end| &end.transcript_error))
            .and_then(Clone::clone),
    }
}

fn refusal(error: &TerminalError) -> ApiError {
    let refusal = Refusal::new(error.code(), error.to_string());
    ApiError(match error {
        TerminalError::Invalid { field, .. } => refusal.blaming(*field),
        _ => refusal,
    })
}

/// Terminals are asked of the disk and of their holders, which takes a thread that may wait.
pub(super) async fn ask<T: Send + 'static>(
    api: &Api,
    caller: Caller,
    work: impl FnOnce(&Terminals) -> Result<T, TerminalError> + Send + 'static,
) -> Answer<T> {
    let (terminals, seat) = (std::sync::Arc::clone(&api.terminals), api.waits(caller)?);
    let asked = move || {
        let _seat = seat;
        work(&terminals)
    };
    let done = tokio::task::spawn_blocking(asked).await;
    let done =
        done.map_err(|error| Refusal::new(Code::Eio, format!("asking the terminals broke: {error}")))?;
    done.map_err(|error| refusal(&error))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct TerminalsQuery {
    /// With those that have ended.
    pub(super) all: bool,
}

/// The caller's terminals, oldest first
#[utoipa::path(get, path = "/terminals", tag = "terminals", params(TerminalsQuery),
    responses((status = 200, body = List<Terminal>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    Asked(query): Asked<TerminalsQuery>,
) -> Answer<Json<List<Terminal>>> {
    let found = ask(&api, caller, move |terminals| terminals.list(caller.uid)).await?;
    let wanted = found.iter().filter(|one| query.all || one.state != ctx_terminal::State::Closed);
    Ok(Json(List { items: wanted.map(shown_terminal).collect(), next: None }))
}

/// Start a program in a terminal that lives until it ends
#[utoipa::path(post, path = "/terminals", tag = "terminals", request_body = NewTerminal,
    responses((status = 201, body = Terminal)))]
pub(super) async fn open(
    State(api): State<Api>,
    Who(caller): Who,
    Given(new): Given<NewTerminal>,
) -> Answer<(StatusCode, Json<Terminal>)> {
    let size = size_of(new.cols, new.rows)?;
    let new = ctx_terminal::NewTerminal {
        name: new.name,
        command: new.command,
        cwd: new.cwd.map(Into::into),
        env: new.env.map(|env| env.into_iter().collect()),
        size,
        created_at: SystemClock.now(),
        of: None,
    };
    let opened = ask(&api, caller, move |terminals| terminals.open(caller.uid, new)).await?;
    Ok((StatusCode::CREATED, Json(shown_terminal(&opened))))
}

/// One of the caller's terminals, by its id or its name
#[utoipa::path(get, path = "/terminals/{pid}", tag = "terminals", params(("pid" = String, Path)),
    responses((status = 200, body = Terminal)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<Json<Terminal>> {
    let found = ask(&api, caller, move |terminals| terminals.find(caller.uid, &id)).await?;
    Ok(Json(shown_terminal(&found)))
}

/// End the program of a terminal. Its transcript stays
#[utoipa::path(delete, path = "/terminals/{pid}", tag = "terminals", params(("pid" = String, Path)),
    responses((status = 204)))]
pub(super) async fn close(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<StatusCode> {
    ask(&api, caller, move |terminals| terminals.close(caller.uid, &id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The screen of a terminal as text; of one that has ended, its last
#[utoipa::path(get, path = "/terminals/{pid}/screen", tag = "terminals", params(("pid" = String, Path)),
    responses((status = 200, body = TerminalScreen)))]
pub(super) async fn screen(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<Json<TerminalScreen>> {
    let screen = ask(&api, caller, move |terminals| {
        let found = terminals.find(caller.uid, &id)?;
        terminals.screen(caller.uid, &found)
    });
    let ctx_terminal::Screen { cols, rows, text, cursor, title, alternate } = screen.await?;
    let cursor = TerminalCursor { row: cursor.row, col: cursor.col, visible: cursor.visible };
    Ok(Json(TerminalScreen { text, cols, rows, cursor, title, alternate }))
}

/// Type into a terminal
#[utoipa::path(post, path = "/terminals/{pid}/input", tag = "terminals", params(("pid" = String, Path)),
    request_body = TerminalInput, responses((status = 204)))]
pub(super) async fn input(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(input): Given<TerminalInput>,
) -> Answer<StatusCode> {
    ask(&api, caller, move |terminals| {
        let found = terminals.find(caller.uid, &id)?;
        terminals.send(caller.uid, &found, &input.text, &input.keys)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TranscriptFormat {
    /// What was shown, without escape sequences.
    #[default]
    Text,
    /// Every byte that the program wrote.
    Raw,
    /// For `asciinema play`.
    Asciicast,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct TranscriptQuery {
    /// `text`, `raw` or `asciicast`.
    #[param(inline)]
    format: TranscriptFormat,
    /// Lines of the text that contain this, without regard to case: one JSON object a line, with `line`, `at` (seconds)
    /// and `text`.
    q: Option<String>,
}

/// What a terminal has shown
#[utoipa::path(get, path = "/terminals/{pid}/transcript", tag = "terminals",
    params(("pid" = String, Path), TranscriptQuery),
    responses((status = 200, content((String = "text/plain"), (String = "application/jsonl"),
        (String = "application/octet-stream"), (String = "application/x-asciicast")))))]
pub(super) async fn transcript(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<TranscriptQuery>,
) -> Answer<Response> {
    transcript_of(&api, caller, caller.uid, id, query).await
}

/// A user's terminal's transcript in the form that is asked for.
pub(super) async fn transcript_of(
    api: &Api,
    caller: Caller,
    uid: u32,
    id: String,
    query: TranscriptQuery,
) -> Answer<Response> {
    let (about, chunks) = ask(api, caller, move |terminals| {
        let found = terminals.find(uid, &id)?;
        Ok((found.about.clone(), terminals.transcript(uid, &found)?))
    })
    .await?;
    let kind = match (&query.q, query.format) {
        (Some(_), _) => "application/jsonl",
        (None, TranscriptFormat::Text) => "text/plain; charset=utf-8",
        (None, TranscriptFormat::Raw) => "application/octet-stream",
        (None, TranscriptFormat::Asciicast) => "application/x-asciicast",
    };
    let (pieces, waiting) = mpsc::channel(PIECES);
    let seat = api.waits(caller)?;
    tokio::task::spawn_blocking(move || {
        let _seat = seat;
        let mut out = Pieces { pieces: pieces.clone(), piece: Vec::new() };
        let made = match (query.q, query.format) {
            (Some(wanted), _) => ctx_terminal::search(chunks, &wanted, FOUND_MAX).and_then(|found| {
                found.iter().try_for_each(|line| {
                    let text = serde_json::to_string(line)?;
                    std::io::Write::write_all(&mut out, format!("{text}\n").as_bytes())
                })
            }),
            (None, TranscriptFormat::Text) => ctx_terminal::text(chunks, &mut out),
            (None, TranscriptFormat::Raw) => ctx_terminal::raw(chunks, &mut out),
            (None, TranscriptFormat::Asciicast) => {
                ctx_terminal::asciicast(chunks, about.created_at, &about.command, &mut out)
            }
        };
        if let Err(error) = made.and_then(|()| std::io::Write::flush(&mut out)) {
            // Who asked may have hung up.
            let _ = pieces.blocking_send(Err(error));
        }
    });
    let pieces = stream::unfold(waiting, |mut waiting| async move { Some((waiting.recv().await?, waiting)) });
    Ok(([(CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response())
}

/// A writer whose bytes go to a client in pieces.
struct Pieces {
    pieces: mpsc::Sender<std::io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl std::io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.pieces.blocking_send(Ok(piece)).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_no_terminal_has_is_refused() {
        assert_eq!(size_of(None, Some(9)).unwrap(), Size { cols: 80, rows: 9 });
        assert_eq!(size_of(Some(0), None).unwrap_err().code, Code::Einval);
        assert_eq!(size_of(Some(80), Some(0)).unwrap_err().code, Code::Einval);
        assert_eq!(size_of(Some(1000), Some(1000)).unwrap(), Size { cols: 1000, rows: 1000 });
        assert_eq!(size_of(Some(5000), Some(24)).unwrap_err().code, Code::Einval);
    }
}
