//! What a restore does: from what is there, what is wanted and what must not be lost, the steps and the report.
//!
//! A path is touched only if the restore wants something else there, if what is there is as it was expected, and if what
//! is there was saved first. Everything else stays and is reported. A directory is removed only when all in it is.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::files::{Stat, Walked};
use super::ignored::{Ignored, is_never_part};
use super::tree::{Node, PathText, RelPath, Tree, parent, parents};

/// The permission to change what is in a directory.
const OPEN: u32 = 0o700;
/// The mode of a directory that nothing is known of.
const NEW_DIR: u32 = 0o755;

/// What should be at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub want: Option<Node>,
    pub guard: Guard,
}

/// On what condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    Always,
    /// Only if this is there; otherwise it was changed since, by others.
    Is(Option<Node>),
    /// Only if this or nothing is there: a restore that was cut short may have removed it.
    IsOrGone(Option<Node>),
    /// Never: why.
    Never(&'static str),
}

pub type Wishes = BTreeMap<RelPath, Wish>;

/// One path that is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub path: RelPath,
    pub before: Option<Node>,
    pub want: Option<Node>,
    /// Of what is there, to notice who changes it meanwhile.
    pub stat: Option<Stat>,
}

impl Step {
    /// What is there goes before something else can come.
    pub fn removes(&self) -> bool {
        match (&self.before, &self.want) {
            (Some(before), Some(want)) => !before.is_like(want),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// A directory that must be written to and is read-only, and the mode it has in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub path: PathText,
    pub before: u32,
    /// None: it is removed.
    pub after: Option<u32>,
}

/// What a restore does. The steps are in the order of their paths, directories first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub kept: Vec<Kept>,
    pub opened: Vec<Opened>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Created,
    Changed,
    Removed,
}

impl Change {
    /// None: nothing differs.
    pub fn between(before: Option<&Node>, after: Option<&Node>) -> Option<Change> {
        match (before, after) {
            (None, Some(_)) => Some(Change::Created),
            (Some(_), None) => Some(Change::Removed),
            (Some(before), Some(after)) if before != after => Some(Change::Changed),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub path: PathText,
    pub change: Change,
}

/// A path that was to be changed and was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub path: PathText,
    pub why: String,
}

/// What a restore did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub changed: Vec<Changed>,
    pub kept: Vec<Kept>,
}

impl Plan {
    pub fn report(&self) -> Report {
        let changed = |step: &Step| {
            let change = Change::between(step.before.as_ref(), step.want.as_ref())?;
            Some(Changed { path: PathText(step.path.clone()), change })
        };
        Report { changed: self.steps.iter().filter_map(changed).collect(), kept: self.kept.clone() }
    }
}

/// The wishes for all files to be as in a tree. What the tree ignored or could not save is not its business.
pub fn whole(target: &Tree, rules: &Ignored, now: &Tree) -> Wishes {
    let wish = |path: &RelPath| {
        let want = target.get(path).cloned();
        let is_dir = now.get(path).is_some_and(Node::is_dir);
        let is_known = want.is_some() || knows(target, rules, path, is_dir);
        is_known.then(|| (path.clone(), Wish { want, guard: Guard::Always }))
    };
    target.differing(now).into_iter().filter_map(wish).collect()
}

/// Whether a tree that does not have a path says by that that it was not there.
pub(super) fn knows(tree: &Tree, rules: &Ignored, path: &[u8], is_dir: bool) -> bool {
    let left_out = |path: &[u8]| tree.left_out.contains_key(path);
    let is_ignored = !tree.with_ignored && rules.has_within(path, is_dir);
    let never = path.split(|byte| *byte == b'/').any(is_never_part);
    let is_known = !is_ignored || tree.absent.contains(path);
    !never && is_known && !left_out(path) && !parents(path).any(left_out)
}

/// How the wishes are fulfilled. `modes`: those of directories that may have to be made again.
pub fn plan(wishes: &Wishes, now: &Walked, modes: &Tree) -> Plan {
    let mut planning = Planning { now, kept: Vec::new(), steps: BTreeMap::new() };
    for (path, wish) in wishes {
        planning.judge(path, wish);
    }
    planning.keep_what_holds_others();
    planning.make_parents(modes);
    let opened = planning.opened();
    let mut kept = planning.kept;
    kept.sort_by(|a, b| a.path.cmp(&b.path));
    Plan { steps: planning.steps.into_values().collect(), kept, opened }
}

struct Planning<'a> {
    now: &'a Walked,
    kept: Vec<Kept>,
    steps: BTreeMap<RelPath, Step>,
}

