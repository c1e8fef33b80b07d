//! What an object is given: words or stdin, as text or as JSON.

use std::io::Read;

use ctx_api::socket::{NewMessage, Request};
use ctx_session::{Code, Object};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::talk::client_id;

/// More than any object takes.
const BYTES_MAX: u64 = 16 << 20;

/// What came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input(String);

/// What the JSON for an agent or a model may say besides what is asked.
#[derive(Debug, Deserialize)]
struct Said {
    #[serde(default)]
    task: Option<String>,
    #[serde(default)]
    input: Option<String>,
    #[serde(default)]
    messages: Option<Vec<NewMessage>>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    space: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
}

impl Input {
    /// The words, or stdin where there are none.
    pub(super) fn read(words: &[String]) -> Result<Input, Failure> {
        if !words.is_empty() && words != ["-"] {
            return Ok(Input(words.join(" ")));
        }
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| Failure::io("stdin", error))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(bad(format!("stdin has more than {BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| bad("stdin is not UTF-8"))?;
        Ok(Input(text))
    }

    /// The arguments of a tool: one JSON object.
    pub(super) fn arguments(&self) -> Result<Value, Failure> {
        let value: Value = serde_json::from_str(&self.0).map_err(|error| {
            bad(format!("the arguments are not JSON: {error}"))
                .hint("give one JSON object, such as '{\"path\":\"README.md\"}'")
        })?;
        match value {
            Value::Object(_) => Ok(value),
            _ => Err(bad("the arguments are not a JSON object")),
        }
    }

    /// What is sent to an agent or a model. JSON that says what is asked is read as that, and the frames of another object as
    /// what that one answered; every other text is the message.
    pub(super) fn request(
        self,
        object: &Object,
        session: Option<String>,
        request: Request,
    ) -> Result<Request, Failure> {
        let text = answer_in_frames(&self.0)?.unwrap_or(self.0);
        let value: Option<Value> = serde_json::from_str(&text).ok();
        let keys: &[&str] = match object {
            Object::Agent(_) => &["task", "input"],
            Object::Model { .. } => &["messages", "input"],
        };
        let is_asking = value.as_ref().is_some_and(|value| keys.iter().any(|key| value.get(key).is_some()));
        let said = match value.filter(|_| is_asking) {
            Some(value) => {
                serde_json::from_value(value).map_err(|error| bad(format!("bad input: {error}")))?
            }
            None => Said { input: Some(text), ..Said::NOTHING },
        };
        let input = match (&said.task, &said.input, &said.messages) {
            (Some(_), Some(_), _) | (_, Some(_), Some(_)) => {
                return Err(bad(format!("give one of {}", keys.join(" and "))));
            }
            (Some(task), None, _) => Some(task.clone()),
            (None, input, _) => input.clone(),
        };
        if said.messages.is_none() && input.as_ref().is_none_or(|text| text.trim().is_empty()) {
            return Err(bad("there is nothing to say: give a text, or pipe one in"));
        }
        let session = session.or(said.session);
        // Without a name the conversation is for this answer alone.
        let (session, scope) = match (session, said.scope) {
            (None, None) => (client_id(), Some("temp".to_owned())),
            (None, Some(scope)) if scope == "temp" => (client_id(), Some(scope)),
            (None, scope) => ("default".to_owned(), scope),
            (Some(session), scope) => (session, scope),
        };
        let messages = said.messages;
        Ok(Request {
            session: Some(session),
            scope,
            space: said.space,
            cwd: said.cwd,
            input,
            messages,
            ..request
        })
    }
}

impl Said {
    const NOTHING: Said =
        Said { task: None, input: None, messages: None, session: None, scope: None, space: None, cwd: None };
}

/// What an object answered, if these are the frames that it writes to a pipe: so objects make a pipeline. An answer that
/// failed is not passed on.
fn answer_in_frames(text: &str) -> Result<Option<String>, Failure> {
    let mut frames = text.lines().map(|line| serde_json::from_str::<Value>(line).ok());
    let kind = |frame: &Value| frame.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(Some(first)) = frames.next() else { return Ok(None) };
    if kind(&first) != "start" || first.get("run").is_none() {
        return Ok(None);
    }
    let Some(frames) = frames.collect::<Option<Vec<Value>>>() else { return Ok(None) };
    if frames.iter().any(|frame| kind(frame) == "done" && frame.get("status") != Some(&Value::from("ok"))) {
        return Err(bad(
            "what came in is an answer that failed or was cancelled, so there is nothing to pass on",
        ));
    }
    let answers = frames.iter().filter(|frame| kind(frame) == "message");
    let parts = answers.filter_map(|frame| frame.get("content")?.as_array()).flatten();
    let texts: Vec<&str> = parts.filter_map(|part| part.get("text")?.as_str()).collect();
    Ok(Some(texts.join("\n")))
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(Code::Einval, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::Name;

    fn agent() -> Object {
        Object::Agent(Name::new("coder").unwrap())
    }

    fn model() -> Object {
        Object::model("debug/echo").unwrap().unwrap()
    }

    fn request(text: &str, object: &Object) -> Result<Request, Failure> {
        Input(text.to_owned()).request(object, None, Request::default())
    }

    #[test]
    fn text_is_the_message_and_json_says_what_is_asked() {
        for (text, object, input) in [
            ("hello", model(), "hello"),
            ("{\"input\":\"hi\"}", model(), "hi"),
            ("{\"task\":\"fix tests\"}", agent(), "fix tests"),
            ("{\"task\":\"fix tests\"}", model(), "{\"task\":\"fix tests\"}"),
            ("{not json", agent(), "{not json"),
            ("{\"steps\":[]}", model(), "{\"steps\":[]}"),
            ("[1]", agent(), "[1]"),
        ] {
            let request = request(text, &object).unwrap();
            assert_eq!(
                (request.input.as_deref(), request.scope.as_deref()),
                (Some(input), Some("temp")),
                "{text}"
            );
        }
        let asked = request("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &model()).unwrap();
        assert_eq!((asked.messages.unwrap().len(), asked.input), (1, None));
        let kept = request("{\"task\":\"x\",\"session\":\"s\",\"cwd\":\"/work\"}", &agent()).unwrap();
        assert_eq!(
            (kept.session.as_deref(), kept.scope, kept.cwd.as_deref()),
            (Some("s"), None, Some("/work"))
        );
    }

    #[test]
    fn the_frames_of_another_object_are_what_it_answered() {
        let frames = "{\"type\":\"start\",\"run\":\"r\"}\n{\"type\":\"delta\",\"text\":\"a\"}\n\
                      {\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"a b\"}]}\n\
                      {\"type\":\"done\",\"run\":\"r\",\"status\":\"ok\"}\n";
        assert_eq!(request(frames, &agent()).unwrap().input.as_deref(), Some("a b"));
        let failed = frames.replace("\"ok\"", "\"error\"");
        assert_eq!(request(&failed, &agent()).unwrap_err().exit(), 2);
        for other in ["{\"type\":\"start\"}\nhello", "{\"type\":\"start\",\"run\":\"r\"}\nhello", "start"] {
            assert_eq!(request(other, &model()).unwrap().input.as_deref(), Some(other));
        }
    }

    #[test]
    fn bad_input_is_a_bad_argument() {
        for (text, object) in [
            ("", model()),
            ("  \n", agent()),
            ("{\"task\":5}", agent()),
            ("{\"task\":\"\"}", agent()),
            ("{\"task\":\"a\",\"input\":\"b\"}", agent()),
            ("{\"messages\":7}", model()),
            ("{\"messages\":[],\"input\":\"x\"}", model()),
        ] {
            assert_eq!(request(text, &object).unwrap_err().exit(), 2, "{text}");
        }
        for text in ["", "hello", "[1]", "{"] {
            assert_eq!(Input(text.to_owned()).arguments().unwrap_err().exit(), 2, "{text}");
        }
    }
}
