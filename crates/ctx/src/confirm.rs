//! Asks for a confirmation before an action that cannot be undone. A script passes `--yes` instead.

use std::io::IsTerminal;

use ctx_api::http::Session;
use ctx_session::{Code, SessionId};

use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use crate::question::is_yes;

/// Asks about a session. `question` makes the question from the session and its name with its agent's.
pub fn ask_of(
    doing: &str,
    api: &Api,
    id: SessionId,
    question: impl FnOnce(&Session, &str) -> String,
) -> Result<(), Failure> {
    ask(doing, || {
        let session: Session = api.get(&format!("/sessions/{id}"))?;
        let agent = session.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
        Ok(question(&session, &format!("{agent}{}", session.name)))
    })
}

/// Goes on if the person at the terminal says so. `doing` begins the sentence of the refusal where there is none.
pub fn ask(doing: &str, question: impl FnOnce() -> Result<String, Failure>) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Code::Einval, format!("{doing} needs confirmation")).hint("pass --yes"));
    }
    if is_yes(&question()?)? {
        return Ok(());
    }
    output::say("nothing was changed");
    Err(Failure::Told { exit: 1 })
}
