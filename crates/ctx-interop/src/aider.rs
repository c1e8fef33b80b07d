//! Aider: a chat in Markdown, `.aider.chat.history.md`, and what was typed, `.aider.input.history`, in the repository's root.
//!
//! There are no ids and no roles. Lines that Aider wrote itself end in two spaces: `#### ` begins a line of a prompt and
//! `> ` one of a notice. A reply may hold anything, also such lines, but without the two spaces. Times are local times of
//! an unknown zone and are taken for UTC.

use ctx_session::Timestamp;
use sha2::{Digest, Sha256};

use crate::event::{Finish, Tokens, Transcript, What};
use crate::gemini::hex;

const START: &str = "# aider chat started at ";

/// Reads a chat, with what was typed where that is known. `file` is its name in reports.
pub fn read(chat: &[u8], typed: Option<&[u8]>, file: &str) -> Transcript {
    let mut found = Transcript::default();
    let chat = String::from_utf8_lossy(chat);
    if let std::borrow::Cow::Owned(_) = &chat {
        let line = chat.lines().position(|line| line.contains('\u{fffd}')).unwrap_or_default();
        found.note_damage(file, line as u64 + 1, "not UTF-8; what cannot be read is marked in the text");
    }
    let typed = typed.map(|typed| inputs(&String::from_utf8_lossy(typed))).unwrap_or_default();
    let mut reader = Reader { found, typed: typed.into(), ..Reader::default() };
    let lines: Vec<&str> = chat.split('\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.iter().skip(at + 1).find(|line| !line.trim().is_empty());
        reader.line(line, next.is_some_and(|next| next.starts_with("> ")));
    }
    reader.end_reply();
    let mut found = reader.found;
    found.native_id =
        reader.first.map(|first| hex(&Sha256::digest(first)).chars().take(32).collect()).unwrap_or_default();
    found
}

/// What was typed, with its time.
fn inputs(history: &str) -> Vec<(Option<Timestamp>, String)> {
    let mut typed: Vec<(Option<Timestamp>, String)> = Vec::new();
    for line in history.split('\n') {
        if let Some(time) = line.strip_prefix("# ") {
            typed.push((parse_time(time), String::new()));
        } else if let (Some(text), Some((_, last))) = (line.strip_prefix('+'), typed.last_mut()) {
            if !last.is_empty() {
                last.push('\n');
            }
            last.push_str(text);
        }
    }
    typed
}

/// `2026-11-15 06:24:45`, with or without a fraction.
fn parse_time(text: &str) -> Option<Timestamp> {
    format!("{}Z", text.trim().replacen(' ', "T", 1)).parse().ok()
}

#[derive(Default)]
struct Reader {
    found: Transcript,
    typed: std::collections::VecDeque<(Option<Timestamp>, String)>,
    /// The first heading and prompt, which identify the chat also when its directory moves.
    first: Option<String>,
    heading: String,
    at: Option<Timestamp>,
    now: Now,
    prompt: Vec<String>,
    reply: Vec<String>,
    is_interrupted: bool,
    is_last_notice: bool,
    /// What the replies since the last start have cost.
    paid: f64,
}

/// What the lines belong to.
#[derive(Default, PartialEq, Clone, Copy)]
enum Now {
    #[default]
    Start,
    Prompt,
    Reply,
    /// A notice of several lines, of which only the first has a mark and the last its two spaces.
    LongNotice,
}

impl Reader {
    fn line(&mut self, line: &str, notices_follow: bool) {
        let was_notice = std::mem::replace(&mut self.is_last_notice, false);
        let is_own = line.ends_with("  ");
        if self.now == Now::LongNotice {
            if is_own {
                self.now = Now::Reply;
                self.is_last_notice = true;
            }
            return;
        }
        if let Some(time) = line.strip_prefix(START).filter(|_| notices_follow) {
            self.end_prompt();
            self.end_reply();
            self.now = Now::Start;
            self.heading = line.to_owned();
            self.paid = 0.0;
            self.at = parse_time(time).or(self.at);
            self.found.created = self.found.created.or(self.at);
            self.found.intact += 1;
        } else if let Some(text) = line.strip_prefix("#### ").filter(|_| is_own) {
            if self.now != Now::Prompt {
                self.end_reply();
            }
            self.now = Now::Prompt;
            self.prompt.push(text.trim_end_matches(' ').to_owned());
        } else if let Some(notice) = line.strip_prefix('>').filter(|_| is_own || was_notice) {
            self.end_prompt();
            self.notice(notice.trim());
            if is_own {
                self.is_last_notice = true;
            } else {
                self.now = Now::LongNotice;
            }
        } else {
            self.end_prompt();
            if self.now == Now::Reply {
                self.reply.push(line.to_owned());
            }
        }
    }

