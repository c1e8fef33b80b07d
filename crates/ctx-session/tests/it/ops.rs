//! Random commands: what a script of the properties may say, and how often.

use ctx_session::StateName;
use proptest::prelude::*;
use proptest::sample::select;

use crate::model::Model;

/// A line of a random script. [`Op::line`] is its form in the script, so that a failure reads as one.
///
/// `back` counts from the newest of its kind; `pick` takes the messages whose bit is set, those of the last exchange
/// only where its highest bit is too.
#[derive(Debug, Clone)]
pub enum Op {
    Post {
        full: bool,
        client_id: Option<u8>,
    },
    Resume {
        full: bool,
    },
    Discard,
    Begin,
    Say {
        what: &'static str,
    },
    Think,
    Tools {
        count: usize,
    },
    ToolDone {
        back: usize,
    },
    Finish {
        outcome: &'static str,
        run: Option<usize>,
    },
    Cancel {
        run: Option<usize>,
        partial: bool,
    },
    Pause,
    ModelPause {
        back: usize,
    },
    EditPrompt {
        back: usize,
        hash: &'static str,
    },
    ResumeAt {
        back: usize,
        full: bool,
    },
    Rollback {
        back: usize,
        partial: bool,
    },
    Compact {
        full: bool,
    },
    Compacted {
        pick: u16,
        summary: bool,
        proposed: bool,
    },
    Approve {
        back: usize,
        pick: Option<u16>,
        summary: Option<&'static str>,
        full: bool,
    },
    Reject {
        back: usize,
    },
    Flag {
        back: usize,
        flag: &'static str,
    },
    Ask {
        back: usize,
    },
    Answer {
        back: usize,
        how: &'static str,
    },
    Bind(u8),
    Unbind,
    Pin {
        back: usize,
        on: bool,
    },
    Rename(u8),
    SetModel(&'static str),
    Attach {
        connection: u8,
        takeover: bool,
    },
    Detach {
        connection: u8,
    },
    Archive(bool),
    End,
    Fail,
    Recover,
    Restart,
    /// One that makes sense where the session stands.
    Apt {
        choice: u8,
        back: usize,
        pick: u16,
    },
}

/// `k3`, when there are four of them and one is to go back by one.
fn back_from(letter: char, count: usize, back: usize) -> String {
    format!("{letter}{}", count.checked_sub(back).filter(|n| *n > 0).unwrap_or(99))
}

impl Op {
    /// What is asked where the session stands as the model says.
    pub fn at(&self, model: &Model) -> Op {
        let Op::Apt { choice, back, pick } = self else { return self.clone() };
        let (back, pick) = (*back, *pick);
        let choices = match (model.state(), model.waiting()) {
            (StateName::Idle, _) => apt_when_idle(back),
            (StateName::Running, _) => apt_when_running(back, pick),
            (StateName::Queued, _) => vec![Op::Resume { full: false }],
            (StateName::Paused, None) => apt_when_paused(back),
            (StateName::Paused, Some(_)) => apt_when_compacting(back, pick),
            (StateName::Ended | StateName::Failed, _) => vec![Op::Flag { back, flag: "bad" }],
        };
        choices[usize::from(*choice) % choices.len()].clone()
    }

