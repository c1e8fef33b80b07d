//! Parses a request line, or says what is wrong with it.

use ctx_api::socket::{NewMessage, Request};
use ctx_engine::EventId;
use ctx_session::command::RunWishes;
use ctx_session::conversation::Role;
use ctx_session::image::NewImage;
use ctx_session::object::Earlier;
use ctx_session::{Name, Refusal, RunId, Scope};

use crate::parts;

/// A request that makes sense so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Op {
    Send(Send),
    Resume { target: Target, after: Option<EventId> },
    Cancel { run: RunId, target: Target },
    Ping,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Send {
    pub target: Target,
    pub client_id: Option<String>,
    pub input: String,
    /// What was said before, where the client says it all.
    pub earlier: Vec<Earlier>,
    pub images: Vec<NewImage>,
    pub cwd: Option<String>,
    pub dir: Option<String>,
    pub model_override: Option<String>,
    pub wishes: RunWishes,
}

/// Which session is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub session: Name,
    pub scope: Scope,
    pub space: Option<Name>,
}

/// A refusal and the `id` of the request it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub request: Option<String>,
    pub refusal: Refusal,
}

/// Reads a line. The second part is the request's own id, to be echoed in an error.
pub(super) fn parse(line: &[u8]) -> Result<(Op, Option<String>), Refused> {
    let refuse = |request: Option<String>, refusal: Refusal| Refused { request, refusal };
    let invalid = |message: String| Refusal::invalid("request", message);
    let value: serde_json::Value = serde_json::from_slice(line)
        .map_err(|error| refuse(None, invalid(format!("not a line of JSON: {error}"))))?;
    let id = value.get("id").and_then(|id| id.as_str()).map(str::to_owned);
    if !value.is_object() {
        return Err(refuse(None, invalid("a request is a JSON object".to_owned())));
    }
    let request: Request = serde_json::from_value(value)
        .map_err(|error| refuse(id.clone(), invalid(format!("invalid field: {error}"))))?;
    let op = op(request).map_err(|refusal| refuse(id.clone(), refusal))?;
    Ok((op, id))
}

/// Checks a request. `op` is read as text, so that the refusal of an unknown one can name those that there are.
fn op(request: Request) -> Result<Op, Refusal> {
    match request.op.as_deref() {
        Some("ping") => Ok(Op::Ping),
        Some("send") => {
            let target = target(&request)?;
            let (input, earlier) = match (request.input, request.messages) {
                (Some(input), None) => (input, Vec::new()),
                (None, Some(messages)) if target.scope == Scope::Temp => last_and_earlier(messages)?,
                (None, Some(_)) => {
                    let message = "`messages` are for one answer; set `scope` to temp, or send one `input` after the other";
                    return Err(Refusal::invalid("messages", message));
                }
                (Some(_), Some(_)) => return Err(Refusal::invalid("messages", "send `input` or `messages`")),
                (None, None) => return Err(Refusal::invalid("input", "send needs an `input`")),
            };
            let (input, images) = parts::read(input, request.parts)?;
            let (client_id, cwd, dir) = (request.id, request.cwd, request.dir);
            let model_override = request.model_override;
            let wishes = RunWishes { approvals: request.approvals, allow: request.allow, net: request.net };
            Ok(Op::Send(Send { target, client_id, input, earlier, images, cwd, dir, model_override, wishes }))
        }
        Some("resume") => {
            let after = request.after.as_deref().map(str::parse::<EventId>).transpose();
            let after = after.map_err(|error| Refusal::invalid("after", error.to_string()))?;
            Ok(Op::Resume { target: target(&request)?, after })
        }
        Some("cancel") => {
            let id =
                request.id.as_deref().ok_or_else(|| Refusal::invalid("id", "cancel needs a run's `id`"))?;
            let run = id
                .parse()
                .map_err(|error: ctx_session::ids::NotAnId| Refusal::invalid("id", error.to_string()))?;
            Ok(Op::Cancel { run, target: target(&request)? })
        }
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            Err(Refusal::invalid("op", format!("unknown op `{shown}`; use send, resume, cancel or ping")))
        }
        None => Err(Refusal::invalid("op", "a request needs an `op`: send, resume, cancel or ping")),
    }
}

