//! The registry entry of a project: every command in every state, and the log that tells it.

use ctx_session::project::{Compaction, Problem};
use ctx_session::project::{Project, ProjectBody, ProjectCommand, ProjectRecord, check_slug, invalid};
use ctx_session::record::Decoded;
use ctx_session::{Code, Name, Refusal, Timestamp};
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn slug() -> Name {
    Name::new("music").unwrap()
}

fn add(owner: u32) -> ProjectCommand {
    ProjectCommand::Add { directory: "/srv/music".to_owned(), owner, by: owner, plain: false }
}

fn trust(hash: &str) -> ProjectCommand {
    ProjectCommand::Trust { dsl_hash: hash.to_owned(), by: 1000 }
}

fn relocate(directory: &str) -> ProjectCommand {
    ProjectCommand::Relocate { directory: directory.to_owned(), by: 1000 }
}

fn remove(busy: usize) -> ProjectCommand {
    ProjectCommand::Remove { by: 1000, busy }
}

/// Decides and applies; the records as the journal gets them.
fn perform(project: &mut Project, command: &ProjectCommand) -> Result<Vec<String>, Refusal> {
    let bodies = project.decide(command)?;
    let lines = bodies.iter().map(ProjectBody::to_json).collect();
    for body in bodies {
        let seq = project.next_seq;
        project.apply(&ProjectRecord { seq, time: Timestamp::from_millis(1_000 + seq), body });
    }
    Ok(lines)
}

#[track_caller]
fn check(commands: &[ProjectCommand], expected: Expect) {
    let mut project = Project::new(slug());
    let mut said = String::new();
    for command in commands {
        let line = match perform(&mut project, command) {
            Ok(lines) => lines.join(" "),
            Err(refusal) => format!("{} {refusal}", refusal.code),
        };
        said.push_str(&line);
        said.push('\n');
    }
    expected.assert_eq(&said);
}

#[test]
fn an_agreement_holds_for_one_hash_and_one_user() {
    check(
        &[trust("aa11"), add(1000), trust("aa11"), trust("aa11"), trust("bb22")],
        expect![[r#"
            ENOENT no project music
            {"type":"project_added","project":"music","directory":"/srv/music","owner":1000,"by":1000}
            {"type":"project_trusted","dsl_hash":"aa11","by":1000}

            {"type":"project_trusted","dsl_hash":"bb22","by":1000}
        "#]],
    );
    let mut project = Project::new(slug());
    for command in [add(1000), trust("aa11")] {
        perform(&mut project, &command).unwrap();
    }
    assert!(project.trusts(1000, "aa11"));
    assert!(!project.trusts(1000, "bb22") && !project.trusts(1001, "aa11"));
}

#[test]
fn a_project_is_added_moved_removed_and_added_again() {
    check(
        &[add(1000), relocate("/srv/band"), relocate("/srv/band"), remove(0), add(1000)],
        expect![[r#"
            {"type":"project_added","project":"music","directory":"/srv/music","owner":1000,"by":1000}
            {"type":"project_moved","directory":"/srv/band","by":1000}

            {"type":"project_removed","by":1000}
            {"type":"project_added","project":"music","directory":"/srv/music","owner":1000,"by":1000}
        "#]],
    );
}

#[test]
fn what_does_not_fit_is_refused_and_writes_nothing() {
    check(
        &[
            remove(0),
            relocate("/x"),
            add(1000),
            add(1000),
            add(1001),
            remove(1),
            remove(2),
            remove(0),
            add(1001),
            relocate("/x"),
        ],
        expect![[r#"
            ENOENT no project music
            ENOENT no project music
            {"type":"project_added","project":"music","directory":"/srv/music","owner":1000,"by":1000}
            EEXIST the project music is registered; `ctx project ls` shows it
            EEXIST the name music is taken; give the project another id
            EBUSY 1 session runs or waits in music; cancel or end it first
            EBUSY 2 sessions run or wait in music; cancel or end them first
            {"type":"project_removed","by":1000}
            EEXIST the name music is taken; give the project another id
            ENOENT no project music
        "#]],
    );
    assert_eq!(check_slug(&Name::new("default").unwrap()).unwrap_err().code, Code::Eexist);
    assert!(check_slug(&slug()).is_ok());
}

#[test]
fn records_read_back_and_strangers_are_passed_over() {
    for command in [add(7), relocate("/a b/ü"), remove(0)] {
        let mut project = Project::new(slug());
        if !matches!(command, ProjectCommand::Add { .. }) {
            perform(&mut project, &add(7)).unwrap();
        }
        for body in project.decide(&command).unwrap() {
            let line = body.to_json();
            let kind = line.split('"').nth(3).unwrap();
            assert_eq!(ProjectBody::decode(kind, &line), Decoded::Known(body));
        }
    }
    assert_eq!(ProjectBody::decode("issue_archived", "{}"), Decoded::Unknown);
    assert!(matches!(ProjectBody::decode("project_added", "{}"), Decoded::Malformed(_)));
}

#[test]
fn an_invalid_project_says_where_and_how_many() {
    let problem = |line| Problem { file: "f".to_owned(), line, column: 2, message: "wrong".to_owned() };
    let refusal = invalid("music", &[problem(1), problem(2), problem(3)]);
    assert_eq!(refusal.code, Code::Ebadmsg);
    assert_eq!(refusal.message, "the project music is invalid: f:1:2: wrong (and 2 more problems)");
    assert_eq!(refusal.problems.len(), 3);
    assert_eq!(invalid("music", &[problem(1)]).message, "the project music is invalid: f:1:2: wrong");
}

#[test]
fn compaction_has_the_defaults_of_the_design() {
    assert_eq!(
        serde_json::to_string(&Compaction::default()).unwrap(),
        r#"{"upper":0.85,"lower":0.6,"strategy":"summarize"}"#
    );
}

proptest! {
    #[test]
    fn replaying_the_log_gives_the_project(commands in prop::collection::vec(0..6u8, 0..30)) {
        let mut project = Project::new(slug());
        let mut log = Vec::new();
        for command in commands {
            let command = match command {
                0 => add(1000),
                1 => add(1001),
                2 => relocate("/a"),
                3 => relocate("/b"),
                4 => remove(0),
                _ => remove(1),
            };
            let before = project.clone();
            match perform(&mut project, &command) {
                Ok(lines) => log.extend(lines),
                Err(_) => prop_assert_eq!(&before, &project),
            }
        }
        let mut replayed = Project::new(slug());
        for (seq, line) in (0..).zip(&log) {
            let Decoded::Known(body) = ProjectBody::decode(line.split('"').nth(3).unwrap(), line) else { panic!("{line}") };
            replayed.apply(&ProjectRecord { seq, time: Timestamp::from_millis(1_000 + seq), body });
        }
        prop_assert_eq!(replayed, project);
    }
}
