//! Answers where one types: approvals by a letter, and the text for a model that paused to ask. Parsing is pure.

use std::sync::Mutex;
use std::time::{Duration, Instant};

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

/// When the newest question was shown, and when the line that is typed was begun. A line answers only a question that stood there
/// for a moment when it was begun: keys that were pressed before wait in buffers and come right behind the question.
#[derive(Debug, Default)]
pub struct Questions(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    shown: Option<Instant>,
    begun: Option<Instant>,
}

/// Nobody reads a question and presses a key in less.
const READ_MIN: Duration = Duration::from_millis(150);

impl Questions {
    pub fn show(&self) {
        ctx_journal::lock(&self.0).shown = Some(Instant::now());
    }

    /// A line can be typed now. What stood there before is a line that was begun; keys that wait for it are pressed already, so
    /// questions count as shown from here on.
    pub fn ask_line(&self) {
        let mut times = ctx_journal::lock(&self.0);
        let now = Instant::now();
        (times.shown, times.begun) = (times.shown.map(|_| now), Some(now));
    }

    /// The first key of a line is pressed.
    pub fn begin_line(&self) {
        ctx_journal::lock(&self.0).begun = Some(Instant::now());
    }

    /// Whether the line was begun before anyone can have read the newest question.
    fn are_newer(&self) -> bool {
        let times = ctx_journal::lock(&self.0);
        times.shown.is_some_and(|shown| times.begun.is_none_or(|begun| begun < shown + READ_MIN))
    }
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
    // `no, use another` says no; a yes has nothing behind it.
    let word = if rest.is_empty() { word } else { word.trim_end_matches([',', ':', ';', '.', '!']) };
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

    /// Whether the line that was entered was begun before the newest question was shown. Lines without the editor are read when
    /// a question is shown.
    pub(super) fn is_of_earlier(&self) -> bool {
        self.at_editor && self.questions.are_newer()
    }

    /// Whether a line would have answered a call, if the daemon were there.
    pub(super) fn is_answer(&self, line: &str) -> bool {
        !self.asked.is_empty() && verdict(line).is_some()
    }

    /// The daemon is away and the call may wait still: it is asked about again.
    pub(super) fn ask_again_later(&mut self) -> Result<(), Failure> {
        if let Some(asked) = self.asked.front_mut() {
            asked.stage = Stage::New;
            self.view.forget_question(&asked.id);
        }
        let why = "the daemon is away; you are asked again when it is back, if the call still waits";
        Ok(self.view.notice(&format!("the answer was not sent: {why}"))?)
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
        self.questions.show();
        if !self.at_editor && !self.is_script {
            output::forget_typed();
        }
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
            Err(Failure::Said { code: Code::Ehostdown, .. }) => self.ask_again_later(),
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
            // A script's next line is for what comes after the run, also before the daemon has shown that the run goes on.
            Ok(_) => {
                self.paused = None;
                Ok(())
            }
            Err(Failure::Said { message, code, .. }) => {
                self.has_refused = true;
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
            ("no, use y.txt", no(Some("use y.txt"))),
            ("No: not that file", no(Some("not that file"))),
            ("yes, do it", None),
            ("nothing, go on", None),
            ("yes please do", None),
            ("another thing", None),
            ("", None),
        ] {
            assert_eq!(verdict(line), wanted, "{line:?}");
        }
    }
}
