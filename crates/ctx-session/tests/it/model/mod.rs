//! The model that random scripts are held against. It knows far less than the rules: words for states, lists of
//! names, and for every checkpoint a copy of the conversation as it was.

mod control;

use std::collections::HashMap;

use ctx_session::{Code, StateName};

use crate::ops::Op;

/// The prompt that every run of these worlds begins with.
const PROMPT: &str = "bb22";
/// The limits that the worlds of the properties have.
pub const COMPACTIONS: usize = 4;
pub const AGGREGATED: usize = 2;

/// What a person would keep on a slip of paper about a session.
#[derive(Debug, Default)]
pub struct Model {
    pub state: Option<StateName>,
    /// The word for each run's state, oldest first.
    pub runs: Vec<&'static str>,
    /// Whether the newest run is a compaction that was asked for.
    is_compaction: bool,
    client_ids: HashMap<u8, usize>,
    pub open_tools: Vec<String>,
    pub pending: Vec<String>,
    tools: usize,
    answers: usize,
    notes: usize,
    /// The model has come to its end in the newest run.
    answered: bool,
    pub attached: Option<u8>,
    pub archived: bool,
    pub bound: Option<u8>,
    /// The messages that count, in the order in which a model is shown them.
    pub talk: Vec<String>,
    /// Those of them that no compaction takes, and maybe some that do not count any more.
    pub pins: Vec<String>,
    pub checkpoints: Vec<Checkpoint>,
    pub paused: Option<usize>,
    pub compactions: Vec<Compaction>,
    pub aggregated: usize,
    pub approvals: Vec<Approval>,
    pub asked: usize,
}

#[derive(Debug)]
pub struct Checkpoint {
    /// What counted when it was made.
    pub talk: Vec<String>,
    hash: &'static str,
    /// The compaction that waits, or waited, here.
    compaction: Option<usize>,
    pub resumed: bool,
    pub rolled_back: bool,
    /// How many checkpoints there were when it was.
    pub superseded: Option<usize>,
}

#[derive(Debug)]
pub struct Compaction {
    gone: Vec<String>,
    summary: Option<&'static str>,
    pub state: &'static str,
    flag: &'static str,
    /// How many checkpoints there were when it was.
    pub rolled_back: Option<usize>,
    /// How many checkpoints there were when it took effect.
    since: usize,
    by_hand: bool,
}

#[derive(Debug)]
pub struct Approval {
    pub name: String,
    tool: String,
    run: usize,
    pub is_open: bool,
}

/// What the model says comes of a command.
#[derive(Debug, PartialEq)]
pub enum Expected {
    Refused(Code),
    /// Nothing is written.
    NoChange,
    Written,
    /// The run that a client id began earlier, counted from zero.
    Repeated(usize),
}

use Expected::{NoChange, Refused, Written};

impl Model {
    pub fn state(&self) -> StateName {
        self.state.unwrap_or(StateName::Idle)
    }

    fn is_over(&self) -> bool {
        matches!(self.state(), StateName::Ended | StateName::Failed)
    }

    /// Whether the newest run is open: it goes on, waits or is paused.
    fn has_run(&self) -> bool {
        self.runs.last().is_some_and(|word| ["pending", "running"].contains(word))
    }

    /// Whether a loop works on the newest run, if only to read what was in flight.
    fn is_worked_on(&self) -> bool {
        matches!(self.state(), StateName::Running | StateName::Paused) && self.has_run()
    }

    pub fn next_tools(&self, count: usize) -> Vec<String> {
        // A loop that goes on begins with what was held back.
        if self.pending.is_empty() {
            (1..=count).map(|n| format!("t{}", self.tools + n)).collect()
        } else {
            self.pending.clone()
        }
    }

    /// The messages whose bit is set, of those that count; of the last exchange only when the highest bit is.
    pub fn picked(&self, pick: u16) -> Vec<String> {
        let last = self.last_exchange();
        let may_go = |name: &String| pick & 0x8000 != 0 || !last.contains(name);
        let is_picked = |at: usize| pick & (1 << (at % 15)) != 0;
        let picked = self.talk.iter().enumerate().filter(|(at, name)| is_picked(*at) && may_go(name));
        picked.map(|(_, name)| name.clone()).collect()
    }

    /// The newest message of the user, and what a model is shown after it.
    fn last_exchange(&self) -> &[String] {
        let begin = self.talk.iter().rposition(|name| name.starts_with('m'));
        begin.map_or(&[], |begin| &self.talk[begin..])
    }

    fn say(&mut self, name: String) {
        self.talk.push(name);
    }

