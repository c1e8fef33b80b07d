//! Long histories: logs of many sessions as the daemon writes them, made without it.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use ctx_journal::{FileJournal, Journal, LogPath, Owner};
use ctx_session::record::{
    AssistantFinished, AssistantStarted, Context, FinishReason, MessageBody, RunBody, RunCreated,
    RunFinished, RunKind, SessionBody, SessionMeta, StateChanged, Trigger, Usage, User,
};
use ctx_session::{Body, IdSource, MessageId, Name, RunId, Scope, SessionId, StateName, Timestamp};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// When the first session began.
pub const START: u64 = 1_794_722_400_000;
/// The length of a message.
const TEXT_BYTES: usize = 580;

/// Words as common as in a language: few often, most seldom.
pub struct Words {
    state: u64,
}

impl Words {
    pub fn new(state: u64) -> Words {
        Words { state }
    }

    fn next(&mut self) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 12);
        while text.len() < bytes {
            let spread = self.next() % 16;
            let word = self.next() % (1 << spread).max(2);
            text.push_str(&format!("w{word:x} "));
        }
        text
    }
}

/// The first record of a session.
pub fn meta(ids: &mut IdSource, number: u64, now: Timestamp) -> Outcome<SessionMeta> {
    Ok(SessionMeta {
        session_id: SessionId(ids.next(now)),
        name: Name::new(&format!("s{number}"))?,
        scope: Scope::Private,
        space: None,
        owner: Owner::own().uid,
        agent: Some(Name::new("coder")?),
        project: Name::new("default")?,
        cwd: format!("/work/{}", number % 50),
        dir: None,
        workspace: None,
        provider: Some("debug".to_owned()),
        model: "debug:echo".to_owned(),
        title: None,
        client: None,
        origin: None,
        forked_from: None,
        dsl_hash: None,
        dsl_snapshot: None,
        requested: None,
        app: "bench".to_owned(),
    })
}

/// The commands of a run, as the daemon writes them: what was said and the run it starts, the beginning of the answer,
/// the answer, and the end.
pub fn run(ids: &mut IdSource, words: &mut Words, now: Timestamp, bytes: usize) -> [Vec<Body>; 4] {
    let turn_id = RunId(ids.next(now));
    let model = "debug:echo".to_owned();
    let usage = Usage { input: 100, output: 100, ..Usage::default() };
    let moved = |from, to, trigger| {
        Body::Session(SessionBody::StateChanged(StateChanged { from, to, trigger, by: None, limit: None }))
    };
    let user = User {
        turn_id,
        message_id: MessageId(ids.next(now)),
        client_id: None,
        text: words.text(bytes),
        images: Vec::new(),
    };
    let context = Context {
        turn_id,
        model: model.clone(),
        cwd: "/work".to_owned(),
        policy: Vec::new(),
        cage: None,
        sources: Vec::new(),
        prompts: Vec::new(),
        redact: None,
        approvals: None,
    };
    let message_id = MessageId(ids.next(now));
    let text = words.text(bytes);
    let said = AssistantFinished {
        turn_id,
        message_id,
        text,
        finish_reason: FinishReason::Stop,
        usage: Some(usage),
        caller: None,
    };
    [
        vec![
            Body::Message(MessageBody::User(user)),
            Body::Run(RunBody::Created(RunCreated {
                turn_id,
                kind: RunKind::Message,
                continues: None,
                strategy: None,
                wishes: ctx_session::record::RunWishes::default(),
            })),
            Body::Run(RunBody::Context(Box::new(context))),
            moved(StateName::Idle, StateName::Running, Trigger::MessagePosted),
        ],
        vec![Body::Message(MessageBody::AssistantStarted(AssistantStarted {
            turn_id,
            message_id,
            model,
            step: 1,
            caller: None,
        }))],
        vec![Body::Message(MessageBody::AssistantFinished(said))],
        vec![
            Body::Run(RunBody::Finished(RunFinished { turn_id, duration_ms: 5, usage, finish_reason: None })),
            moved(StateName::Running, StateName::Idle, Trigger::RunCompleted),
        ],
    ]
}

fn log_of(number: u64) -> Outcome<LogPath> {
    let uid = Owner::own().uid;
    Ok(LogPath::new(format!("home/{uid}/agent/coder/session/s{number}/events.jsonl"))?)
}

/// Makes the logs of so many sessions beneath a root, and nothing else; false where the root has some.
pub fn generate(root: &Path, sessions: u64, messages: u64) -> Outcome<bool> {
    std::fs::create_dir_all(root.join(".state"))?;
    if root.join("home").exists() {
        return Ok(false);
    }
    // As in every root that a daemon has made: one without it is taken over first, directory by directory.
    let layout = r#"{"layout":2,"taken_over":0,"at":"2026-11-15T00:00:00.000Z"}"#;
    std::fs::write(root.join(".state/layout"), layout)?;
    let mut ids = IdSource::new(7);
    let mut words = Words::new(42);
    for number in 0..sessions {
        let now = Timestamp::from_millis(START + number * 1_000);
        let mut commands =
            vec![vec![Body::Session(SessionBody::Meta(Box::new(meta(&mut ids, number, now)?)))]];
        for _ in 0..messages / 2 {
            commands.extend(run(&mut ids, &mut words, now, TEXT_BYTES));
        }
        write_log(root, &log_of(number)?, now, &commands)?;
    }
    Ok(true)
}

/// Through a journal in memory, which syncs nothing, onto the disk.
fn write_log(root: &Path, log: &LogPath, now: Timestamp, commands: &[Vec<Body>]) -> Outcome<()> {
    let journal = FileJournal::in_memory();
    let lines = |bodies: &[Body]| -> Vec<String> { bodies.iter().map(Body::to_json).collect() };
    let (first, rest) = commands.split_first().ok_or("a log needs a first record")?;
    let writer = journal.create(log, Owner::own(), now, &lines(first))?;
    for command in rest {
        writer.append_next(now, &lines(command))?;
    }
    let mut text = String::new();
    journal.read(log, 0, &mut |entry| {
        text.push_str(&entry.text);
        text.push('\n');
        ControlFlow::Continue(())
    })?;
    let path = root.join(log.as_str());
    std::fs::create_dir_all(path.parent().unwrap_or(root))?;
    Ok(std::fs::write(path, text)?)
}
