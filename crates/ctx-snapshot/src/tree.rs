//! What a snapshot says of the files: every path with its kind, mode and content, and what it knows nothing of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::codec::{Reader, Writer};

/// A path from the workspace on, in the bytes of the disk, without a slash at either end.
pub type RelPath = Vec<u8>;

/// A file has its content in pieces of this size; most have one.
pub const PIECE_BYTES: usize = 4 << 20;
const VERSION: u64 = 1;

/// The name of some content: its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }

    pub fn parse(text: &str) -> Option<Hash> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is at a path. Times, owner and the number of links are no part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Dir { mode: u32 },
    File { mode: u32, size: u64, pieces: Vec<Hash> },
    Link { target: Vec<u8> },
}

impl Node {
    pub fn is_dir(&self) -> bool {
        matches!(self, Node::Dir { .. })
    }

    /// Whether one can become the other without being removed first.
    pub fn is_like(&self, other: &Node) -> bool {
        self.is_dir() == other.is_dir()
    }
}

/// The lines of an ignore file above the workspace, which hold in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outer {
    /// Where the workspace is, from the directory of the file.
    pub below: RelPath,
    pub text: Vec<u8>,
}

/// The files of a workspace at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    pub nodes: BTreeMap<RelPath, Node>,
    /// Whether ignored files are part of it.
    pub with_ignored: bool,
    pub outer: Vec<Outer>,
    /// What is neither ignored nor part of it, and why: it could not be read, or is no file. A directory may be here and
    /// among the nodes: its mode is known, and what is in it is not.
    pub left_out: BTreeMap<RelPath, String>,
    /// Paths that were looked at by name and were not there, though its rules ignore them.
    pub absent: BTreeSet<RelPath>,
}

/// What a tree has, as bits.
const WITH_IGNORED: u64 = 1;
const WITH_ABSENT: u64 = 2;

impl Tree {
    pub fn get(&self, path: &[u8]) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub fn files(&self) -> u64 {
        self.nodes.values().filter(|node| !node.is_dir()).count() as u64
    }

    pub fn bytes(&self) -> u64 {
        let size = |node: &Node| match node {
            Node::File { size, .. } => *size,
            Node::Dir { .. } | Node::Link { .. } => 0,
        };
        self.nodes.values().map(size).sum()
    }

    /// Every piece of content that the tree needs.
    pub fn pieces(&self) -> impl Iterator<Item = Hash> {
        self.nodes
            .values()
            .flat_map(|node| match node {
                Node::File { pieces, .. } => pieces.as_slice(),
                Node::Dir { .. } | Node::Link { .. } => &[],
            })
            .copied()
    }

    /// The paths at which two trees differ.
    pub fn differing<'a>(&'a self, other: &'a Tree) -> BTreeSet<&'a RelPath> {
        let differs = |path: &&RelPath| self.get(path) != other.get(path);
        self.nodes.keys().chain(other.nodes.keys()).filter(differs).collect()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.number(VERSION);
        let absent = if self.absent.is_empty() { 0 } else { WITH_ABSENT };
        to.number(u64::from(self.with_ignored) * WITH_IGNORED + absent);
        to.number(self.outer.len() as u64);
        for outer in &self.outer {
            to.bytes(&outer.below);
            to.bytes(&outer.text);
        }
        to.number(self.left_out.len() as u64);
        for (path, why) in &self.left_out {
            to.bytes(path);
            to.bytes(why.as_bytes());
        }
        if !self.absent.is_empty() {
            to.number(self.absent.len() as u64);
            self.absent.iter().for_each(|path| to.bytes(path));
        }
        for (path, node) in &self.nodes {
            to.bytes(path);
            match node {
                Node::Dir { mode } => {
                    to.number(0);
                    to.number(u64::from(*mode));
                }
                Node::File { mode, size, pieces } => {
                    to.number(1);
                    to.number(u64::from(*mode));
                    to.number(*size);
                    to.number(pieces.len() as u64);
                    pieces.iter().for_each(|piece| to.0.extend_from_slice(&piece.0));
                }
                Node::Link { target } => {
                    to.number(2);
                    to.bytes(target);
                }
            }
        }
        to.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Tree> {
        let from = &mut Reader(bytes);
        if from.number()? != VERSION {
            return None;
        }
        let has = from.number()?;
        let mut tree = Tree { with_ignored: has & WITH_IGNORED != 0, ..Tree::default() };
        for _ in 0..from.number()? {
            tree.outer.push(Outer { below: from.bytes()?.to_vec(), text: from.bytes()?.to_vec() });
        }
        for _ in 0..from.number()? {
            let path = from.bytes()?.to_vec();
            tree.left_out.insert(path, String::from_utf8_lossy(from.bytes()?).into_owned());
        }
        if has & WITH_ABSENT != 0 {
            for _ in 0..from.number()? {
                tree.absent.insert(from.bytes()?.to_vec());
            }
        }
        while !from.is_empty() {
            let path = from.bytes()?.to_vec();
            tree.nodes.insert(path, node(from)?);
        }
        Some(tree)
    }
}

fn node(from: &mut Reader<'_>) -> Option<Node> {
    Some(match from.number()? {
        0 => Node::Dir { mode: u32::try_from(from.number()?).ok()? },
        1 => {
            let (mode, size) = (u32::try_from(from.number()?).ok()?, from.number()?);
            Node::File { mode, size, pieces: pieces(from)? }
        }
        2 => Node::Link { target: from.bytes()?.to_vec() },
        _ => return None,
    })
}

pub(super) fn pieces(from: &mut Reader<'_>) -> Option<Vec<Hash>> {
    let count = from.number()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        pieces.push(Hash(from.take(32)?.try_into().ok()?));
    }
    Some(pieces)
}