    fn say_answer(&mut self, is_text: bool) {
        self.answers += 1;
        if is_text {
            self.say(format!("a{}", self.answers));
        }
    }

    /// Brings the open run to its end, if there is one, and the session to a state.
    fn settle(&mut self, word: &'static str, partial: bool, state: StateName) -> Expected {
        if self.has_run() {
            if partial {
                self.say_answer(true);
            }
            *self.runs.last_mut().unwrap() = word;
        }
        self.interrupt();
        self.pending.clear();
        self.paused = None;
        self.state = Some(state);
        Written
    }

    fn interrupt(&mut self) {
        self.open_tools.clear();
        self.approvals.iter_mut().for_each(|approval| approval.is_open = false);
    }

    fn begin_run(&mut self, word: &'static str, by_hand: bool) {
        self.runs.push(word);
        self.is_compaction = by_hand;
        self.answered = false;
        self.state = Some(if word == "pending" { StateName::Queued } else { StateName::Running });
    }

    pub fn expect(&mut self, op: &Op) -> Expected {
        match op {
            Op::Post { full, client_id } => self.post(*full, *client_id),
            Op::Resume { .. } | Op::Discard => self.queue(op),
            Op::Begin | Op::Think | Op::Say { .. } | Op::Tools { .. } | Op::ToolDone { .. } => {
                self.progress(op)
            }
            Op::Finish { outcome, run } => self.finish(outcome, *run),
            Op::Cancel { run, partial } => self.cancel(*run, *partial),
            Op::Pause => self.pause(),
            Op::ModelPause { back } => self.model_pause(*back),
            Op::EditPrompt { back, hash } => self.edit_prompt(*back, hash),
            Op::ResumeAt { back, full } => self.resume_at(*back, *full),
            Op::Rollback { back, partial } => self.rollback(*back, *partial),
            Op::Compact { full } => self.compact(*full),
            Op::Compacted { pick, summary, proposed } => self.compacted(*pick, *summary, *proposed),
            Op::Approve { back, pick, summary, full } => self.approve_op(*back, *pick, *summary, *full),
            Op::Reject { back } => self.reject(*back),
            Op::Flag { back, flag } => self.flag(*back, flag),
            Op::Ask { back } => self.ask(*back),
            Op::Answer { back, how } => self.answer(*back, how),
            Op::Bind(_) | Op::Unbind | Op::Pin { .. } | Op::SetModel(_) if self.is_over() => {
                Refused(Code::Eshutdown)
            }
            Op::Bind(issue) => self.bind(Some(*issue)),
            Op::Unbind => self.bind(None),
            Op::Pin { back, on } => self.pin(*back, *on),
            // Whether the model changes is left to the tests of settings.
            Op::Rename(_) | Op::SetModel(_) => Written,
            Op::Attach { connection, takeover } => self.attach(*connection, *takeover),
            Op::Detach { connection } if self.attached == Some(*connection) => {
                self.attached = None;
                Written
            }
            Op::Detach { .. } => NoChange,
            Op::Archive(archived) => self.archive(*archived),
            Op::End if self.state() == StateName::Ended => Refused(Code::Eshutdown),
            Op::End => {
                self.attached = None;
                self.turn_down();
                self.settle("cancelled", false, StateName::Ended)
            }
            Op::Fail if self.is_over() => NoChange,
            Op::Fail => {
                self.attached = None;
                self.turn_down();
                self.settle("failed", false, StateName::Failed)
            }
            Op::Recover => self.recover(),
            Op::Restart => NoChange,
            Op::Apt { .. } => self.expect(&op.at(self)),
        }
    }

    fn post(&mut self, full: bool, client_id: Option<u8>) -> Expected {
        if let Some(run) = client_id.and_then(|id| self.client_ids.get(&id)) {
            return Expected::Repeated(*run);
        }
        match self.state() {
            StateName::Idle => {
                self.archived = false;
                client_id.map(|id| self.client_ids.insert(id, self.runs.len()));
                self.begin_run(if full { "pending" } else { "running" }, false);
                self.say(format!("m{}", self.runs.len()));
                Written
            }
            StateName::Running | StateName::Queued | StateName::Paused => Refused(Code::Ebusy),
            StateName::Ended | StateName::Failed => Refused(Code::Eshutdown),
        }
    }