/// A conversation as its client has it: the last message is the one that is answered.
fn last_and_earlier(messages: Vec<NewMessage>) -> Result<(String, Vec<Earlier>), Refusal> {
    let mut all = Vec::new();
    for NewMessage { role, content } in messages {
        let role = match role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(Refusal::invalid("messages", "a role must be user, assistant or system")),
        };
        all.push(Earlier { role, content: content.text() });
    }
    match all.pop() {
        Some(Earlier { role: Role::User, content }) => Ok((content, all)),
        Some(_) | None => Err(Refusal::invalid("messages", "the last message must be the user's")),
    }
}

/// Which session is meant. A `space` is checked and then dropped where the session is not shared, so that a client may always send it.
fn target(request: &Request) -> Result<Target, Refusal> {
    let name = |text: &str| Name::of_session(text);
    let session = request.session.as_deref().unwrap_or("default");
    let session = name(session).map_err(|rule| Refusal::invalid("session", format!("session: {rule}")))?;
    let scope = match request.scope.as_deref() {
        None | Some("private") => Scope::Private,
        Some("shared") => Scope::Shared,
        Some("temp") => Scope::Temp,
        Some(_) => return Err(Refusal::invalid("scope", "scope must be private, shared or temp")),
    };
    let space = request.space.as_deref().map(Name::new).transpose();
    let space = space.map_err(|rule| Refusal::invalid("space", format!("space: {rule}")))?;
    match (scope, &space) {
        (Scope::Shared, None) => Err(Refusal::invalid("space", "a shared session needs a `space`")),
        (Scope::Shared, Some(_)) => Ok(Target { session, scope, space }),
        (Scope::Private | Scope::Temp, _) => Ok(Target { session, scope, space: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::Code;

    fn refused(line: &str) -> (Option<String>, Code) {
        let refused = parse(line.as_bytes()).unwrap_err();
        (refused.request, refused.refusal.code)
    }

    #[test]
    fn what_is_missing_has_its_default_and_unknown_fields_are_ignored() {
        let (op, id) = parse(br#"{"op":"send","id":"m1","input":"hi","future":[1,{"a":2}]}"#).unwrap();
        let Op::Send(send) = op else { panic!("a send") };
        assert_eq!((send.target.session.as_str(), send.target.scope), ("default", Scope::Private));
        assert_eq!((send.client_id.as_deref(), id.as_deref()), (Some("m1"), Some("m1")));
    }

    #[test]
    fn bad_requests_are_einval_and_echo_their_id_when_it_can_be_read() {
        let echoed = |id: &str| Some(id.to_owned());
        for (line, id) in [
            ("", None),
            ("nonsense", None),
            ("[1]", None),
            ("\"send\"", None),
            (r#"{"op":"send","id":"a"}"#, echoed("a")),
            (r#"{"op":"send","id":"a","input":5}"#, echoed("a")),
            (r#"{"op":"send","id":"a","messages":[{"role":"user","content":"x"}]}"#, echoed("a")),
            (r#"{"op":"send","id":"a","scope":"temp","messages":[]}"#, echoed("a")),
            (
                r#"{"op":"send","id":"a","scope":"temp","messages":[{"role":"dog","content":"x"}]}"#,
                echoed("a"),
            ),
            (
                r#"{"op":"send","id":"a","scope":"temp","input":"x","messages":[{"role":"user","content":"x"}]}"#,
                echoed("a"),
            ),
            (r#"{"op":"send","id":7,"input":"x"}"#, None),
            (r#"{"op":"fly","id":"a"}"#, echoed("a")),
            (r#"{"id":"a"}"#, echoed("a")),
            (r#"{"op":"send","id":"a","input":"x","session":"../x"}"#, echoed("a")),
            (r#"{"op":"send","id":"a","input":"x","session":"index"}"#, echoed("a")),
            (r#"{"op":"send","id":"a","input":"x","scope":"public"}"#, echoed("a")),
            (r#"{"op":"send","id":"a","input":"x","scope":"shared"}"#, echoed("a")),
            (r#"{"op":"resume","id":"a","after":"x"}"#, echoed("a")),
            (r#"{"op":"cancel","id":"a"}"#, echoed("a")),
        ] {
            assert_eq!(refused(line), (id, Code::Einval), "{line}");
        }
    }
}
