//! Terminals that belong to sessions: what their daemon asks of all of them.
//!
//! A holder knows nothing of sessions. The session's id is in `about.json` for the daemon, which writes a terminal's end to
//! the session's log and then puts the mark `settled` beside it.

use std::path::PathBuf;

use ctx_session::{SessionId, Ulid};

use super::broker::{Terminal, Terminals, look};
use super::client::connect_to;
use super::error::{TerminalError, failed};
use super::place::{self, EndReason, SETTLED, SOCKET};
use super::protocol::{FromHolder, State, ToHolder};
use super::transcript::ChunkKind;
use ctx_cage::Means;
use ctx_cage::rights::Rights;

/// The most directories of one user that are looked at for terminals of sessions, and how many of these may be open.
const LOOKED_AT_MAX: usize = 100_000;
const OPEN_MAX: usize = 1_000;
/// More than a session can have at once, whatever its user's files say.
const IN_SESSION_MAX: usize = 32;

impl Terminals {
    /// What the parents of this root's cages around terminals begin with.
    pub(super) fn cage_prefix(&self) -> String {
        // The same in every version of ctx: the next one sweeps what this one leaves.
        let path = self.dir.as_os_str().as_encoded_bytes();
        let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("hold-{hash:016x}-")
    }

    /// Ends what is left of cages whose holder does not answer: it was killed. How many.
    pub fn sweep(&self, means: &Means) -> usize {
        let prefix = self.cage_prefix();
        ctx_cage::sweep(means, |parent| {
            parent.strip_prefix(&prefix).is_some_and(|id| !self.users().any(|uid| self.is_held(uid, id)))
        })
    }

    /// Whether the holder of a terminal is there.
    fn is_held(&self, uid: u32, id: &str) -> bool {
        let socket = self.dir_of(uid).join(id).join(SOCKET);
        Rights::of(uid).is_ok_and(|rights| rights.act(|| connect_to(&socket, uid).is_ok()).unwrap_or(false))
    }

    /// Who has had terminals here.
    fn users(&self) -> impl Iterator<Item = u32> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// Terminals of sessions whose end is not in their session's log yet, with their users. Asked at a start.
    pub fn without_recorded_end(&self) -> Vec<(u32, SessionId, Ulid)> {
        let of_user =
            |uid| self.without_recorded_end_of(uid).into_iter().map(move |(session, id)| (uid, session, id));
        self.users().flat_map(of_user).collect()
    }

    /// The same of one user, who can put any number of directories there: further ones are not looked at.
    fn without_recorded_end_of(&self, uid: u32) -> Vec<(SessionId, Ulid)> {
        let home = self.dir_of(uid);
        let look = || -> Vec<(SessionId, Ulid)> {
            let entries = std::fs::read_dir(&home).into_iter().flatten().flatten();
            let open = entries.map(|entry| entry.path()).filter(|dir| !dir.join(SETTLED).exists());
            // Which one it is follows from where it lies.
            let named = |dir: &PathBuf| dir.file_name()?.to_str()?.parse().ok();
            // The user's own ones are never marked, and hide none of a session's.
            open.take(LOOKED_AT_MAX)
                .filter_map(|dir| Some((place::read_about(&dir).ok()?.session?, named(&dir)?)))
                .take(OPEN_MAX)
                .collect()
        };
        Rights::of(uid).and_then(|rights| rights.act(look)).unwrap_or_default()
    }

    /// Those of one session, whose owner they belong to.
    fn open_in(&self, owner: u32, session: SessionId) -> impl Iterator<Item = Ulid> {
        let open = self.without_recorded_end_of(owner).into_iter();
        open.filter(move |(of, _)| *of == session).map(|(_, id)| id).take(IN_SESSION_MAX)
    }

    /// The end of a terminal is in its session's log.
    pub fn mark_ended(&self, uid: u32, id: Ulid) -> Result<(), TerminalError> {
        let mark = self.dir_of(uid).join(id.to_string()).join(SETTLED);
        let made = Rights::of(uid)?.act(|| place::mark(&mark))?;
        made.map_err(failed("mark the terminal as ended"))
    }

    /// The terminals of a session, oldest first, with those that have ended.
    pub fn of_session(&self, uid: u32, session: SessionId) -> Result<Vec<Terminal>, TerminalError> {
        let home = self.dir_of(uid);
        let look_at = || -> Vec<Terminal> {
            let entries = std::fs::read_dir(&home).into_iter().flatten().flatten().map(|entry| entry.path());
            let is_its = |dir: &PathBuf| place::read_about(dir).is_ok_and(|it| it.session == Some(session));
            entries.filter(is_its).filter_map(|dir| look(&dir, uid)).collect()
        };
        let mut found = Rights::of(uid)?.act(look_at)?;
        found.sort_by_key(|terminal| terminal.about.id);
        Ok(found)
    }

    /// Removes what is left of a session's terminals. Those that live are ended.
    pub fn forget(&self, uid: u32, session: SessionId) -> Result<(), TerminalError> {
        for terminal in self.of_session(uid, session)? {
            self.close(uid, &terminal.about.id.to_string())?;
            let removed = Rights::of(uid)?.act(|| std::fs::remove_dir_all(&terminal.dir))?;
            removed.map_err(failed("remove the terminal"))?;
        }
        Ok(())
    }

    /// Stops the caged programs of a session's terminals where they are, or lets them go on. They have when this returns.
    pub fn freeze(&self, uid: u32, session: SessionId, is_frozen: bool) -> Result<(), TerminalError> {
        let act = if is_frozen { ToHolder::Freeze } else { ToHolder::Thaw };
        for id in self.open_in(uid, session) {
            let terminal = self.find(uid, &id.to_string())?;
            if terminal.state == State::Closed || !terminal.about.is_caged {
                continue;
            }
            let mut holder = self.ask(uid, &terminal)?;
            let told = holder.send(&act).and_then(|()| holder.send(&ToHolder::Status));
            // One that ends meanwhile needs nothing more.
            let _ = told
                .and_then(|()| holder.wait_for(|said| matches!(said, FromHolder::Status(_)).then_some(())));
        }
        Ok(())
    }

    /// Closes all terminals of a session, side by side. They have ended when this returns, but for one that cannot be reached.
    pub fn close_all(&self, uid: u32, session: SessionId) {
        std::thread::scope(|scope| {
            for id in self.open_in(uid, session) {
                scope.spawn(move || {
                    if let Err(error) = self.close(uid, &id.to_string()) {
                        tracing::warn!(%id, %error, "a terminal could not be closed");
                    }
                });
            }
        });
    }

    /// How a terminal has ended: why, its exit code, the lines of its transcript. One that is not there is lost.
    pub fn how_it_ended(&self, uid: u32, id: Ulid) -> (EndReason, Option<i32>, u64) {
        let Ok(found) = self.find(uid, &id.to_string()) else { return (EndReason::HolderLost, None, 0) };
        if let Some(end) = &found.end {
            return (end.reason, end.exit_code, end.lines);
        }
        let mut lines = 0;
        for chunk in self.transcript(uid, &found).into_iter().flatten().flatten() {
            if let ChunkKind::Output(bytes) = chunk.kind {
                lines += memchr::memchr_iter(b'\n', &bytes).count() as u64;
            }
        }
        (EndReason::HolderLost, None, lines)
    }
}
