//! What `ctx attach` shows: messages, text as it comes, tools, and what became of a run. Writes, and decides nothing.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write;

use ctx_api::http::{Message, MessagePart, Role};
use serde_json::Value;

use crate::client::LiveFrame;
use crate::output::{self, Paint};
use crate::words;

/// Longest piece of a tool's input or output that is shown.
const TOOL_CHARS: usize = 160;
/// Messages whose ids are remembered, so that none is shown twice.
const KNOWN_MAX: usize = 4_096;

pub struct View<W> {
    out: W,
    paint: Paint,
    /// Kept from escape sequences of others.
    on_terminal: bool,
    at_line_start: bool,
    /// Messages that have been shown, the newest last.
    known: VecDeque<String>,
    seen: HashSet<String>,
    /// Client ids of what was typed here: the terminal has shown it.
    own: HashSet<String>,
    /// What was shown of messages that are not finished.
    partial: HashMap<String, String>,
    /// Said on a line of its own, once.
    pub last: Option<String>,
}

fn text<'a>(payload: &'a Value, field: &str) -> &'a str {
    payload.get(field).and_then(Value::as_str).unwrap_or_default()
}

impl<W: Write> View<W> {
    pub fn new(out: W, paint: Paint, on_terminal: bool) -> View<W> {
        View {
            out,
            paint,
            on_terminal,
            at_line_start: true,
            known: VecDeque::new(),
            seen: HashSet::new(),
            own: HashSet::new(),
            partial: HashMap::new(),
            last: None,
        }
    }

    /// What was typed here will come back with this client id.
    pub fn typed(&mut self, client_id: &str) {
        self.at_line_start = true;
        self.own.insert(client_id.to_owned());
    }

    /// A message of the past.
    pub fn message(&mut self, message: &Message) -> std::io::Result<()> {
        let id = message.id.to_string();
        match message.role {
            Role::User => self.said_by_user(&id, &message.content),
            Role::Assistant | Role::Subagent | Role::System => {
                self.finished(&id, &message.content)?;
                for part in &message.parts {
                    if let MessagePart::ToolCall { name, input, .. } = part {
                        self.aside(&format!("→ {name} {}", words::shorten(&input.to_string(), TOOL_CHARS)))?;
                    }
                }
                Ok(())
            }
            Role::Tool => {
                let line = words::shorten(&message.content, TOOL_CHARS);
                self.aside(&format!("← {line}"))
            }
        }
    }

    /// A frame of the present; not those of `control`.
    pub fn frame(&mut self, frame: &LiveFrame) -> std::io::Result<()> {
        let payload = &frame.payload;
        match frame.kind.as_str() {
            "delta" => self.delta(text(payload, "message_id"), text(payload, "text")),
            "message" if text(payload, "role") == "user" => {
                if self.own.remove(text(payload, "client_id")) {
                    self.remember(text(payload, "id"));
                    return Ok(());
                }
                self.said_by_user(text(payload, "id"), text(payload, "content"))
            }
            "message" => self.finished(text(payload, "id"), text(payload, "content")),
            "tool_started" => {
                let input = payload.get("input").map(Value::to_string).unwrap_or_default();
                let name = text(payload, "name");
                self.aside(&format!("→ {name} {}", words::shorten(&input, TOOL_CHARS)))
            }
            "tool_finished" => {
                let shown = words::shorten(text(payload, "output"), TOOL_CHARS);
                self.aside(&format!("← {} {shown}", text(payload, "status")))
            }
            "run.completed" if text(payload, "state") == "failed" => {
                let error = payload.get("error").cloned().unwrap_or_default();
                self.notice(&format!("the run failed: {} ({})", text(&error, "message"), text(&error, "code")))
            }
            "run.cancelled" => self.notice("cancelled"),
            "session.queued" => self.notice(
                "queued: as many runs as may are going already; `ctx queue resume` starts it when there is room",
            ),
            "session.renamed" => self.notice(&format!("the title is now {}", text(payload, "title"))),
            _ => Ok(()),
        }
    }

