//! Sessions and pages of messages that were just read, kept as they were sent. Each holds as long as its session's log
//! has not grown: every change of a conversation is a record, but whether its project's file has changed since. Bounded, and forgotten all at once when it is full.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use ctx_engine::ListWish;
use ctx_session::SessionId;

use super::messages::Wanted;

/// What is kept together, and the longest page that is.
const BYTES_MAX: usize = 16 * 1024 * 1024;
const PAGE_BYTES_MAX: usize = 512 * 1024;

/// Pages, by what was asked. Cloning it is cheap.
#[derive(Clone, Default)]
pub struct KeptPages {
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    pages: HashMap<(SessionId, What), Kept>,
    /// Lists by user; `next_seq` is the version of all lists.
    lists: HashMap<(u32, ListWish), Kept>,
    bytes: usize,
}

/// What of a session was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    /// The session itself.
    Session {
        stale: bool,
    },
    Messages(Wanted),
}

struct Kept {
    /// The seq of the log's next record when it was read.
    next_seq: u64,
    text: Bytes,
}

impl KeptPages {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page, if the log still ends where it did.
    pub(super) fn get(&self, session: SessionId, wanted: Wanted, next_seq: u64) -> Option<Bytes> {
        self.find((session, What::Messages(wanted)), next_seq)
    }

    /// The session, if the log still ends where it did.
    pub(super) fn session(&self, session: SessionId, stale: bool, next_seq: u64) -> Option<Bytes> {
        self.find((session, What::Session { stale }), next_seq)
    }

    pub(super) fn put_session(&self, session: SessionId, stale: bool, next_seq: u64, text: &Bytes) {
        self.keep((session, What::Session { stale }), next_seq, text);
    }

    fn find(&self, key: (SessionId, What), next_seq: u64) -> Option<Bytes> {
        let table = self.lock();
        table.pages.get(&key).filter(|kept| kept.next_seq == next_seq).map(|kept| kept.text.clone())
    }

    /// `next_seq`: as it was before the page was read.
    pub(super) fn put(&self, session: SessionId, wanted: Wanted, next_seq: u64, text: &Bytes) {
        self.keep((session, What::Messages(wanted)), next_seq, text);
    }

    /// A page of sessions, if nothing in any list has changed.
    pub(super) fn list(&self, uid: u32, wish: &ListWish, version: u64) -> Option<Bytes> {
        let table = self.lock();
        let kept = table.lists.get(&(uid, wish.clone())).filter(|kept| kept.next_seq == version)?;
        Some(kept.text.clone())
    }

    /// `version`: as it was before the page was made.
    pub(super) fn put_list(&self, uid: u32, wish: ListWish, version: u64, text: &Bytes) {
        if text.len() > PAGE_BYTES_MAX {
            return;
        }
        let mut table = self.lock();
        if table.bytes + text.len() > BYTES_MAX {
            *table = Table::default();
        }
        table.bytes += text.len();
        let old = table.lists.insert((uid, wish), Kept { next_seq: version, text: text.clone() });
        table.bytes -= old.map_or(0, |old| old.text.len());
    }

    fn keep(&self, key: (SessionId, What), next_seq: u64, text: &Bytes) {
        if text.len() > PAGE_BYTES_MAX {
            return;
        }
        let mut table = self.lock();
        if table.bytes + text.len() > BYTES_MAX {
            *table = Table::default();
        }
        table.bytes += text.len();
        let old = table.pages.insert(key, Kept { next_seq, text: text.clone() });
        table.bytes -= old.map_or(0, |old| old.text.len());
    }
}

#[cfg(test)]
mod tests {
    use ctx_session::Ulid;

    use super::*;

    #[test]
    fn a_page_holds_until_the_log_grows_and_all_together_are_bounded() {
        let kept = KeptPages::default();
        let id = SessionId(Ulid(1));
        let page = Bytes::from(vec![b'x'; 1000]);
        kept.put(id, Wanted::newest(50), 7, &page);
        assert_eq!(kept.get(id, Wanted::newest(50), 7), Some(page.clone()));
        assert_eq!(kept.get(id, Wanted::newest(50), 8), None, "something was said since");
        assert_eq!(kept.get(id, Wanted::newest(51), 7), None, "another page");
        assert_eq!(kept.get(SessionId(Ulid(2)), Wanted::newest(50), 7), None, "another session");
        kept.put(id, Wanted::newest(50), 8, &page);
        assert_eq!(kept.lock().bytes, 1000, "in place of the old one");
        let large = Bytes::from(vec![b'x'; PAGE_BYTES_MAX]);
        for limit in 0..100 {
            kept.put(id, Wanted::newest(limit), 8, &large);
            assert!(kept.lock().bytes <= BYTES_MAX);
        }
        kept.put(id, Wanted::newest(50), 9, &Bytes::from(vec![b'x'; PAGE_BYTES_MAX + 1]));
        assert_eq!(kept.get(id, Wanted::newest(50), 9), None);
    }
}
