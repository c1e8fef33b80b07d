//! What is asked of spaces and done with them: who is let in, and making and removing one.

use std::io;

use ctx_journal::{Owner, lock};
use ctx_session::record::{Scope, SessionMeta};
use ctx_session::{Code, Name, Refusal};

use crate::paths::LOGS;

use crate::core::journal_refusal;
use crate::engine::Engine;
use crate::lookup::blocking;
use crate::request::Caller;
use crate::shared::Inner;
use crate::spaces::{Sight, Space};

fn no_space(name: &Name) -> Refusal {
    Refusal::new(Code::Enoent, format!("no space {name}")).blaming("space")
}

impl Inner {
    pub(crate) fn sight(&self, caller: Caller) -> Sight {
        let all = caller.uid == self.daemon_uid;
        // Most daemons have no space, and then nobody's groups matter.
        let has_none = lock(&self.spaces.known).is_empty();
        let groups = if all || has_none { Vec::new() } else { self.spaces.files.groups_of(caller.uid) };
        let known = lock(&self.spaces.known);
        let open = known.values().filter(|space| all || groups.contains(&space.gid));
        Sight { uid: caller.uid, all, spaces: open.map(|space| space.name.clone()).collect() }
    }

    /// Refuses a space that is not there for the caller. Sessions that are in no space have none.
    pub(crate) fn check_space(
        &self,
        caller: Caller,
        scope: Scope,
        space: Option<&Name>,
    ) -> Result<(), Refusal> {
        match (scope, space) {
            (Scope::Shared, Some(space)) if !self.sight(caller).spaces.contains(space) => {
                Err(no_space(space))
            }
            _ => Ok(()),
        }
    }

    /// Who reads the files of a session: its owner, or the group of its space. Those in a space that is no more are read by
    /// the daemon alone.
    pub(crate) fn readers_of(&self, scope: Scope, space: Option<&Name>, owner: u32) -> Owner {
        match (scope, space) {
            (Scope::Shared, Some(space)) => {
                Owner { space: self.spaces.gid_of(space), ..Owner::user(self.daemon_uid, self.daemon_gid) }
            }
            _ => self.owner_of_uid(owner),
        }
    }

    fn add_space(&self, caller: Caller, name: Name, group: &str) -> Result<Space, Refusal> {
        let is_daemons = caller.uid == self.daemon_uid;
        let gid = self.spaces.files.group(group);
        let gid =
            gid.ok_or_else(|| Refusal::invalid("group", format!("no group `{group}` on this machine")))?;
        if !is_daemons && !self.spaces.files.groups_of(caller.uid).contains(&gid) {
            let message = format!("you are not in the group `{group}`; name one that you are in");
            return Err(Refusal::new(Code::Eacces, message).blaming("group"));
        }
        let mut known = lock(&self.spaces.known);
        if known.contains_key(&name) {
            return Err(Refusal::new(Code::Eexist, format!("the space {name} exists")).blaming("name"));
        }
        // What is there from before belongs to others.
        if !is_daemons && self.count_in_space(&name)? > 0 {
            let message = format!("sessions are kept under {name} already; ask the owner of the daemon");
            return Err(Refusal::new(Code::Eexist, message).blaming("name"));
        }
        let (created_by, created_at) = (caller.uid, self.fresh.now());
        let space = Space { name: name.clone(), group: group.to_owned(), gid, created_by, created_at };
        let failed =
            |error: io::Error| Refusal::new(Code::Eio, format!("the space cannot be stored: {error}"));
        self.spaces.files.add(&space).map_err(failed)?;
        known.insert(name, space.clone());
        Ok(space)
    }

    /// Sessions in a space, also those that cannot be opened.
    fn count_in_space(&self, name: &Name) -> Result<usize, Refusal> {
        let here = |meta: &SessionMeta| meta.scope == Scope::Shared && meta.space.as_ref() == Some(name);
        let known = self.registry.select(|summary| here(&summary.meta)).len();
        let mut kept = 0;
        for pattern in LOGS {
            let logs = self.journal.list(&format!("shared/{name}/{pattern}"));
            kept += logs.map_err(|error| journal_refusal(&error))?.len();
        }
        Ok(known.max(kept))
    }

    fn remove_space(&self, caller: Caller, name: &Name) -> Result<(), Refusal> {
        let is_seen = self.sight(caller).spaces.contains(name);
        let mut known = lock(&self.spaces.known);
        let space = known.get(name).filter(|space| is_seen || space.created_by == caller.uid);
        let space = space.ok_or_else(|| no_space(name))?;
        if caller.uid != self.daemon_uid && caller.uid != space.created_by {
            let message = format!("uid {} made the space {name}; only they can remove it", space.created_by);
            return Err(Refusal::new(Code::Eacces, message));
        }
        let count = self.count_in_space(name)?;
        if count > 0 {
            let message = format!("{count} sessions are in the space {name}; end and purge them first");
            return Err(Refusal::new(Code::Ebusy, message));
        }
        let failed =
            |error: io::Error| Refusal::new(Code::Eio, format!("the space cannot be removed: {error}"));
        self.spaces.files.remove(name).map_err(failed)?;
        known.remove(name);
        Ok(())
    }
}

impl Engine {
    /// What this caller may see now.
    pub fn sight(&self, caller: Caller) -> Sight {
        self.inner.sight(caller)
    }

    /// The spaces that the caller is let into, by name.
    pub fn spaces(&self, caller: Caller) -> Vec<Space> {
        let sight = self.inner.sight(caller);
        let known = lock(&self.inner.spaces.known);
        known.values().filter(|space| sight.spaces.contains(&space.name)).cloned().collect()
    }

    /// Makes a space. The daemon's owner may name any group, others one that they are in.
    pub async fn add_space(&self, caller: Caller, name: Name, group: String) -> Result<Space, Refusal> {
        self.inner.refuse_when_closing()?;
        self.inner.serve_user(caller)?;
        let inner = self.inner.clone();
        blocking(move || inner.add_space(caller, name, &group)).await
    }

    /// Removes a space in which no session is.
    pub async fn remove_space(&self, caller: Caller, name: Name) -> Result<(), Refusal> {
        let inner = self.inner.clone();
        blocking(move || inner.remove_space(caller, &name)).await
    }
}
