//! Which snapshots may go, and in which order.

use std::collections::HashMap;

use ctx_session::Ulid;

use super::store::Info;

/// Those that may go to make room, the oldest first: none that a checkpoint needs. A rollback to a checkpoint of a session
/// needs what its runs did since, too.
pub fn may_go(infos: &[Info]) -> Vec<Ulid> {
    let mut kept_since: HashMap<Ulid, Ulid> = HashMap::new();
    for info in infos.iter().filter(|info| info.keep) {
        if let Some(session) = info.session {
            let oldest = kept_since.entry(session).or_insert(info.id);
            *oldest = info.id.min(*oldest);
        }
    }
    let is_needed = |info: &&Info| {
        let since = info.session.and_then(|session| kept_since.get(&session));
        info.keep || since.is_some_and(|kept| *kept <= info.id)
    };
    let mut ids: Vec<Ulid> = infos.iter().filter(|info| !is_needed(info)).map(|info| info.id).collect();
    ids.sort();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Reason;
    use ctx_session::{IdSource, Timestamp};

    #[test]
    fn the_oldest_go_first_and_none_that_a_checkpoint_needs() {
        let mut ids = IdSource::new(1);
        let mut id = |at| ids.next(Timestamp::from_millis(at));
        let (ann, bob) = (id(1), id(2));
        let mut info = |session, keep| Info {
            id: id(3),
            created: Timestamp::from_millis(3),
            reason: Reason::BeforeRun,
            tree: String::new(),
            files: 0,
            bytes: 0,
            label: None,
            session,
            run: None,
            uncertain: Vec::new(),
            undoes: Vec::new(),
            redoes: Vec::new(),
            restores: None,
            kept: Vec::new(),
            end_unknown: false,
            keep,
        };
        let infos = [
            info(Some(ann), false),
            info(Some(ann), true),
            info(Some(bob), false),
            info(Some(ann), false),
            info(None, true),
            info(None, false),
        ];
        let expected: Vec<Ulid> = [0, 2, 5].iter().map(|n: &usize| infos[*n].id).collect();
        assert_eq!(may_go(&infos), expected);
    }
}