    /// A line of ours.
    pub fn notice(&mut self, line: &str) -> std::io::Result<()> {
        self.end_line()?;
        let line = self.paint.yellow(&format!("[{}]", output::plain(line)));
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn remember(&mut self, id: &str) {
        if id.is_empty() || !self.seen.insert(id.to_owned()) {
            return;
        }
        self.last = Some(id.to_owned());
        self.known.push_back(id.to_owned());
        if self.known.len() > KNOWN_MAX
            && let Some(oldest) = self.known.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    fn said_by_user(&mut self, id: &str, content: &str) -> std::io::Result<()> {
        if self.seen.contains(id) {
            return Ok(());
        }
        self.remember(id);
        self.end_line()?;
        let shown = self.plain(content);
        for line in shown.lines() {
            let line = self.paint.cyan(&format!("> {line}"));
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    fn delta(&mut self, id: &str, piece: &str) -> std::io::Result<()> {
        if self.seen.contains(id) {
            return Ok(());
        }
        self.partial.entry(id.to_owned()).or_default().push_str(piece);
        self.write(piece)
    }

    /// A whole message: what its deltas have shown is not shown again. Who came in the middle of it gets it whole.
    fn finished(&mut self, id: &str, whole: &str) -> std::io::Result<()> {
        let shown = self.partial.remove(id).unwrap_or_default();
        if self.seen.contains(id) {
            return Ok(());
        }
        self.remember(id);
        match whole.strip_prefix(shown.as_str()) {
            Some(rest) => self.write(rest)?,
            None => {
                self.end_line()?;
                self.write(whole)?;
            }
        }
        self.end_line()
    }

    fn aside(&mut self, line: &str) -> std::io::Result<()> {
        self.end_line()?;
        let line = self.paint.dim(&self.plain(line));
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn plain(&self, text: &str) -> String {
        if self.on_terminal { output::plain(text).to_string() } else { text.to_owned() }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let shown = self.plain(text);
        self.out.write_all(shown.as_bytes())?;
        self.at_line_start = text.ends_with('\n');
        self.out.flush()
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        if !self.at_line_start {
            self.out.write_all(b"\n")?;
            self.at_line_start = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn frame(kind: &str, payload: Value) -> LiveFrame {
        LiveFrame { channel: "output".to_owned(), kind: kind.to_owned(), seq: 1, payload }
    }

    fn shown(on_terminal: bool, frames: &[LiveFrame]) -> String {
        let mut view = View::new(Vec::new(), Paint::off(), on_terminal);
        view.typed("mine");
        for frame in frames {
            view.frame(frame).unwrap();
        }
        String::from_utf8(view.out).unwrap()
    }

    fn delta(text: &str) -> LiveFrame {
        frame("delta", json!({ "message_id": "m", "text": text }))
    }

    fn message(role: &str, id: &str, content: &str) -> LiveFrame {
        frame("message", json!({ "id": id, "role": role, "content": content, "client_id": id }))
    }

    #[test]
    fn text_is_shown_once_as_it_comes_and_whole_for_who_came_late() {
        let whole = message("assistant", "m", "hello");
        assert_eq!(shown(false, &[delta("hel"), delta("lo"), whole.clone()]), "hello\n");
        assert_eq!(shown(false, &[delta("lo"), whole.clone()]), "lo\nhello\n");
        assert_eq!(shown(false, &[whole.clone(), whole.clone(), delta("late")]), "hello\n");
    }

    #[test]
    fn what_was_typed_here_is_not_said_again() {
        let frames = [message("user", "mine", "typed"), message("user", "theirs", "from elsewhere")];
        assert_eq!(shown(false, &frames), "> from elsewhere\n");
    }

    #[test]
    fn a_terminal_is_kept_from_escape_sequences_and_a_pipe_gets_the_bytes() {
        let red = message("assistant", "m", "\x1b[31mred");
        assert_eq!(shown(true, std::slice::from_ref(&red)), "\u{fffd}[31mred\n");
        assert_eq!(shown(false, &[red]), "\x1b[31mred\n");
    }

    #[test]
    fn tools_and_the_end_of_a_run_have_lines_of_their_own() {
        let frames = [
            delta("let me see"),
            frame("tool_started", json!({ "name": "fs.list", "input": { "path": "/" } })),
            frame("tool_finished", json!({ "status": "ok", "output": "a\nb" })),
            frame("run.cancelled", json!({})),
        ];
        let wanted = "let me see\n→ fs.list {\"path\":\"/\"}\n← ok a b\n[cancelled]\n";
        assert_eq!(shown(false, &frames), wanted);
    }
}