    pub fn line(&self, model: &Model) -> String {
        let limit = |full: bool| if full { " at-limit" } else { "" };
        let cut = |partial: bool| if partial { " partial" } else { "" };
        let named = |run: &Option<usize>| run.map_or(String::new(), |run| format!(" r{run}"));
        let tool =
            |back: usize| model.open_tools.iter().rev().nth(back).cloned().unwrap_or("t9999".to_owned());
        match self {
            Op::Post { full, client_id } => {
                format!("post{}{}", limit(*full), client_id.map_or(String::new(), |id| format!(" id=k{id}")))
            }
            Op::Resume { full } => format!("resume{}", limit(*full)),
            Op::Discard => "discard".to_owned(),
            Op::Begin => "progress".to_owned(),
            Op::Say { what } => format!("progress {what}"),
            Op::Think => "progress thought=hm".to_owned(),
            Op::Tools { count } => format!("progress tool={}", model.next_tools(*count).join(",")),
            Op::ToolDone { back } => format!("progress tool-done={}", tool(*back)),
            Op::Finish { outcome, run } => format!("finish {outcome}{}", named(run)),
            Op::Cancel { run, partial } => format!("cancel{}{}", named(run), cut(*partial)),
            Op::Pause => "pause".to_owned(),
            Op::ModelPause { back } => format!("model-pause {}", tool(*back)),
            Op::EditPrompt { back, hash } => {
                format!("edit-prompt {} hash={hash}", self.checkpoint(model, *back))
            }
            Op::ResumeAt { back, full } => {
                format!("resume {}{}", self.checkpoint(model, *back), limit(*full))
            }
            Op::Rollback { back, partial } => {
                format!("rollback {}{}", self.checkpoint(model, *back), cut(*partial))
            }
            Op::Compact { full } => format!("compact{}", limit(*full)),
            Op::Compacted { pick, summary, proposed } => {
                let (verb, gone) = (if *proposed { "propose" } else { "compacted" }, model.picked(*pick));
                let summary = if *summary { " summary=short" } else { "" };
                let elided = if *pick & 1 == 0 { " elided=all" } else { "" };
                format!("{verb} x{} gone={}{summary}{elided}", model.compactions.len() + 1, gone.join(","))
            }
            Op::Approve { back, pick, summary, full } => {
                let gone =
                    pick.map_or(String::new(), |pick| format!(" gone={}", model.picked(pick).join(",")));
                let summary = summary.map_or(String::new(), |text| format!(" summary={text}"));
                format!("approve {}{gone}{summary}{}", self.compaction(model, *back), limit(*full))
            }
            Op::Reject { back } => format!("reject {}", self.compaction(model, *back)),
            Op::Flag { back, flag } => format!("flag {} {flag}", self.compaction(model, *back)),
            Op::Ask { back } => format!("ask p{} {}", model.asked + 1, tool(*back)),
            Op::Answer { back, how } => format!("{how} {}", back_from('p', model.asked, *back)),
            Op::Bind(issue) => format!("bind i{issue}"),
            Op::Unbind => "unbind".to_owned(),
            Op::Pin { back, on } => {
                format!("{} {}", if *on { "pin" } else { "unpin" }, model.newest_but(*back).unwrap_or("m99"))
            }
            Op::Rename(title) => format!("rename title-{title}"),
            Op::SetModel(model) => format!("set_model {model}"),
            Op::Attach { connection, takeover } => {
                format!("attach c{connection}{}", if *takeover { " takeover" } else { "" })
            }
            Op::Detach { connection } => format!("detach c{connection}"),
            Op::Archive(true) => "archive".to_owned(),
            Op::Archive(false) => "unarchive".to_owned(),
            Op::End => "end".to_owned(),
            Op::Fail => "fail".to_owned(),
            Op::Recover => "recover".to_owned(),
            Op::Restart => "restart".to_owned(),
            Op::Apt { .. } => self.at(model).line(model),
        }
    }

    fn checkpoint(&self, model: &Model, back: usize) -> String {
        back_from('k', model.checkpoints.len(), back)
    }

