//! One session with its log, a clock that is told and ids that are fixed: what an engine is to the rules.

use std::collections::HashMap;

use ctx_session::command::{Admission, Interruption, PostMessage, RunContext};
use std::sync::Arc;

use ctx_session::conversation::{Conversation, Message};
use ctx_session::ledger::Ledger;
use ctx_session::record::{
    CheckpointBody, CompactionBody, LimitHit, LimitScope, MessageBody, PromptRef, RunWishes, SessionBody,
    Source,
};
use ctx_session::rules::{Create, Given, create};
use ctx_session::{
    Answer, Body, CallId, Command, Effect, IdSource, Limits, MessageId, Name, Record, Refusal, RunId, Scope,
    Session, SessionId, StateName, Timestamp, Ulid,
};

use crate::log;

/// The owner, and who asks for things.
pub const OWNER: u32 = 1000;
/// When every world begins: 2026-11-15T06:00:00Z.
pub const BEGIN_MS: u64 = 1_794_722_400_000;
/// How far the clock goes between two commands of a script.
pub const STEP_MS: u64 = 1_000;

/// What came of a command: its records are written, its effects are the test's to look at.
#[derive(Debug)]
pub struct Told {
    pub records: Vec<Body>,
    pub effects: Vec<Effect>,
    pub answer: Answer,
}

pub struct World {
    pub session: Session,
    pub records: Vec<Record>,
    pub now: Timestamp,
    pub ids: IdSource,
    pub limits: Limits,
    names: HashMap<Ulid, String>,
}

/// The messages that count after these records.
pub fn conversation(records: &[Record]) -> Vec<Arc<Message>> {
    let (mut conversation, mut ledger) = (Conversation::default(), Ledger::default());
    for record in records {
        conversation.apply(record);
        ledger.apply(record);
    }
    conversation.messages(&ledger)
}

impl World {
    /// A session that was just created.
    pub fn new() -> World {
        World::created_by(new_session())
    }

    pub fn created_by(new: Create) -> World {
        let decision = create(new);
        let now = Timestamp::from_millis(BEGIN_MS);
        let [Body::Session(SessionBody::Meta(meta))] = decision.records.as_slice() else {
            panic!("a log begins with session_meta alone: {decision:?}")
        };
        let session = Session::new((**meta).clone(), 0, now);
        let records = decision.records.into_iter().map(|body| Record { seq: 0, time: now, body }).collect();
        World {
            session,
            records,
            now,
            ids: IdSource::new(1),
            limits: Limits::default(),
            names: HashMap::new(),
        }
    }

    /// Decides a command and, as an engine does, writes its records and applies them.
    pub fn ask(&mut self, command: &Command) -> Result<Told, Refusal> {
        let mut given = Given { now: self.now, ids: &mut self.ids, limits: &self.limits };
        let decision = self.session.decide(command, &mut given)?;
        for body in &decision.records {
            let record = Record { seq: self.session.next_seq, time: self.now, body: body.clone() };
            self.session.apply(&record);
            self.name_what_is_new(&record.body);
            self.records.push(record);
        }
        Ok(Told { records: decision.records, effects: decision.effects, answer: decision.answer })
    }

    pub fn tick(&mut self) {
        self.now = Timestamp::from_millis(self.now.as_millis() + STEP_MS);
    }

    /// The daemon is gone and another one reads the log. What it does next is `recover`.
    pub fn restart(&mut self) {
        self.session = log::replay(&self.records);
        for record in self.records.clone() {
            self.name_what_is_new(&record.body);
        }
    }

    pub fn state(&self) -> StateName {
        self.session.state.name()
    }

    /// The run that goes on or waits, or else the newest one.
    pub fn run(&self) -> RunId {
        let current = self.session.current_run().or_else(|| self.session.runs().next_back());
        current.map_or(RunId(Ulid(0)), |run| run.id)
    }

