//! A session whose first record is damaged, or gone, is the session that it was.

use std::path::Path;

use ctx_journal::LogPath;
use ctx_session::record::SessionMeta;
use ctx_views::identity::{Flaw, Identity, Place, Witnesses, first};
use ctx_views::{SessionFiles, Sources};
use proptest::prelude::*;

use crate::indexed::{put, talk};
use crate::world::{Root, own};

/// A session with its files, whose log nobody has open.
fn left_behind(root: &Root) -> (LogPath, SessionMeta, Vec<u8>) {
    let session = put(root, 1, "coder", "default", &talk("hello", "hi"));
    let mut files = SessionFiles::open(&root.dir, Path::new(session.log.dir()), own()).unwrap();
    files.catch_up(&session.life.session, &session.life.records()).unwrap();
    let bytes = std::fs::read(root.path(session.log.as_str())).unwrap();
    (session.log.clone(), session.life.session.meta.clone(), bytes)
}

fn identify(root: &Root, log: &LogPath, index: Option<&SessionMeta>) -> Identity {
    let index = |_: &LogPath| index.cloned();
    let sources = Sources { journal: &*root.journal, root: Some(&root.dir), index: &index };
    sources.identify(log).unwrap().unwrap()
}

/// All that a session is known by.
fn same(found: &SessionMeta, was: &SessionMeta) -> bool {
    let key = |meta: &SessionMeta| {
        let SessionMeta { session_id, name, scope, space, owner, agent, project, cwd, model, .. } =
            meta.clone();
        (session_id, name, scope, space, owner, agent, project, cwd, model)
    };
    key(found) == key(was)
}

#[test]
fn a_log_that_is_cut_at_any_byte_is_the_same_session() {
    let root = Root::new();
    let (log, was, bytes) = left_behind(&root);
    for index in [None, Some(&was)] {
        for len in 0..=bytes.len() {
            std::fs::write(root.path(log.as_str()), &bytes[..len]).unwrap();
            let found = identify(&root, &log, index);
            assert!(same(&found.meta, &was), "cut at {len}: {found:?}");
            let first = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            assert_eq!(found.is_in_log, len > first, "cut at {len}");
        }
    }
}

#[test]
fn a_first_line_that_is_gone_is_made_up_from_files_or_from_what_follows() {
    let root = Root::new();
    let (log, was, bytes) = left_behind(&root);
    let rest: Vec<u8> = bytes.split_inclusive(|byte| *byte == b'\n').skip(1).flatten().copied().collect();
    std::fs::write(root.path(log.as_str()), &rest).unwrap();
    let found = identify(&root, &log, None);
    assert!(same(&found.meta, &was) && found.flaws == [Flaw::Missing], "{found:?}");
    // Nothing but the log and its place: the id follows from the place, the rest from the first run.
    std::fs::remove_file(root.path(log.dir()).join("meta.json")).unwrap();
    let found = identify(&root, &log, None).meta;
    assert_eq!(found, identify(&root, &log, None).meta, "the same every time");
    assert_eq!((&found.name, &found.agent, found.owner), (&was.name, &was.agent, was.owner));
    assert_eq!((&found.project, &found.model, &found.cwd), (&was.project, &was.model, &was.cwd));
}

#[test]
fn what_two_witnesses_say_is_believed() {
    let root = Root::new();
    let (log, was, bytes) = left_behind(&root);
    let text = String::from_utf8(bytes).unwrap();
    // The id has lost a bit, and so has the line.
    let id = was.session_id.to_string();
    let other = format!("{}{}", &id[..25], if id.ends_with('0') { '1' } else { '0' });
    let damaged = text.replacen(&id, &other, 1).replacen("\"schema_version\"", "\"schemA_version\"", 1);
    std::fs::write(root.path(log.as_str()), damaged).unwrap();
    assert!(same(&identify(&root, &log, Some(&was)).meta, &was));
}

#[test]
fn every_key_of_a_first_record_gets_its_name_back() {
    let root = Root::new();
    let (log, _, bytes) = left_behind(&root);
    let text = String::from_utf8(bytes).unwrap();
    let first: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let envelope = ["schema_version", "seq", "time", "type", "batch"];
    let was = identify(&root, &log, None).meta;
    for key in first.keys().filter(|key| !envelope.contains(&key.as_str())) {
        let flipped = format!("\"{}{}\":", &key[..key.len() - 1], key[key.len() - 1..].to_uppercase());
        std::fs::write(root.path(log.as_str()), text.replacen(&format!("\"{key}\":"), &flipped, 1)).unwrap();
        let found = identify(&root, &log, None);
        assert_eq!(found.meta, was, "{key}");
        assert!(
            matches!(found.flaws.as_slice(), [Flaw::Misspelt { meant, .. }] if meant == key),
            "{found:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn one_flipped_bit_in_the_first_line_takes_nothing_that_the_path_says(
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let root = Root::new();
        let (log, was, mut bytes) = left_behind(&root);
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        bytes[at.index(first)] ^= 1 << bit;
        std::fs::write(root.path(log.as_str()), &bytes).unwrap();
        let found = identify(&root, &log, Some(&was)).meta;
        prop_assert_eq!((&found.name, found.scope, &found.space), (&was.name, was.scope, &was.space));
        prop_assert_eq!((&found.agent, found.owner), (&was.agent, was.owner));
        // A value that fits its key cannot be told from the true one; one bit changes one value at most.
        let values = [
            found.session_id == was.session_id,
            found.project == was.project,
            found.cwd == was.cwd,
            found.model == was.model,
        ];
        prop_assert!(values.iter().filter(|same| !**same).count() <= 1, "{:?}", found);
    }
}

/// A log with a stranger's id must not become their session because its name comes first.
#[test]
fn of_two_logs_with_one_id_the_better_one_is_the_session_and_neither_where_nobody_can_tell() {
    use ctx_views::identity::{Fit, original};
    let of = |fits: &[Fit]| {
        let claims: Vec<(Fit, usize)> = fits.iter().copied().zip(0..).collect();
        original(&claims).copied()
    };
    assert_eq!(of(&[Fit::Elsewhere]), Some(0), "one alone is the session, whatever was done to it");
    assert_eq!(of(&[Fit::Elsewhere, Fit::Sound]), Some(1));
    assert_eq!(of(&[Fit::Damaged, Fit::Elsewhere, Fit::Elsewhere]), Some(0));
    assert_eq!(of(&[Fit::Sound, Fit::Sound]), None);
    assert_eq!(of(&[Fit::Elsewhere, Fit::Elsewhere, Fit::Damaged, Fit::Damaged]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn a_shared_session_without_its_first_record_is_nobodys_whatever_else_says() {
    let log = LogPath::new("shared/team/agent/coder/session/s/events.jsonl").unwrap();
    let place = Place::of(&log).unwrap();
    let root = Root::new();
    let forged = SessionMeta { owner: 0, ..left_behind(&root).1 };
    for witnesses in [
        Witnesses { log: Some(forged.clone()), ..Witnesses::default() },
        Witnesses { files: Some(forged.clone()), ..Witnesses::default() },
        Witnesses::default(),
    ] {
        let identity = ctx_views::identity::identify(&place, first(&place, None), || witnesses);
        assert_eq!(identity.meta.owner, ctx_views::identity::NOBODY);
    }
}