/// The directory that a path is in; none for one at the top.
pub fn parent(path: &[u8]) -> Option<&[u8]> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    path.get(..at)
}

/// The directories that a path is in, the innermost first.
pub fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(parent(path), |path| parent(path))
}

pub fn join(dir: &[u8], name: &[u8]) -> RelPath {
    match dir {
        [] => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    }
}

/// A path as text that can be read back: what is no plain text is written as `\xNN`.
pub fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                char if char.is_control() => {
                    let mut bytes = [0; 4];
                    escape(char.encode_utf8(&mut bytes).as_bytes(), &mut text);
                }
                char => text.push(char),
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    use fmt::Write;
    for byte in bytes {
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// The path that was shown so.
pub fn unshown(text: &str) -> Option<RelPath> {
    let mut path = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                path.push(b'\\');
                after
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                path.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                after
            }
            (b'\\', _) => return None,
            (byte, after) => {
                path.push(*byte);
                after
            }
        };
    }
    Some(path)
}

/// A path in JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathText(pub RelPath);

impl Serialize for PathText {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&shown(&self.0))
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        unshown(&text).map(PathText).ok_or_else(|| serde::de::Error::custom("a path with a broken escape"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> impl Strategy<Value = Node> {
        let hash = any::<[u8; 32]>().prop_map(Hash);
        prop_oneof![
            any::<u32>().prop_map(|mode| Node::Dir { mode }),
            (any::<u32>(), any::<u64>(), prop::collection::vec(hash, 0..3))
                .prop_map(|(mode, size, pieces)| Node::File { mode, size, pieces }),
            prop::collection::vec(any::<u8>(), 0..9).prop_map(|target| Node::Link { target }),
        ]
    }

    proptest! {
        #[test]
        fn a_tree_reads_back_as_it_was_written(
            nodes in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..9), node(), 0..9),
            with_ignored in any::<bool>(),
        ) {
            let outer = vec![Outer { below: b"a/b".to_vec(), text: b"x\n".to_vec() }];
            let left_out = BTreeMap::from([(b"s".to_vec(), "a socket".to_owned())]);
            let absent = left_out.keys().cloned().collect();
            let tree = Tree { nodes, with_ignored, outer, left_out, absent };
            prop_assert_eq!(Tree::decode(&tree.encode()), Some(tree));
        }

        #[test]
        fn bytes_that_are_no_tree_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = Tree::decode(&bytes);
        }

        #[test]
        fn a_path_that_is_shown_can_be_read_back(path in prop::collection::vec(any::<u8>(), 0..20)) {
            prop_assert_eq!(unshown(&shown(&path)), Some(path));
        }
    }

    #[test]
    fn a_path_is_shown_as_plain_as_it_is() {
        assert_eq!(shown("src/größe.rs".as_bytes()), "src/größe.rs");
        assert_eq!(shown(b"a\xffb\n\\"), "a\\xffb\\x0a\\\\");
        assert_eq!(unshown("a\\q"), None);
    }
}
