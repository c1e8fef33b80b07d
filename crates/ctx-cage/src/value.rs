//! What a cage is, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// A command's surroundings: what it sees, what it may change, and how much it may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cage {
    /// The user of the host whose rights the processes have. Never root.
    pub owner: Owner,
    /// In this order: a later one covers an earlier one.
    pub mounts: Vec<Mount>,
    /// Directories inside that are covered by an empty one: what lies there is not for the cage.
    pub covered: Vec<PathBuf>,
    /// Directories of the host, sources of mounts, in which root's files are the owner's. Only for a cage of root's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lent: Vec<PathBuf>,
    /// All variables of the command; nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub net: Net,
    pub limits: Limits,
    /// Where the command starts, as a path inside.
    pub cwd: PathBuf,
    /// Its stdin is a terminal that it may have as its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_terminal: bool,
}

impl Cage {
    /// The project of a cage, as a path inside.
    pub const WORK: &str = "/work";
    /// The home directory, as a path inside.
    pub const HOME: &str = "/home/agent";

    /// A cage with a project and nothing else: no system, so no command runs in it yet.
    pub fn new(owner: Owner, project: &Path) -> Cage {
        let mounts = vec![Mount::rw(project, Cage::WORK)];
        let env = [("HOME", Cage::HOME), ("USER", "agent"), ("LOGNAME", "agent"), ("LANG", "C.UTF-8")];
        Cage {
            owner,
            mounts,
            covered: Vec::new(),
            lent: Vec::new(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            net: Net::None,
            limits: Limits::default(),
            cwd: PathBuf::from(Cage::WORK),
            has_terminal: false,
        }
    }
}

/// A user of the host that is not root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Ids")]
pub struct Owner {
    uid: u32,
    gid: u32,
}

/// An owner as it is read: root is not one.
#[derive(Deserialize)]
struct Ids {
    uid: u32,
    gid: u32,
}

impl From<Ids> for Owner {
    fn from(Ids { uid, gid }: Ids) -> Owner {
        Owner::new(uid, gid)
    }
}

impl Owner {
    /// The kernel's number for "nobody".
    pub const NOBODY: Owner = Owner { uid: 65_534, gid: 65_534 };

    /// Root has no cage of its own: its cages are nobody's.
    pub fn new(uid: u32, gid: u32) -> Owner {
        match (uid, gid) {
            (0, _) => Owner::NOBODY,
            (uid, 0) => Owner { uid, gid: Owner::NOBODY.gid },
            (uid, gid) => Owner { uid, gid },
        }
    }

    pub fn uid(self) -> u32 {
        self.uid
    }

    pub fn gid(self) -> u32 {
        self.gid
    }
}

/// A file or directory of the host and its place inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub access: Access,
}

impl Mount {
    pub fn ro(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Mount {
        Mount { source: source.into(), target: target.into(), access: Access::Ro }
    }

    pub fn rw(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Mount {
        Mount { source: source.into(), target: target.into(), access: Access::Rw }
    }
}

/// What may be done with a mount. A link is made inside and needs nothing of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Ro,
    Rw,
    Link,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// Only a loopback device of its own.
    #[default]
    None,
    /// The network of the host.
    Host,
}

/// How much a cage may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: u64,
    pub processes: u32,
    /// Thousandths of a CPU; None: no limit.
    pub cpu_milli: Option<u32>,
    #[serde(rename = "walltime_secs", serialize_with = "seconds", deserialize_with = "from_seconds")]
    pub walltime: Option<Duration>,
    /// The size of `/tmp`, and of `/dev/shm`.
    pub tmp_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes: 2048 * MIB,
            processes: 512,
            cpu_milli: None,
            walltime: Some(Duration::from_secs(30 * 60)),
            tmp_bytes: 1024 * MIB,
        }
    }
}

fn seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

fn from_seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.and_then(|secs| Duration::try_from_secs_f64(secs).ok()))
}

/// A limit that ended a cage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Memory,
    Processes,
    Walltime,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Memory => "memory limit",
            Limit::Processes => "process limit",
            Limit::Walltime => "walltime",
        })
    }
}