    fn end_prompt(&mut self) {
        if self.prompt.is_empty() {
            return;
        }
        self.now = Now::Reply;
        let stored = std::mem::take(&mut self.prompt).join("\n");
        // Separators that are no line feeds were written as line feeds; the input history has them.
        let same = |text: &str| plain(text) == plain(&stored);
        let known = self.typed.iter().take(50).position(|(_, text)| same(text));
        let exact = known.and_then(|at| self.typed.drain(..=at).next_back());
        if let Some((Some(at), _)) = exact {
            self.at = Some(at);
        }
        let text = exact.map_or(stored, |(_, text)| text);
        self.first.get_or_insert_with(|| format!("{}\n{text}", self.heading));
        self.found.intact += 1;
        self.is_interrupted = false;
        let is_command = text.starts_with('/') || text.starts_with('!');
        let what = if is_command { What::Injected { text } } else { What::User { text } };
        self.push(what);
    }

    fn push(&mut self, what: What) {
        let key = self.found.events.len().to_string();
        self.found.push(key, self.at, what);
    }

    fn end_reply(&mut self) {
        self.end_prompt();
        let text = std::mem::take(&mut self.reply).join("\n");
        let text = text.trim_matches(['\n', '\r']).to_owned();
        if text.trim().is_empty() {
            return;
        }
        let finish = if self.is_interrupted { Finish::Interrupted } else { Finish::Stop };
        let model = self.found.model.clone();
        self.push(What::Assistant { text, model, finish, tokens: None });
        if self.is_interrupted {
            self.push(What::Interrupted);
        }
    }

    fn notice(&mut self, notice: &str) {
        if notice.starts_with("^C") {
            self.is_interrupted = true;
            return;
        }
        self.end_reply();
        if let Some(version) = notice.strip_prefix("Aider v") {
            self.found.version = Some(version.to_owned());
        } else if let Some(model) = notice.strip_prefix("Main model: ").or(notice.strip_prefix("Model: ")) {
            self.found.model = model.split_whitespace().next().map(str::to_owned);
        } else if let Some(spent) = notice.strip_prefix("Tokens: ") {
            self.spend(spent);
        } else if notice.starts_with("litellm.") || notice.starts_with("The API provider") {
            self.push(What::Failed { message: notice.to_owned() });
        }
    }

    /// `2.6k sent, 8 received. Cost: $0.0066 message, $0.0066 session.`
    fn spend(&mut self, text: &str) {
        let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let before = |mark: &str| {
            let at = words.iter().position(|word| word.trim_end_matches('.') == mark)?;
            words.get(at.checked_sub(1)?).copied()
        };
        let dollars = |mark: &str| {
            let cost = before(mark)?.trim_start_matches('$').parse::<f64>().ok();
            cost.filter(|cost| cost.is_finite() && *cost >= 0.0)
        };
        let cost = dollars("message").map(|cost| {
            // Both are rounded; roundings must not add up to more than half a cent.
            let off = dollars("session").map_or(0.0, |sum| sum - self.paid - cost);
            if off.abs() > 0.005 { (cost + off).max(0.0) } else { cost }
        });
        self.paid += cost.unwrap_or_default();
        let tokens = Tokens {
            input: before("sent").and_then(count).unwrap_or_default(),
            output: before("received").and_then(count).unwrap_or_default(),
            ..Tokens::default()
        }
        .costing(cost);
        if let Some(cost) = cost {
            *self.found.cost.get_or_insert(0.0) += cost;
        }
        let texts = self.found.events.iter_mut().rev().map(|event| &mut event.what);
        let mut last = texts.skip_while(|what| matches!(what, What::Interrupted));
        match last.next() {
            Some(What::Assistant { tokens: slot @ None, .. }) => *slot = Some(tokens),
            _ => self.push(What::Step { model: self.found.model.clone(), tokens }),
        }
    }
}

/// A text with every separator of lines as a line feed, and no spaces at the ends of lines.
fn plain(text: &str) -> String {
    let is_separator = |c: char| {
        matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    text.split(is_separator).map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// `2.6k` is 2,600.
fn count(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix('k') {
        Some(number) => (number, 1_000.0),
        None => text.strip_suffix('M').map_or((text, 1.0), |number| (number, 1_000_000.0)),
    };
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && (0.0..1e12).contains(&number)).then_some((number * unit).round() as u64)
}
