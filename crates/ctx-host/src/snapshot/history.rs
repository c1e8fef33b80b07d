//! What the runs of a session changed together, from what was there before and after each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ctx_session::Ulid;

use super::plan::{Change, Guard, Wish, Wishes};
use super::tree::{Node, RelPath, Tree};

/// A stretch of a run between two snapshots: what differs between them counts as the run's.
#[derive(Debug, Clone)]
pub struct Stretch {
    pub run: Ulid,
    pub before: Arc<Tree>,
    pub after: Arc<Tree>,
}

/// What became of a path in all stretches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// Before the first stretch that changed it.
    pub first: Option<Node>,
    /// After the last one.
    pub last: Option<Node>,
    /// Others changed it in between.
    pub is_mixed: bool,
    pub runs: Vec<Ulid>,
}

impl Touched {
    /// None: in the end nothing was changed.
    pub fn change(&self) -> Option<Change> {
        Change::between(self.first.as_ref(), self.last.as_ref())
    }
}

/// The paths that the stretches changed. They are in their order.
pub fn touched(stretches: &[Stretch]) -> BTreeMap<RelPath, Touched> {
    let mut all: BTreeMap<RelPath, Touched> = BTreeMap::new();
    for Stretch { run, before, after } in stretches {
        for path in before.differing(after) {
            let (was, is) = (before.get(path).cloned(), after.get(path).cloned());
            match all.get_mut(path) {
                None => {
                    let touched = Touched { first: was, last: is, is_mixed: false, runs: vec![*run] };
                    all.insert(path.clone(), touched);
                }
                Some(touched) => {
                    touched.is_mixed |= touched.last != was;
                    touched.last = is;
                    if touched.runs.last() != Some(run) {
                        touched.runs.push(*run);
                    }
                }
            }
        }
    }
    all
}

/// The wishes for all that to be undone. What others changed, in between or since, stays.
pub fn undo(touched: &BTreeMap<RelPath, Touched>) -> Wishes {
    let wish = |(path, touched): (&RelPath, &Touched)| {
        let guard = match touched.is_mixed {
            true => Guard::Never("it was changed by others between two runs"),
            false => Guard::Is(touched.last.clone()),
        };
        let changed = touched.is_mixed || touched.change().is_some();
        changed.then(|| (path.clone(), Wish { want: touched.first.clone(), guard }))
    };
    touched.iter().filter_map(wish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tree::Hash;

    fn tree(files: &[(&str, &str)]) -> Arc<Tree> {
        let node = |text: &str| Node::File { mode: 0o644, size: 1, pieces: vec![Hash::of(text.as_bytes())] };
        let nodes = files.iter().map(|(path, text)| (path.as_bytes().to_vec(), node(text))).collect();
        Arc::new(Tree { nodes, ..Tree::default() })
    }

    #[test]
    fn runs_are_undone_together_and_what_others_changed_in_between_is_not() {
        let run = |text: &str| text.parse::<Ulid>().unwrap();
        let (one, two) = (run("01ARZ3NDEKTSV4RRFFQ69G5FAV"), run("01ARZ3NDEKTSV4RRFFQ69G5FAW"));
        let stretches = [
            Stretch {
                run: one,
                before: tree(&[("a", "1"), ("m", "1")]),
                after: tree(&[("a", "2"), ("m", "2"), ("t", "1")]),
            },
            // Between the two, `m` is edited by hand, and a file appears that no run changes.
            Stretch {
                run: two,
                before: tree(&[("a", "2"), ("m", "hand"), ("t", "1"), ("h", "1")]),
                after: tree(&[("a", "3"), ("m", "3"), ("h", "1")]),
            },
        ];
        let touched = touched(&stretches);
        let told: Vec<String> = touched
            .iter()
            .map(|(path, touched)| {
                let path = String::from_utf8_lossy(path).into_owned();
                format!(
                    "{path} {:?} mixed={} runs={}",
                    touched.change(),
                    touched.is_mixed,
                    touched.runs.len()
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "a Some(Changed) mixed=false runs=2",
                "m Some(Changed) mixed=true runs=2",
                // Made by the one and removed by the other.
                "t None mixed=false runs=2",
            ]
        );
        let wishes = undo(&touched);
        assert_eq!(wishes.keys().map(Vec::as_slice).collect::<Vec<_>>(), [b"a".as_slice(), b"m"]);
        assert!(matches!(wishes.get(b"m".as_slice()).unwrap().guard, Guard::Never(_)));
    }
}
