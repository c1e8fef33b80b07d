//! What the runs of a session changed together, from what was there before and after each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ctx_session::Ulid;

use super::ignored::Ignored;
use super::plan::{Change, Guard, Wish, Wishes, knows};
use super::tree::{Node, RelPath, Tree};

/// What a snapshot says of the files.
#[derive(Debug, Clone, Default)]
pub struct Saw {
    pub tree: Arc<Tree>,
    pub rules: Ignored,
}

impl Saw {
    /// Whether it says what was at a path, also that nothing was there: it knows nothing of what it ignored.
    fn knows(&self, path: &[u8], is_dir: bool) -> bool {
        self.tree.get(path).is_some() || knows(&self.tree, &self.rules, path, is_dir)
    }

    /// The paths at which two snapshots differ that both know of.
    pub fn differing<'a>(&'a self, other: &'a Saw) -> impl Iterator<Item = &'a RelPath> {
        let is_dir = |saw: &Saw, path: &[u8]| saw.tree.get(path).is_some_and(Node::is_dir);
        self.tree.differing(&other.tree).into_iter().filter(move |path| {
            self.knows(path, is_dir(other, path)) && other.knows(path, is_dir(self, path))
        })
    }
}

/// A stretch of a run between two snapshots: what differs between them counts as the run's.
#[derive(Debug, Clone)]
pub struct Stretch {
    pub run: Ulid,
    pub before: Saw,
    pub after: Saw,
    /// It was taken back but for these.
    pub left: Option<BTreeSet<RelPath>>,
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
    for Stretch { run, before, after, left } in stretches {
        let is_left = |path: &&RelPath| left.as_ref().is_none_or(|left| left.contains(*path));
        for path in before.differing(after).filter(is_left) {
            let (was, is) = (before.tree.get(path).cloned(), after.tree.get(path).cloned());
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
    use crate::tree::Hash;

    fn tree(files: &[(&str, &str)]) -> Saw {
        let node = |text: &str| Node::File { mode: 0o644, size: 1, pieces: vec![Hash::of(text.as_bytes())] };
        let nodes = files.iter().map(|(path, text)| (path.as_bytes().to_vec(), node(text))).collect();
        Saw { tree: Arc::new(Tree { nodes, ..Tree::default() }), ..Saw::default() }
    }

    fn ignoring(rules: &str, files: &[(&str, &str)]) -> Saw {
        let mut saw = tree(files);
        saw.rules.add(b"", rules.as_bytes());
        saw
    }

    fn told(stretches: &[Stretch]) -> Vec<String> {
        touched(stretches).keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    #[test]
    fn what_a_snapshot_ignored_or_what_went_back_is_no_change() {
        let run = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let rules = (".gitignore", "");
        // The rules are gone, or are new: what only one of the two saw says nothing.
        let (with, without) =
            (ignoring(".env", &[rules, ("a", "1")]), tree(&[(".env", "mine"), ("a", "1"), ("b", "1")]));
        let mut stretch = Stretch { run, before: with.clone(), after: without.clone(), left: None };
        assert_eq!(told(&[stretch.clone()]), [".gitignore", "b"]);
        stretch.left = Some([b"b".to_vec()].into());
        assert_eq!(told(&[stretch]), ["b"]);
        assert_eq!(told(&[Stretch { run, before: without, after: with, left: None }]), [".gitignore", "b"]);
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
                left: None,
            },
            // Between the two, `m` is edited by hand, and a file appears that no run changes.
            Stretch {
                run: two,
                before: tree(&[("a", "2"), ("m", "hand"), ("t", "1"), ("h", "1")]),
                after: tree(&[("a", "3"), ("m", "3"), ("h", "1")]),
                left: None,
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