    /// `r1` is the first run, `m1` its message, `k1` the first checkpoint, `n1` the first system note.
    pub fn name_of(&self, id: Ulid) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| small_name(id))
    }

    pub fn run_called(&self, name: &str) -> RunId {
        RunId(self.id_called(name))
    }

    /// The id that has this name, or that a script gives it.
    pub fn id_called(&self, name: &str) -> Ulid {
        let found = self.names.iter().find(|(_, known)| *known == name);
        found.map_or_else(|| small_id(name), |(id, _)| *id)
    }

    /// The messages that count, each once, as the ledger has them and as the conversation has them.
    pub fn counting(&self) -> Vec<String> {
        let mut names = Vec::new();
        for message in self.conversation() {
            let name = self.name_of(message.id);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    pub fn conversation(&self) -> Vec<Arc<Message>> {
        conversation(&self.records)
    }

    fn name_what_is_new(&mut self, body: &Body) {
        for (at, run) in self.session.runs().enumerate() {
            self.names.entry(run.id.0).or_insert_with(|| format!("r{}", at + 1));
            if let Some(message) = run.message_id {
                self.names.entry(message.0).or_insert_with(|| format!("m{}", at + 1));
            }
        }
        match body {
            Body::Checkpoint(CheckpointBody::Created(created)) => {
                self.name_next('k', created.checkpoint_id.0)
            }
            Body::Message(MessageBody::System(note)) => self.name_next('n', note.message_id.0),
            // The summary of `x3` is `s3`, as where the script makes its id up.
            Body::Compaction(CompactionBody::Approved(approved)) => {
                let name = self.name_of(approved.compaction_id.0).replace('x', "s");
                approved.summary_message_id.map(|id| self.names.insert(id.0, name));
            }
            _ => {}
        }
    }

    fn name_next(&mut self, letter: char, id: Ulid) {
        let number = self.names.values().filter(|name| name.starts_with(letter)).count() + 1;
        self.names.entry(id).or_insert_with(|| format!("{letter}{number}"));
    }
}

/// Ids that a script makes up itself: `t1`, `c2`, `a3`, by letter and number.
pub fn small_id(name: &str) -> Ulid {
    let letter = name.chars().next().map_or(0, u32::from);
    let number: u128 = name.get(1..).and_then(|digits| digits.parse().ok()).expect("a letter and a number");
    Ulid((u128::from(letter) << 32) | number)
}

fn small_name(id: Ulid) -> String {
    let letter = char::from_u32((id.0 >> 32) as u32).filter(char::is_ascii_lowercase);
    letter.map_or_else(|| id.to_string(), |letter| format!("{letter}{}", id.0 as u32))
}

pub fn call(name: &str) -> CallId {
    CallId(small_id(name))
}

pub fn message(name: &str) -> MessageId {
    MessageId(small_id(name))
}

pub fn new_session() -> Create {
    Create {
        id: SessionId("01KA32G4R0000000000000000S".parse().expect("a ULID")),
        name: Some(Name::of_session("default").expect("a name")),
        scope: Scope::Private,
        space: None,
        owner: OWNER,
        agent: Some(Name::new("coder").expect("a name")),
        project: Name::new("demo").expect("a name"),
        cwd: "/work".to_owned(),
        dir: None,
        workspace: None,
        model: "debug/echo".to_owned(),
        dsl: None,
        client: Some("cli".to_owned()),
        origin: None,
        requested: None,
        app: "ctx 0.1.0".to_owned(),
    }
}

pub fn granted() -> Admission {
    let context = RunContext {
        model: "debug/echo".to_owned(),
        cwd: "/work".to_owned(),
        policy: vec!["read".to_owned()],
        cage: Some("bwrap".to_owned()),
        sources: vec![Source {
            kind: "instructions".to_owned(),
            path: "/work/AGENTS.md".to_owned(),
            hash: "aa11".to_owned(),
            truncated: false,
            scope: None,
            error: None,
        }],
        prompts: vec![PromptRef { target: "primary".to_owned(), hash: "bb22".to_owned() }],
        redact: None,
        approvals: None,
    };
    let running = [
        LimitHit { scope: LimitScope::PerProject, running: 3, limit: 4 },
        LimitHit { scope: LimitScope::PerOperator, running: 7, limit: 16 },
    ];
    Admission::Granted { context, running }
}

pub fn full(scope: LimitScope) -> Admission {
    let limit = match scope {
        LimitScope::PerProject => 4,
        LimitScope::PerOperator => 16,
    };
    Admission::Full(LimitHit { scope, running: limit, limit })
}

pub fn post(text: &str, admission: Admission) -> PostMessage {
    let text = text.to_owned();
    PostMessage {
        text,
        images: Vec::new(),
        client_id: None,
        model_override: None,
        cwd: None,
        wishes: RunWishes::default(),
        admission,
        by: OWNER,
    }
}

pub fn recover() -> Command {
    Command::Recover { cause: Interruption::DaemonCrash, under_way: None }
}
