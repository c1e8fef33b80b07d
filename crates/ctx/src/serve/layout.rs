//! How the files of a root belong to whom. A root whose sessions still belong to their users is taken over once, at the
//! first start of a daemon that keeps them itself; `.state/layout` says that it has been.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ctx_engine::{Clock, SystemClock};
use ctx_journal::{FirstLine, Owner, Taken, take_over};
use ctx_session::record::SessionMeta;
use ctx_session::{Code, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::owner::{cannot, replace_durably};
use crate::failure::Failure;

/// The layout in which all files are the daemon's.
const LAYOUT: u64 = 2;

/// What `.state/layout` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layout {
    pub layout: u64,
    /// Logs that were users' and are the daemon's now.
    pub taken_over: u64,
    pub at: Timestamp,
}

/// Takes the root over, unless that has been done.
pub(super) fn prepare(root: &Path) -> Result<Layout, Failure> {
    let path = root.join(".state/layout");
    match std::fs::read(&path) {
        Ok(text) => {
            return serde_json::from_slice(&text).map_err(|error| {
                Failure::new(Code::Eio, format!("{}: {error}", path.display()))
                    .hint("restore the file, or write {\"layout\":2,\"taken_over\":0,\"at\":\"2026-11-01T00:00:00.000Z\"} if a newer ctx has run here")
            });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(&path, error)),
    }
    let taken = take_all(root).map_err(|error| cannot(root, error))?;
    let layout = Layout { layout: LAYOUT, taken_over: taken.logs, at: SystemClock.now() };
    if let Some((path, why)) = &taken.unfinished {
        tracing::error!(path, why, "not all logs of users could be taken over; the next start tries again");
        return Ok(layout);
    }
    for (path, why) in &taken.left {
        tracing::warn!(
            path,
            why,
            "this could not be taken over and is foreign from now on; `ctx doctor` says what to do"
        );
    }
    let text = serde_json::to_vec(&layout).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
    replace_durably(&path, &text).map_err(|error| cannot(&path, error))?;
    if taken.logs > 0 {
        tracing::info!(logs = taken.logs, "logs that belonged to users are the daemon's now");
    }
    Ok(layout)
}

fn take_all(root: &Path) -> std::io::Result<Taken> {
    let mut all = Taken::default();
    let mut take = |dir: &str, owner: Owner, whole: bool, first_line: FirstLine<'_>| {
        let Taken { logs, left, unfinished } = take_over(root, dir, owner, whole, first_line)?;
        all.logs += logs;
        all.left.extend(left);
        all.unfinished = all.unfinished.take().or(unfinished);
        Ok::<(), std::io::Error>(())
    };
    for (name, gid) in dirs_in(&root.join("home"))? {
        let Ok(uid) = name.parse::<u32>() else { continue };
        let owner = Owner::user(uid, gid);
        let agents = format!("home/{name}/agent");
        take(&format!("home/{name}"), owner, false, &as_it_is)?;
        take(&agents, owner, false, &as_it_is)?;
        // What is no directory is in its user's way alone, and is reported as foreign when it is used.
        for (agent, _) in dirs_in(&root.join(&agents)).unwrap_or_default() {
            take(&format!("{agents}/{agent}"), owner, false, &as_it_is)?;
            take(&format!("{agents}/{agent}/session"), owner, true, &as_it_is)?;
        }
    }
    for (space, _) in dirs_in(&root.join("shared"))? {
        take(&format!("shared/{space}"), Owner::own(), true, &of_its_uid)?;
    }
    for (shell, _) in dirs_in(&root.join(".state/shell"))? {
        let log = root.join(".state/shell").join(&shell).join("events.jsonl");
        let Ok(data) = std::fs::symlink_metadata(log) else { continue };
        take(&format!(".state/shell/{shell}"), Owner::user(data.uid(), data.gid()), true, &as_it_is)?;
    }
    Ok(all)
}

/// The directories in one, with the group of each.
fn dirs_in(dir: &Path) -> std::io::Result<Vec<(String, u32)>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let data = entry.path().symlink_metadata()?;
        found.extend(
            entry.file_name().into_string().ok().filter(|_| data.is_dir()).map(|name| (name, data.gid())),
        );
    }
    Ok(found)
}

/// Of a private session the path says whose it is; of a shell, the ACL that it gets.
fn as_it_is(_: &str, _: u32, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
    Ok(None)
}

/// A shared session is whose its file was, whatever its first record says: they could have written it.
fn of_its_uid(_: &str, uid: u32, line: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let unusable =
        || "its first record does not say what session it is, and its owner could have changed it".to_owned();
    let mut record: Map<String, Value> = serde_json::from_slice(line).map_err(|_| unusable())?;
    let is_first = record.get("type").is_some_and(|kind| kind == "session_meta")
        && record.get("seq").is_some_and(|seq| seq == 0);
    // All of it has to be readable later too: without it, others would be asked whose the session is.
    let is_whole = serde_json::from_slice::<SessionMeta>(line).is_ok();
    if !is_first || !is_whole {
        return Err(unusable());
    }
    record.insert("owner".to_owned(), uid.into());
    serde_json::to_vec(&record).map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_session_is_whose_its_file_was() {
        let line = br#"{"schema_version":1,"seq":0,"time":"t","type":"session_meta","session_id":"01K9XZ0000000000000000000A","name":"s","scope":"shared","space":"old","owner":0,"agent":"coder","project":"default","cwd":"/","model":"m","app":"ctx"}"#;
        let becomes = of_its_uid("", 7, line).unwrap().unwrap();
        let record: Value = serde_json::from_slice(&becomes).unwrap();
        assert_eq!((&record["owner"], &record["name"]), (&7.into(), &"s".into()));
        for bad in [
            &b""[..],
            b"[]",
            br#"{"seq":0,"type":"session_meta","owner":0}"#,
            br#"{"schema_version":1,"seq":0,"time":"t","type":"session_meta","session_id":5,"name":"s","scope":"shared","space":"old","owner":0,"agent":"coder","project":"default","cwd":"/","model":"m","app":"ctx"}"#,
            br#"{"seq":1,"type":"session_meta","owner":7}"#,
            br#"{"seq":0,"type":"session_mets","owner":7}"#,
        ] {
            assert!(of_its_uid("", 7, bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
