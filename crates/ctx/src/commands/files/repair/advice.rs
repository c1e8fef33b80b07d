//! The advice about a damaged log, shared by `doctor` and `repair`.

use std::os::unix::fs::MetadataExt;

use ctx_journal::LogPath;
use ctx_views::identity::Place;

use crate::root::Root;
use crate::sessions;

/// The command that shows what a repair would do, to the one who can do it.
pub fn repair(root: &Root, log: &LogPath) -> String {
    if !may_write(root, log) {
        return by_owner(root);
    }
    let which = name(log).map_or("--all".to_owned(), |name| name);
    format!("`ctx repair {which}` prints what a repair would change, --apply changes it")
}

/// Whoever may not write to a log's directory asks the one who may.
pub fn by_owner(root: &Root) -> String {
    let owner = std::fs::metadata(&root.path).map_or(0, |data| data.uid());
    format!(
        "the daemon's owner (uid {owner}) can repair it: `ctx repair --all` prints what a repair would change, --apply changes it"
    )
}

/// About records that a newer ctx wrote, or that look like it.
pub fn newer(log: &LogPath) -> String {
    let which = name(log);
    let upgrade = "upgrade ctx; until then it can be read, and `ctx fork` continues from the records that this ctx knows";
    match which {
        Some(name) => format!(
            "{upgrade}. If no newer ctx ever wrote here, the version is damaged: `ctx repair {name} --not-newer` prints how it would be repaired"
        ),
        None => upgrade.to_owned(),
    }
}

/// About a record that this ctx does not understand, and a newer one may have written.
pub fn unknown_word(log: &LogPath) -> String {
    let upgrade = "a newer ctx may have written it: upgrade ctx; until then this record is skipped";
    match name(log) {
        Some(name) => format!(
            "{upgrade}. If none ever wrote here, it is damaged: `ctx repair {name} --not-newer` prints how it would be set aside"
        ),
        None => upgrade.to_owned(),
    }
}

/// About a log in which nothing can be used.
pub fn nothing_usable(log: &LogPath) -> String {
    let dir = log.dir();
    match Place::of(log) {
        Some(_) => "if you do not need the session, `ctx purge` removes it".to_owned(),
        None => format!("restore it from a backup, or move {log} out of {dir} to start without it"),
    }
}

/// What the caller calls a session of their own by; nothing for those of others.
fn name(log: &LogPath) -> Option<String> {
    let parts: Vec<&str> = log.dir().split('/').collect();
    let own = sessions::own_uid().to_string();
    match parts.as_slice() {
        ["home", uid, "agent", agent, "session", name] if *uid == own => Some(format!("{agent}/{name}")),
        _ => None,
    }
}

fn may_write(root: &Root, log: &LogPath) -> bool {
    rustix::fs::access(root.path.join(log.dir()), rustix::fs::Access::WRITE_OK).is_ok()
}
