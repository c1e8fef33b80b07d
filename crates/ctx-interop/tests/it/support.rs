//! Where the fixtures are, and reading a case of them.

use std::path::{Path, PathBuf};

use ctx_interop::{Agent, Event, Finish, Transcript, What, store};
use ctx_session::Timestamp;
use serde_json::Value;

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Every case below a folder of the fixtures that has an `expected.json`.
pub fn cases() -> Vec<(Agent, String, PathBuf, Value)> {
    let mut cases = Vec::new();
    for folder in sorted(&fixtures()) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(agent) = Agent::of_name(name.split('-').next().unwrap()) else { continue };
        for case in sorted(&folder) {
            let expected = std::fs::read(case.join("expected.json")).unwrap();
            let label = format!("{name}/{}", case.file_name().unwrap().to_str().unwrap());
            cases.push((agent, label, case, serde_json::from_slice(&expected).unwrap()));
        }
    }
    cases
}

pub fn sorted(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Long after everything was written.
pub fn list(agent: Agent, dir: &Path) -> store::Store {
    store::list(agent, dir, Timestamp::from_millis(2_000_000_000_000))
}

pub fn read_all(agent: Agent, dir: &Path) -> Vec<Transcript> {
    let store = list(agent, dir);
    assert!(store.failures.is_empty(), "{:?}", store.failures);
    store.entries.iter().map(|entry| store.read(entry).unwrap()).collect()
}

/// The events of the session's own part.
pub fn own(found: &Transcript) -> Vec<&Event> {
    found.events.iter().filter(|event| !event.inherited).collect()
}

pub fn users<'e>(events: &[&'e Event]) -> Vec<&'e str> {
    let text = |event: &&'e Event| match &event.what {
        What::User { text } => Some(text.as_str()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

pub fn answers<'e>(events: &[&'e Event]) -> Vec<&'e str> {
    let text = |event: &&'e Event| match &event.what {
        What::Assistant { text, finish, .. } if *finish != Finish::Interrupted => Some(text.as_str()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}