    fn queue(&mut self, op: &Op) -> Expected {
        match (self.state(), op) {
            (StateName::Queued, Op::Discard) => self.discard(),
            (StateName::Queued, Op::Resume { full: false }) => {
                *self.runs.last_mut().unwrap() = "running";
                self.state = Some(StateName::Running);
                Written
            }
            (StateName::Queued | StateName::Running | StateName::Paused, _) => Refused(Code::Ebusy),
            (StateName::Idle, _) => Refused(Code::Enoent),
            (StateName::Ended | StateName::Failed, _) => Refused(Code::Eshutdown),
        }
    }

    fn discard(&mut self) -> Expected {
        self.talk.pop();
        self.settle("cancelled", false, StateName::Idle)
    }

    fn progress(&mut self, op: &Op) -> Expected {
        if !self.is_worked_on() {
            return NoChange;
        }
        match op {
            Op::Begin => self.answered = false,
            Op::Say { what } => {
                self.say_answer(*what != "text= calls");
                self.answered = !what.contains("calls");
            }
            Op::Tools { count } => return self.call_tools(*count),
            Op::ToolDone { back } => {
                let Some(at) = self.open_tool(*back) else { return Refused(Code::Enoent) };
                self.open_tools.remove(at);
            }
            _ => {}
        }
        Written
    }

    fn open_tool(&self, back: usize) -> Option<usize> {
        self.open_tools.len().checked_sub(back + 1)
    }

    fn call_tools(&mut self, count: usize) -> Expected {
        let names = self.next_tools(count);
        let is_new = self.pending.is_empty();
        self.tools += if is_new { count } else { 0 };
        if self.state() == StateName::Paused {
            self.pending = names;
            return if is_new { Written } else { NoChange };
        }
        self.pending.clear();
        self.answered = false;
        for name in names {
            self.open_tools.push(name.clone());
            self.say(name);
        }
        Written
    }

    /// The run that a script means: the one it names, or the newest.
    fn is_current(&self, run: Option<usize>) -> bool {
        run.is_none_or(|run| run == self.runs.len()) && self.is_worked_on()
    }

    fn finish(&mut self, outcome: &'static str, run: Option<usize>) -> Expected {
        let word = outcome.split(' ').next().unwrap();
        if !self.is_current(run) || (self.state() == StateName::Paused && word != "cancelled") {
            return NoChange;
        }
        self.settle(word, outcome.contains("partial"), StateName::Idle)
    }

    fn cancel(&mut self, run: Option<usize>, partial: bool) -> Expected {
        if run.unwrap_or(self.runs.len()) > self.runs.len() || self.runs.is_empty() {
            return Refused(Code::Enoent);
        }
        let is_newest = run.is_none_or(|run| run == self.runs.len());
        match self.state() {
            StateName::Queued if is_newest => self.discard(),
            StateName::Paused if self.is_current(run) => self.settle("cancelled", partial, StateName::Idle),
            _ => NoChange,
        }
    }

    pub fn newest_but(&self, back: usize) -> Option<&str> {
        self.talk.iter().rev().nth(back).map(String::as_str)
    }

    fn pin(&mut self, back: usize, on: bool) -> Expected {
        let Some(name) = self.newest_but(back).map(str::to_owned) else { return Refused(Code::Enoent) };
        let was = self.pins.contains(&name);
        self.pins.retain(|pin| *pin != name);
        if on {
            self.pins.push(name);
        }
        if was == on { NoChange } else { Written }
    }

    fn bind(&mut self, issue: Option<u8>) -> Expected {
        let same = self.bound == issue;
        self.bound = issue;
        if same { NoChange } else { Written }
    }

    fn attach(&mut self, connection: u8, takeover: bool) -> Expected {
        match self.attached {
            Some(old) if old == connection => NoChange,
            Some(_) if !takeover => Refused(Code::Ebusy),
            Some(_) | None => {
                self.attached = Some(connection);
                Written
            }
        }
    }

    fn archive(&mut self, archived: bool) -> Expected {
        match self.state() {
            _ if self.archived == archived => NoChange,
            StateName::Running | StateName::Queued | StateName::Paused => Refused(Code::Ebusy),
            StateName::Idle | StateName::Ended | StateName::Failed => {
                self.archived = archived;
                Written
            }
        }
    }

    fn recover(&mut self) -> Expected {
        let detached = self.attached.take().is_some();
        if self.state() == StateName::Running {
            let is_answered = self.answered && self.pending.is_empty() && self.open_tools.is_empty();
            let word = if is_answered { "done" } else { "failed" };
            return self.settle(word, false, StateName::Idle);
        }
        let held = !self.open_tools.is_empty() || self.approvals.iter().any(|approval| approval.is_open);
        self.interrupt();
        if detached || held { Written } else { NoChange }
    }
}
