//! Prints frames: the assistant's text to stdout and everything else to stderr, or the frames as JSON.

use std::io::{IsTerminal, Write};

use ctx_api::socket::{Content, DoneStatus, Frame};

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::{waits, words};

/// Longest piece of a tool's input or output that is shown.
const TOOL_MAX: usize = 160;

/// What stdout gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The assistant's text.
    Text,
    /// Every frame, a line each.
    Json,
}

pub struct Show {
    form: Form,
    /// Where the text goes, and whether a person sees it.
    out: Box<dyn Write>,
    on_terminal: bool,
    /// Whether tool calls and diffs are shown too, on stderr.
    shows_work: bool,
    /// Whether an answer of the model that only repeats is a surprise.
    expects_model: bool,
    paint: Paint,
    /// The text of the current message that was shown as deltas.
    shown: String,
    /// Whether the last thing on stdout was the end of a line, or nothing.
    at_line_start: bool,
    /// Whether the last thing on stderr was a piece of reasoning.
    in_reasoning: bool,
    /// `agent`, to name sessions by.
    agent: String,
    /// The run that was shown to begin.
    begun: Option<String>,
}

impl Show {
    pub fn new(form: Form, agent: &str) -> Show {
        let stdout = std::io::stdout();
        let on_terminal = stdout.is_terminal();
        let paint = Paint::for_stderr();
        let (shown, agent) = (String::new(), agent.to_owned());
        let (out, shows_work) = (Box::new(stdout), on_terminal);
        Show {
            form,
            out,
            on_terminal,
            shows_work,
            expects_model: false,
            paint,
            shown,
            at_line_start: true,
            in_reasoning: false,
            agent,
            begun: None,
        }
    }

    /// Tool calls and diffs are shown also when no person is there.
    #[must_use]
    pub fn with_work(self) -> Show {
        Show { shows_work: true, ..self }
    }

    /// There is a task, and nobody chose the model that only repeats.
    #[must_use]
    pub fn expecting_a_model(self) -> Show {
        Show { expects_model: true, ..self }
    }

    /// Whether who sees this can answer an approval by typing.
    pub fn takes_answers(&self) -> bool {
        self.form == Form::Text && super::asked::can_answer()
    }

    /// The run that was shown to begin, if one was.
    pub fn begun(&self) -> Option<&str> {
        self.begun.as_deref()
    }

    /// Shows a question that a typed line answers, and calls for the person.
    pub fn question(&mut self, frame: &Frame) -> Result<(), Failure> {
        self.end_line()?;
        output::ring();
        match frame {
            Frame::Paused { session, reason: Some(reason), .. } => {
                self.talk(waits::paused_typed(&format!("{}/{session}", self.agent), reason));
            }
            Frame::Approval { tool, subject, diff, .. } => {
                if let Some(diff) = diff {
                    self.talk(crate::render::diff::text(diff, "  ", self.paint).trim_end());
                }
                self.talk(waits::asks_here(tool, subject.as_deref()));
            }
            _ => {}
        }
        Ok(())
    }

    pub fn frame(&mut self, frame: &Frame, line: &str) -> Result<(), Failure> {
        if let Frame::Start { run, model, .. } = frame {
            self.begun = Some(run.clone());
            // Who has a task for an agent does not mean to hear it again.
            if self.expects_model && self.form == Form::Text && model == "debug/echo" {
                self.talk("no model is set up: debug:echo repeats what you say; `ctx model add` sets one up");
            }
        }
        match self.form {
            Form::Json => {
                writeln!(self.out, "{line}")?;
                self.out.flush()?;
                Ok(())
            }
            Form::Text => self.readable(frame),
        }
    }

    fn readable(&mut self, frame: &Frame) -> Result<(), Failure> {
        if self.in_reasoning && !matches!(frame, Frame::Reasoning { .. }) {
            self.in_reasoning = false;
            writeln!(std::io::stderr())?;
        }
        match frame {
            Frame::Delta { text, .. } => {
                self.shown.push_str(text);
                self.text(text)
            }
            Frame::Message { content, truncated, whole, at_output_limit, .. } => {
                self.message(content)?;
                if *at_output_limit {
                    self.talk(words::AT_OUTPUT_LIMIT);
                }
                if *truncated {
                    self.talk(format_args!("cut here: {}", whole.as_deref().unwrap_or("ctx history has it")));
                }
                Ok(())
            }
            Frame::ToolCall { .. } | Frame::ToolResult { .. } => self.call(frame),
            Frame::Retrying { message, attempt, attempts_max, wait_ms, caller, .. } => {
                let who = words::of_caller(caller.as_deref());
                let wait = waits::retrying(message, *attempt, *attempts_max, *wait_ms);
                self.talk(format_args!("{who}{wait}"));
                Ok(())
            }
            Frame::Notice { message, caller, .. } => {
                let who = words::of_caller(caller.as_deref());
                self.talk(format_args!("{who}{}", output::one_line(message)));
                Ok(())
            }
            Frame::Queued { session, limit, .. } => {
                self.talk(waits::queued(&format!("{}/{session}", self.agent), *limit));
                Ok(())
            }
            // Shown by itself, when its turn comes.
            _ if super::asked::asks(frame) && self.takes_answers() => Ok(()),
            Frame::Paused { session, reason, .. } => {
                self.talk(waits::paused(&format!("{}/{session}", self.agent), reason.as_deref()));
                Ok(())
            }
            Frame::Approval { session, approval, tool, subject, diff, .. } => {
                let named = format!("{}/{session}", self.agent);
                if let Some(diff) = diff {
                    self.talk(crate::render::diff::text(diff, "  ", self.paint).trim_end());
                }
                self.talk(waits::asks(&named, approval, tool, subject.as_deref()));
                Ok(())
            }
            Frame::Error { code, message, .. } => {
                let said = format!("{} {} ({code})", self.paint.red("error:"), output::plain(message));
                self.talk(said);
                Ok(())
            }
            Frame::Done { status: DoneStatus::Cancelled, .. } => {
                self.talk("cancelled");
                Ok(())
            }
            Frame::Reasoning { text, .. } => self.reasoning(text),
            Frame::Done { status: DoneStatus::Ok | DoneStatus::Error, .. }
            | Frame::Start { .. }
            | Frame::Usage { .. }
            | Frame::Pong {} => Ok(()),
        }
    }

