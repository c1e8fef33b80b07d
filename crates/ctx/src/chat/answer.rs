//! Answers where one types: approvals by a letter, and the text for a model that paused to ask. Parsing is pure.

use ctx_api::http::{Approval, ApprovalAnswer, Decision, Resume, WentOn};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Chat;
use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use ctx_session::Code;
use ctx_session::record::ApprovalScope;

/// A tool call that waits for an answer, and the question about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub id: String,
    pub tool: String,
    pub subject: Option<String>,
    pub diff: Option<String>,
    pub stage: Stage,
}

/// How far a question is. An answer is for the question that was shown, so they are shown one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    New,
    Shown,
    /// From here; its end is not in the log yet.
    Answered,
}

/// What an answer to an approval says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// Also what the same line of the policy asks for, until the session ends.
    Always,
    Deny {
        reason: Option<String>,
    },
}

impl From<Verdict> for ApprovalAnswer {
    fn from(verdict: Verdict) -> ApprovalAnswer {
        let (decision, scope, note) = match verdict {
            Verdict::Allow => (Decision::Allow, None, None),
            Verdict::Always => (Decision::Allow, Some(ApprovalScope::Session), None),
            Verdict::Deny { reason } => (Decision::Deny, None, reason),
        };
        ApprovalAnswer { decision, scope, note }
    }
}

/// The answer in a line, if it is one.
pub fn verdict(line: &str) -> Option<Verdict> {
    let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let rest = rest.trim();
    match (word.to_ascii_lowercase().as_str(), rest.is_empty()) {
        ("y" | "yes", true) => Some(Verdict::Allow),
        ("a" | "always", true) => Some(Verdict::Always),
        ("n" | "no", true) => Some(Verdict::Deny { reason: None }),
        ("n" | "no", false) => Some(Verdict::Deny { reason: Some(rest.to_owned()) }),
        _ => None,
    }
}

impl Chat<'_> {
    /// A request on this session with a body.
    pub(super) async fn tell<T: DeserializeOwned>(
        &self,
        below: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.request(Method::POST, below, body).await
    }

    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        below: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        let path = format!("/sessions/{}{below}", self.id);
        Api::new(self.root).ask(method, &path, Some(body)).await
    }

    /// Answers the oldest call that waits.
    pub(super) async fn answer(&mut self, verdict: Verdict) -> Result<(), Failure> {
        let Some(asked) = self.asked.front_mut() else { return Ok(()) };
        asked.stage = Stage::Answered;
        let asked = asked.clone();
        self.send_answer(&asked, verdict.into()).await
    }

    /// Whether a line that is typed now answers a question.
    pub(super) fn is_asking(&self) -> bool {
        self.stage() == Some(Stage::Shown)
    }

    /// How far the oldest question is.
    pub(super) fn stage(&self) -> Option<Stage> {
        self.asked.front().map(|asked| asked.stage)
    }

    /// Shows the question about the oldest call that waits, once.
    pub(super) fn show_question(&mut self) -> Result<(), Failure> {
        let Some(asked) = self.asked.front_mut().filter(|asked| asked.stage == Stage::New) else {
            return Ok(());
        };
        asked.stage = Stage::Shown;
        self.view.asks(&asked.id, &asked.tool, asked.subject.as_deref(), asked.diff.as_deref())?;
        Ok(())
    }

    async fn send_answer(&mut self, asked: &Asked, answer: ApprovalAnswer) -> Result<(), Failure> {
        match self.tell::<Approval>(&format!("/approvals/{}", asked.id), &answer).await {
            Ok(done) if done.scope == Some(ApprovalScope::Session) => {
                let of = done.pattern.map(|pattern| format!(" {pattern}")).unwrap_or_default();
                let said = format!("{}{of} is not asked for again in this session", done.tool);
                Ok(self.view.notice(&output::plain(&said))?)
            }
            Ok(_) => Ok(()),
            // Another client was faster, or the run has ended.
            Err(Failure::Said { message, .. }) => {
                self.view.notice(&output::plain(&message))?;
                self.asked.retain(|one| one.id != asked.id);
                self.show_question()
            }
            Err(other) => Err(other),
        }
    }

    /// Goes on from the pause; the text is the answer to what the model asked.
    pub(super) async fn go_on_with(&mut self, checkpoint: &str, text: String) -> Result<(), Failure> {
        let resume = Resume { resolve: false, message: Some(text) };
        match self.tell::<WentOn>(&format!("/checkpoints/{checkpoint}/resume"), &resume).await {
            Ok(_) => Ok(()),
            Err(Failure::Said { message, code, .. }) => {
                Ok(self.view.notice(&format!("not sent: {} ({code})", output::plain(&message)))?)
            }
            Err(other) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_answers_and_a_sentence_does_not() {
        let no = |reason: Option<&str>| Some(Verdict::Deny { reason: reason.map(str::to_owned) });
        for (line, wanted) in [
            ("y", Some(Verdict::Allow)),
            (" YES ", Some(Verdict::Allow)),
            ("a", Some(Verdict::Always)),
            ("n", no(None)),
            ("n not that file", no(Some("not that file"))),
            ("yes please do", None),
            ("another thing", None),
            ("", None),
        ] {
            assert_eq!(verdict(line), wanted, "{line:?}");
        }
    }
}
