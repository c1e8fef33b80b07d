//! What the chat has shown, so that nothing is shown twice. Bounded: the oldest is forgotten.

use std::collections::{HashSet, VecDeque};

/// How much is remembered of what was shown, so that nothing is shown twice.
const KNOWN_MAX: usize = 8_192;

/// Something that is shown once, by its id. A tool's result has the id of its call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Message(String),
    Call(String),
    Result(String),
    RunEnd(String),
    /// A checkpoint or an approval.
    Waits(String),
}

/// What has been shown, the newest last.
#[derive(Debug, Default)]
pub(super) struct Known {
    order: VecDeque<Item>,
    items: HashSet<Item>,
}

impl Known {
    pub fn has(&self, item: &Item) -> bool {
        self.items.contains(item)
    }

    /// Whether it is new.
    pub fn add(&mut self, item: Item) -> bool {
        if !self.items.insert(item.clone()) {
            return false;
        }
        self.order.push_back(item);
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.items.remove(&oldest);
        }
        true
    }

    /// It is to be shown again.
    pub fn remove(&mut self, item: &Item) {
        self.items.remove(item);
        self.order.retain(|one| one != item);
    }
}