    /// A call of a tool, or what it gave.
    fn call(&mut self, frame: &Frame) -> Result<(), Failure> {
        match frame {
            Frame::ToolCall { name, input, caller, .. } => {
                let who = words::of_caller(caller.as_deref());
                self.aside(&format!("{who}→ {name} {}", words::shorten(&input.to_string(), TOOL_MAX)))
            }
            // The one that a script has to know of, to be sent again with an answer.
            Frame::ToolResult { output, .. } if output.contains(ctx_agent::tool::NOBODY_TO_ASK) => {
                self.talk(format_args!("denied: {}", output::one_line(output)));
                Ok(())
            }
            Frame::ToolResult { status, output, diff, caller, .. } => {
                let who = words::of_caller(caller.as_deref());
                // The diff is shown by itself.
                let said = if diff.is_some() { output.lines().next().unwrap_or_default() } else { output };
                self.aside(&format!("{who}← {status} {}", words::shorten(said, TOOL_MAX)))?;
                if let Some(diff) = diff.as_ref().filter(|_| self.shows_work) {
                    output::say(crate::render::diff::text(diff, "  ", self.paint).trim_end());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What the model thinks, for who watches it work.
    fn reasoning(&mut self, text: &str) -> Result<(), Failure> {
        if self.shows_work {
            self.end_line()?;
            write!(std::io::stderr(), "{}", self.paint.dim(&output::plain(text)))?;
            self.in_reasoning = true;
        }
        Ok(())
    }

    /// A finished message: what its deltas have shown already is not shown again.
    fn message(&mut self, content: &[Content]) -> Result<(), Failure> {
        let mut whole = String::new();
        for Content::Text { text } in content {
            whole.push_str(text);
        }
        let shown = std::mem::take(&mut self.shown);
        match whole.strip_prefix(shown.as_str()) {
            Some(rest) => self.text(rest)?,
            // Some deltas were lost with a connection: better twice than not at all.
            None => {
                self.end_line()?;
                self.text(&whole)?;
            }
        }
        self.end_line()
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        if self.on_terminal {
            self.out.write_all(output::plain(text).as_bytes())?;
        } else {
            self.out.write_all(text.as_bytes())?;
        }
        self.out.flush()?;
        self.at_line_start = text.ends_with('\n');
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if !self.at_line_start {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
            self.at_line_start = true;
        }
        Ok(())
    }

    /// What the agent does besides talking: for a person who watches.
    fn aside(&mut self, text: &str) -> Result<(), Failure> {
        self.end_line()?;
        if self.shows_work {
            output::say(self.paint.dim(text));
        }
        Ok(())
    }

    /// A line of talk on stderr.
    pub fn talk(&mut self, text: impl std::fmt::Display) {
        // Only the look suffers if stdout is gone; whoever writes to it next notices.
        let _ = self.end_line();
        output::say(text);
    }

    /// A line of data on stdout.
    pub fn data(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.out, "{text}")?;
        Ok(())
    }

    /// The run is over.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.shown.clear();
        self.end_line()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn shown(on_terminal: bool, frames: &[Frame]) -> String {
        let out = Shared::default();
        let mut show = Show { out: Box::new(out.clone()), on_terminal, ..Show::new(Form::Text, "coder") };
        for frame in frames {
            show.frame(frame, "").unwrap();
        }
        show.finish().unwrap();
        String::from_utf8(out.0.take()).unwrap()
    }

    fn delta(text: &str) -> Frame {
        Frame::Delta { id: "1.1".into(), run: "r".into(), session: "default".into(), text: text.into() }
    }

    fn message(text: &str) -> Frame {
        Frame::Message {
            id: "2.0".into(),
            run: "r".into(),
            session: "default".into(),
            role: "assistant".into(),
            content: vec![Content::Text { text: text.into() }],
            truncated: false,
            whole: None,
            at_output_limit: false,
        }
    }

    #[test]
    fn a_message_is_not_shown_again_after_its_deltas() {
        assert_eq!(shown(false, &[delta("hel"), delta("lo"), message("hello")]), "hello\n");
        assert_eq!(shown(false, &[message("hello\n")]), "hello\n");
        assert_eq!(shown(false, &[delta("a"), message("a"), delta("b"), message("b")]), "a\nb\n");
    }

    #[test]
    fn what_was_lost_with_a_connection_comes_with_the_message() {
        assert_eq!(shown(false, &[delta("hel"), message("hello")]), "hello\n");
        assert_eq!(shown(false, &[delta("lo"), message("hello")]), "lo\nhello\n");
    }

    #[test]
    fn a_terminal_is_kept_from_escape_sequences_and_a_pipe_gets_the_bytes() {
        assert_eq!(shown(true, &[message("\x1b[31mred")]), "\u{fffd}[31mred\n");
        assert_eq!(shown(false, &[message("\x1b[31mred")]), "\x1b[31mred\n");
    }
}