    fn compaction(&self, model: &Model, back: usize) -> String {
        back_from('x', model.compactions.len(), back)
    }
}

fn apt_when_idle(back: usize) -> Vec<Op> {
    let post = Op::Post { full: false, client_id: None };
    let pin = Op::Pin { back, on: true };
    vec![
        post.clone(),
        post.clone(),
        post,
        Op::Rollback { back, partial: false },
        Op::Compact { full: false },
        pin,
    ]
}

fn apt_when_running(back: usize, pick: u16) -> Vec<Op> {
    let compacted = |summary, proposed| Op::Compacted { pick, summary, proposed };
    vec![
        Op::Say { what: "text=hi calls" },
        Op::Say { what: "text=hi" },
        Op::Tools { count: 2 },
        Op::ToolDone { back },
        Op::Ask { back },
        Op::Answer { back, how: "allow" },
        Op::Pause,
        Op::ModelPause { back },
        compacted(true, false),
        compacted(false, false),
        compacted(true, true),
        Op::Finish { outcome: "done", run: None },
        Op::Finish { outcome: "done", run: None },
    ]
}

fn apt_when_paused(back: usize) -> Vec<Op> {
    let resume = Op::ResumeAt { back: 0, full: false };
    vec![
        resume.clone(),
        resume.clone(),
        resume,
        Op::EditPrompt { back: 0, hash: "cc33" },
        Op::Say { what: "text=hi calls" },
        Op::Say { what: "text=hi" },
        Op::Tools { count: 1 },
        Op::ToolDone { back },
        Op::Rollback { back, partial: true },
        Op::Cancel { run: None, partial: true },
    ]
}

fn apt_when_compacting(back: usize, pick: u16) -> Vec<Op> {
    let approve = |pick, summary| Op::Approve { back: 0, pick, summary, full: false };
    vec![
        approve(None, None),
        approve(None, Some("other")),
        approve(Some(pick), None),
        Op::ResumeAt { back: 0, full: false },
        Op::EditPrompt { back: 0, hash: "cc33" },
        Op::Reject { back: 0 },
        Op::Rollback { back, partial: false },
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let apt =
        (any::<u8>(), 0..4_usize, pick()).prop_map(|(choice, back, pick)| Op::Apt { choice, back, pick });
    prop_oneof![120 => apt, 30 => of_a_run(), 30 => of_control(), 18 => of_the_session()]
}

fn pick() -> impl Strategy<Value = u16> {
    (0..0x8000_u16, prop::bool::weighted(0.1)).prop_map(|(bits, last)| bits | u16::from(last) << 15)
}

fn of_a_run() -> impl Strategy<Value = Op> {
    let run = prop::option::weighted(0.2, 1..6_usize);
    prop_oneof![
        20 => (prop::bool::weighted(0.25), prop::option::weighted(0.3, 0..3_u8))
            .prop_map(|(full, client_id)| Op::Post { full, client_id }),
        6 => any::<bool>().prop_map(|full| Op::Resume { full }),
        2 => Just(Op::Discard),
        1 => Just(Op::Begin),
        10 => select(&["text=hi", "text=hi calls", "text= calls"][..]).prop_map(|what| Op::Say { what }),
        1 => Just(Op::Think),
        10 => (1..3_usize).prop_map(|count| Op::Tools { count }),
        8 => (0..2_usize).prop_map(|back| Op::ToolDone { back }),
        8 => (select(&["done", "failed", "cancelled", "cancelled partial"][..]), run.clone())
            .prop_map(|(outcome, run)| Op::Finish { outcome, run }),
        4 => (run, any::<bool>()).prop_map(|(run, partial)| Op::Cancel { run, partial }),
    ]
}

fn of_control() -> impl Strategy<Value = Op> {
    let full = || prop::bool::weighted(0.2);
    let pick =
        || (0..0x8000_u16, prop::bool::weighted(0.1)).prop_map(|(bits, last)| bits | u16::from(last) << 15);
    let summary = prop::option::of(select(&["other", ""][..]));
    prop_oneof![
        12 => Just(Op::Pause),
        3 => (0..2_usize).prop_map(|back| Op::ModelPause { back }),
        3 => (0..2_usize, select(&["bb22", "cc33"][..])).prop_map(|(back, hash)| Op::EditPrompt { back, hash }),
        10 => (select(&[0, 0, 0, 1][..]), full()).prop_map(|(back, full)| Op::ResumeAt { back, full }),
        8 => (0..4_usize, any::<bool>()).prop_map(|(back, partial)| Op::Rollback { back, partial }),
        4 => full().prop_map(|full| Op::Compact { full }),
        12 => (pick(), any::<bool>(), prop::bool::weighted(0.4))
            .prop_map(|(pick, summary, proposed)| Op::Compacted { pick, summary, proposed }),
        6 => (select(&[0, 0, 0, 1][..]), prop::option::weighted(0.4, pick()), summary, full())
            .prop_map(|(back, pick, summary, full)| Op::Approve { back, pick, summary, full }),
        2 => (0..2_usize).prop_map(|back| Op::Reject { back }),
        2 => (0..4_usize, select(&["good", "bad", "none"][..])).prop_map(|(back, flag)| Op::Flag { back, flag }),
        4 => (0..2_usize).prop_map(|back| Op::Ask { back }),
        8 => (0..8_usize, prop::bool::weighted(0.7)).prop_map(|(back, on)| Op::Pin { back, on }),
        4 => (0..3_usize, select(&["allow", "deny", "expire"][..]))
            .prop_map(|(back, how)| Op::Answer { back, how }),
    ]
}

fn of_the_session() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (1..3_u8).prop_map(Op::Bind),
        1 => Just(Op::Unbind),
        1 => any::<u8>().prop_map(Op::Rename),
        1 => select(&["a:b", "c:d", "none"][..]).prop_map(Op::SetModel),
        3 => (0..3_u8, any::<bool>()).prop_map(|(connection, takeover)| Op::Attach { connection, takeover }),
        2 => (0..3_u8).prop_map(|connection| Op::Detach { connection }),
        2 => any::<bool>().prop_map(Op::Archive),
        1 => prop_oneof![1 => Just(Op::End), 1 => Just(Op::Fail), 4 => Just(Op::Recover)],
        3 => Just(Op::Recover),
        3 => Just(Op::Restart),
    ]
}