impl Planning<'_> {
    fn keep(&mut self, path: &[u8], why: &str) {
        self.kept.push(Kept { path: PathText(path.to_vec()), why: why.to_owned() });
    }

    fn judge(&mut self, path: &RelPath, wish: &Wish) {
        let there = self.now.tree.get(path);
        if there == wish.want.as_ref() {
            return;
        }
        let unsaved = |path: &[u8]| self.now.tree.left_out.contains_key(path);
        let unsaved = (unsaved(path) && there.is_none()) || parents(path).any(unsaved);
        let both_dirs = there.is_some_and(Node::is_dir) && wish.want.as_ref().is_some_and(Node::is_dir);
        let is_expected = match &wish.guard {
            Guard::Always => Ok(()),
            Guard::Is(expected) if there == expected.as_ref() => Ok(()),
            // A mode in between is the restore's own.
            Guard::IsOrGone(expected) if there.is_none() || there == expected.as_ref() || both_dirs => Ok(()),
            Guard::Is(_) | Guard::IsOrGone(_) => Err("it was changed again since"),
            Guard::Never(why) => Err(*why),
        };
        match is_expected {
            _ if unsaved => self.keep(path, "what is there now cannot be saved first"),
            Err(why) => self.keep(path, why),
            Ok(()) => {
                let stat = self.now.stats.get(path).copied();
                let step = Step { path: path.clone(), before: there.cloned(), want: wish.want.clone(), stat };
                self.steps.insert(path.clone(), step);
            }
        }
    }

    /// A directory with something in it that stays, stays.
    fn keep_what_holds_others(&mut self) {
        let mut held: HashSet<&[u8]> = HashSet::new();
        for crowded in &self.now.crowded {
            held.insert(crowded);
            held.extend(parents(crowded));
        }
        let mut blocked = Vec::new();
        for (path, node) in self.now.tree.nodes.iter().rev() {
            let step = self.steps.get(path);
            let goes = step.is_some_and(Step::removes);
            let is_blocked = goes && node.is_dir() && held.contains(path.as_slice());
            if is_blocked {
                blocked.push((path.clone(), step.is_some_and(|step| step.want.is_some())));
            }
            if !goes || is_blocked {
                held.extend(parent(path));
            }
        }
        for (path, in_the_way) in blocked {
            self.steps.remove(&path);
            let why = match in_the_way {
                true => "a directory with files that stay is in the way",
                false => "the directory holds files that stay",
            };
            self.keep(&path, why);
        }
    }

    /// What is put somewhere needs its directories; where there is something else that stays, it cannot be put.
    fn make_parents(&mut self, modes: &Tree) {
        let puts: Vec<RelPath> =
            self.steps.values().filter(|step| step.want.is_some()).map(|step| step.path.clone()).collect();
        for path in puts {
            let mut missing = Vec::new();
            let mut fits = true;
            for dir in parents(&path) {
                let step = self.steps.get(dir);
                let (there, wanted) = (self.now.tree.get(dir), step.map(|step| step.want.as_ref()));
                match (wanted, there) {
                    (Some(Some(Node::Dir { .. })), _) => {}
                    // It would go, but something is put into it.
                    (Some(None), Some(Node::Dir { .. })) => missing.push((dir.to_vec(), true)),
                    (None, Some(Node::Dir { .. })) => {}
                    (None, None) => missing.push((dir.to_vec(), false)),
                    _ => fits = false,
                }
            }
            if !fits {
                self.steps.remove(&path);
                self.keep(&path, "its directory is something else now");
                continue;
            }
            for (dir, stays) in missing {
                if stays {
                    self.steps.remove(&dir);
                } else {
                    let mode = match modes.get(&dir) {
                        Some(Node::Dir { mode }) => *mode,
                        _ => NEW_DIR,
                    };
                    let want = Some(Node::Dir { mode });
                    let step = Step { path: dir.clone(), before: None, want, stat: None };
                    self.steps.insert(dir, step);
                }
            }
        }
    }

    fn opened(&self) -> Vec<Opened> {
        let writes = |step: &&Step| {
            step.removes() || !step.want.as_ref().is_some_and(Node::is_dir) || step.before.is_none()
        };
        let dirs: BTreeSet<&[u8]> =
            self.steps.values().filter(writes).map(|step| parent(&step.path).unwrap_or_default()).collect();
        let opened = |dir: &[u8]| {
            let before = match self.now.tree.get(dir) {
                Some(Node::Dir { mode }) if mode & OPEN != OPEN => *mode,
                _ => return None,
            };
            let after = match self.steps.get(dir).map(|step| &step.want) {
                None => Some(before),
                Some(Some(Node::Dir { mode })) => Some(*mode),
                Some(_) => None,
            };
            Some(Opened { path: PathText(dir.to_vec()), before, after })
        };
        dirs.into_iter().filter_map(opened).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Hash, shown};

    fn file(text: &str) -> Node {
        Node::File { mode: 0o644, size: text.len() as u64, pieces: vec![Hash::of(text.as_bytes())] }
    }

    /// `a/` is a directory, `a=x` a file, `a>x` a link.
    fn tree(words: &str) -> Tree {
        let mut tree = Tree::default();
        for word in words.split_whitespace() {
            let (path, node) = if let Some(dir) = word.strip_suffix('/') {
                (dir, Node::Dir { mode: 0o755 })
            } else if let Some((path, text)) = word.split_once('=') {
                (path, file(text))
            } else {
                let (path, target) = word.split_once('>').unwrap();
                (path, Node::Link { target: target.into() })
            };
            tree.nodes.insert(path.into(), node);
        }
        tree
    }

    fn walked(words: &str) -> Walked {
        Walked { tree: tree(words), ..Walked::default() }
    }

    fn told(plan: &Plan) -> String {
        let report = plan.report();
        let changed = report.changed.iter().map(|changed| {
            let sign = match changed.change {
                Change::Created => '+',
                Change::Changed => '~',
                Change::Removed => '-',
            };
            format!("{sign}{}", shown(&changed.path.0))
        });
        let kept = report.kept.iter().map(|kept| format!("!{}", shown(&kept.path.0)));
        changed.chain(kept).collect::<Vec<_>>().join(" ")
    }

    fn restore(target: &str, now: Walked, rules: &str) -> String {
        let (target, mut ignored) = (tree(target), Ignored::default());
        ignored.add(b"", rules.as_bytes());
        told(&plan(&whole(&target, &ignored, &now.tree), &now, &target))
    }

    #[test]
    fn a_restore_makes_changes_and_removes_what_differs_and_nothing_else() {
        let now = walked("same=1 d/ d/x=2 new=1 old/ old/y=1 l>b");
        assert_eq!(restore("same=1 d/ d/x=1 gone=1 e/ l>a", now, ""), "~d/x +e +gone ~l -new -old -old/y");
    }

    #[test]
    fn files_and_directories_change_places() {
        assert_eq!(restore("a=1 b/ b/c=1", walked("a/ a/x=1 b=1"), ""), "~a -a/x ~b +b/c");
        let linked = walked("b>/etc");
        assert_eq!(restore("b/ b/c=1", linked, ""), "~b +b/c");
    }

    #[test]
    fn what_the_snapshot_ignored_or_left_out_stays_and_keeps_its_directory() {
        let now = Walked { crowded: [b"d".to_vec()].into(), ..walked("d/ d/x=1 o/ o/build=1 t=1") };
        assert_eq!(restore("", now, "build"), "-d/x -t !d !o");
        let now = Walked { crowded: [b"d".to_vec()].into(), ..walked("d/ d/x=1") };
        assert_eq!(restore("d=1", now, ""), "-d/x !d", "the directory is in the way");
        let mut now = walked("");
        now.tree.left_out.insert(b"d".to_vec(), "unreadable".into());
        assert_eq!(restore("d/ d/x=1 y=1", now, ""), "+y !d !d/x");
    }

    #[test]
    fn a_wish_with_a_guard_is_fulfilled_only_if_nobody_changed_the_file_since() {
        let wish = |want: Option<Node>, is: Option<Node>| Wish { want, guard: Guard::Is(is) };
        let wishes = Wishes::from([
            (b"a".to_vec(), wish(Some(file("1")), Some(file("2")))),
            (b"b".to_vec(), wish(Some(file("1")), Some(file("2")))),
            (b"c".to_vec(), wish(None, Some(file("2")))),
            (b"d/e".to_vec(), wish(Some(file("1")), None)),
            (b"f".to_vec(), wish(Some(file("1")), Some(file("2")))),
        ]);
        let now = walked("a=2 b=hand c=2 f=1");
        let plan = plan(&wishes, &now, &Tree::default());
        assert_eq!(told(&plan), "~a -c +d +d/e !b");
        assert!(plan.opened.is_empty());
    }

    #[test]
    fn a_directory_that_is_read_only_is_opened_and_closed_again() {
        let mut now = walked("d/ d/x=2");
        now.tree.nodes.insert(b"d".to_vec(), Node::Dir { mode: 0o555 });
        let target = {
            let mut target = tree("d/ d/x=1");
            target.nodes.insert(b"d".to_vec(), Node::Dir { mode: 0o500 });
            target
        };
        let plan = plan(&whole(&target, &Ignored::default(), &now.tree), &now, &target);
        let opened = Opened { path: PathText(b"d".to_vec()), before: 0o555, after: Some(0o500) };
        assert_eq!(plan.opened, [opened]);
    }
}
