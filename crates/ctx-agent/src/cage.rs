//! The cage of an agent: what its session, its project and the operator say, as one value.
//!
//! [`Ground::look`] finds what there is on the machine; [`Ground::cage`] is a pure function of that and of what is asked
//! for. Whether a project file's wishes hold is decided by whoever prepares a run.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_cage::rights::{self, Rights};
use ctx_cage::{Cage, CageError, Net, Owner, Toolchains, system_mounts};
use ctx_session::{Code, Name, Refusal};
use rustix::process::geteuid;

use crate::control::mount::{Access, Mount};
use crate::project::{Cage as Wishes, Git, WORK};

/// What a machine has for an agent's cage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// As whom its processes run.
    pub owner: Owner,
    /// What the agent sees of the machine's files, its project among them.
    pub mounts: Vec<ctx_cage::Mount>,
    /// The home that the agent keeps; None: one in memory.
    pub home: Option<PathBuf>,
    pub system: Vec<ctx_cage::Mount>,
    /// The same for a cage with a network.
    pub system_net: Vec<ctx_cage::Mount>,
    pub toolchains: Toolchains,
    /// `.git` of the project.
    pub git: Option<PathBuf>,
    /// The daemon's root where it lies in the project, as a path inside.
    pub covered: Option<PathBuf>,
    /// The directories of a cage of root's in which root's files are the cage's.
    pub lent: Vec<PathBuf>,
}

/// For whom a cage is.
#[derive(Debug, Clone, Copy)]
pub struct CageFor<'a> {
    /// The root of the tree.
    pub root: &'a Path,
    pub agent: &'a str,
    /// The session's owner.
    pub uid: u32,
    /// Where the owner's toolchains are.
    pub user_home: Option<&'a Path>,
    pub mounts: &'a [Mount],
}

impl Ground {
    /// Looks at the machine, and makes the agent's home where there is none. Blocks on the disk.
    pub fn look(whose: &CageFor<'_>) -> Result<Ground, CageError> {
        let project = whose.mounts.iter().find(|mount| mount.target == Path::new(WORK));
        let project = project.map(|mount| mount.source.as_path());
        let owner = owner_of(whose.uid, project)?;
        let rights = Rights::of(owner.uid()).map_err(|error| CageError::Input(error.to_string()))?;
        let can_read = |path: &Path| rights.act(|| std::fs::read_dir(path).is_ok()).unwrap_or(false);
        let lends = whose.uid == 0 && owner == Owner::NOBODY && geteuid().is_root();
        let can_lend = |path: &Path| lends && path.is_dir();
        let toolchains = Toolchains::find(whose.user_home, |path| can_lend(path) || can_read(path));
        let of_toolchains = toolchains.mounts.iter().filter(|mount| mount.access != ctx_cage::Access::Link);
        let lent =
            whose.mounts.iter().map(|mount| &mount.source).chain(of_toolchains.map(|mount| &mount.source));
        let lent = lent.filter(|source| can_lend(source)).cloned().collect();
        let below = project.and_then(|project| whose.root.strip_prefix(project).ok());
        let git = project.map(|project| project.join(".git"));
        Ok(Ground {
            owner,
            mounts: whose.mounts.iter().map(as_it_is).collect(),
            home: agent_home(whose, owner).filter(|home| !home.exists() || can_read(home)),
            system: system_mounts(Net::None),
            system_net: system_mounts(Net::Host),
            toolchains,
            git: git.filter(|git| git.symlink_metadata().is_ok()),
            // The daemon's files are not for the cage.
            covered: below.filter(|_| whose.root.is_dir()).map(|below| Path::new(WORK).join(below)),
            lent,
        })
    }

    /// The cage that this and all wishes make; a later wish holds before an earlier one. What only subagents have, a limit
    /// on time, is for the caller to wish.
    pub fn cage(&self, wishes: &[&Wishes]) -> Cage {
        let last = |of: fn(&Wishes) -> Option<u64>| wishes.iter().rev().find_map(|wish| of(wish));
        let mut made = Cage { mounts: self.mounts.clone(), ..Cage::new(self.owner, Path::new(WORK)) };
        made.net = wishes.iter().rev().find_map(|wish| wish.net).unwrap_or_default();
        made.mounts.extend(match made.net {
            Net::None => self.system.iter().cloned(),
            Net::Host => self.system_net.iter().cloned(),
        });
        if let Some(home) = &self.home {
            made.mounts.push(ctx_cage::Mount::rw(home, Cage::HOME));
        }
        self.toolchains.add_to(&mut made);
        let git = wishes.iter().rev().find_map(|wish| wish.git).unwrap_or(Git::Ro);
        if let Some(path) = self.git.as_ref().filter(|_| git == Git::Ro) {
            // Its hooks and settings would run outside of the cage.
            made.mounts.push(ctx_cage::Mount::ro(path, Path::new(WORK).join(".git")));
        }
        made.limits.memory_bytes = last(|wish| wish.memory_bytes).unwrap_or(made.limits.memory_bytes);
        made.limits.tmp_bytes = last(|wish| wish.tmp_bytes).unwrap_or(made.limits.tmp_bytes);
        made.limits.walltime = last(|wish| wish.walltime_ms).map(Duration::from_millis);
        let processes = wishes.iter().rev().find_map(|wish| wish.processes);
        made.limits.processes = processes.unwrap_or(made.limits.processes);
        for wish in wishes {
            made.mounts.extend(wish.mounts.iter().cloned());
            made.env.extend(wish.env.clone());
            if !wish.path.is_empty() {
                let path = made.env.entry("PATH".to_owned()).or_default();
                *path = format!("{}:{path}", wish.path.join(":"));
            }
        }
        made.covered.extend(self.covered.clone());
        made.lent.clone_from(&self.lent);
        made.cwd = match made.mounts.iter().any(|mount| mount.target == Path::new(WORK)) {
            true => PathBuf::from(WORK),
            false => PathBuf::from("/"),
        };
        made
    }
}

/// A cage in one line, for the `context` record of a run: what of it is not the same for everybody. The values of variables
/// are left out.
fn in_words(made: &Cage, ground: &Ground) -> String {
    let limits = &made.limits;
    let walltime = limits.walltime.map_or("none".to_owned(), |time| format!("{}ms", time.as_millis()));
    let usual = [&ground.system, &ground.system_net, &ground.toolchains.mounts];
    let mounts = made.mounts.iter().filter(|mount| !usual.iter().any(|usual| usual.contains(mount)));
    let mounts: Vec<String> = mounts
        .map(|mount| {
            let access = if mount.access == ctx_cage::Access::Rw { "rw" } else { "ro" };
            format!("{}:{}:{access}", mount.source.display(), mount.target.display())
        })
        .collect();
    let env: Vec<&str> = made.env.keys().map(String::as_str).collect();
    format!(
        "uid={} net={} memory={}M processes={} walltime={walltime} tmp={}M env={} mounts={}",
        made.owner.uid(),
        if made.net == Net::Host { "host" } else { "none" },
        limits.memory_bytes >> 20,
        limits.processes,
        limits.tmp_bytes >> 20,
        env.join(","),
        mounts.join(" "),
    )
}

/// What the operator says of all cages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CageRules {
    /// Commands run without any cage.
    pub is_off: bool,
    /// `[cage]` of the config file.
    pub wishes: Wishes,
}

/// What holds for the cages of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cages {
    is_off: bool,
    user_home: Option<PathBuf>,
    ground: Result<Ground, Refusal>,
    /// Of all cages: the operator's, the agent's, the project's, the run's.
    wishes: Vec<Wishes>,
    /// Whether what the project file asks for holds, and whether it asks for something.
    is_trusted: bool,
    asks: bool,
    project: Name,
}

/// Which of the wishes is the run's.
const RUN_WISH: usize = 3;

/// What is asked of the cages of one run.
#[derive(Debug, Clone, Copy)]
pub struct CageAsk<'a> {
    pub rules: &'a CageRules,
    /// Where the session owner's toolchains are.
    pub user_home: Option<&'a Path>,
    /// Whether the owner trusts the project file.
    pub is_trusted: bool,
    /// The network that the run is to have; None: as everything else says.
    pub net: Option<Net>,
}

impl Cages {
    /// Blocks on the disk.
    pub fn look(whose: &CageFor<'_>, ask: &CageAsk<'_>, agent: Wishes, project: (&Name, &Wishes)) -> Cages {
        let (name, project) = project;
        let run = Wishes { net: ask.net, ..Wishes::default() };
        Cages {
            is_off: ask.rules.is_off,
            user_home: ask.user_home.map(Path::to_owned),
            ground: Ground::look(whose).map_err(Refusal::from),
            is_trusted: ask.is_trusted,
            asks: !project.is_empty(),
            project: name.clone(),
            wishes: vec![ask.rules.wishes.clone(), agent, project.clone(), run],
        }
    }

    /// The home of the session's owner.
    pub fn user_home(&self) -> Option<&Path> {
        self.user_home.as_deref()
    }

    /// The cage of the agent itself; None: the operator wants none.
    pub fn own(&self) -> Result<Option<Cage>, Refusal> {
        self.made(None)
    }

    /// The cage of a subagent, with what its part of the project file asks for.
    /// `walltime_ms`: what it has where that does not say.
    pub fn of_subagent(&self, wishes: &Wishes, walltime_ms: u64) -> Result<Option<Cage>, Refusal> {
        self.made(Some((Wishes { walltime_ms: Some(walltime_ms), ..Wishes::default() }, wishes)))
    }

    /// The cage of an MCP server, with what its entry asks for. It lives longer than a run, so what a run wishes is not for it.
    pub fn of_server(&self, wishes: &Wishes) -> Result<Option<Cage>, Refusal> {
        let of_all = self.wishes.get(..RUN_WISH).unwrap_or(&self.wishes).to_vec();
        Cages { wishes: of_all, ..self.clone() }.made(Some((Wishes::default(), wishes)))
    }

    /// `more`: what such a cage has by default, and what this one asks for.
    fn made(&self, more: Option<(Wishes, &Wishes)>) -> Result<Option<Cage>, Refusal> {
        if self.is_off {
            return Ok(None);
        }
        if !self.is_trusted && (self.asks || more.as_ref().is_some_and(|(_, wishes)| !wishes.is_empty())) {
            return Err(not_trusted(&self.project));
        }
        let ground = self.ground.as_ref().map_err(Clone::clone)?;
        let more = more.iter().flat_map(|(usual, asked)| [usual, *asked]);
        let wishes: Vec<&Wishes> = self.wishes.iter().chain(more).collect();
        Ok(Some(ground.cage(&wishes)))
    }

    /// One line for the `context` record of the run.
    pub fn in_words(&self) -> String {
        match (self.own(), &self.ground) {
            (Ok(Some(made)), Ok(ground)) => in_words(&made, ground),
            (Ok(_), _) => "off".to_owned(),
            (Err(refusal), _) => format!("refused: {}", refusal.message),
        }
    }
}

fn not_trusted(project: &Name) -> Refusal {
    let message = format!(
        "the project file of {project} asks for a cage of its own, which holds only when you trust the file; read it, \
         then run `ctx project trust`"
    );
    Refusal::new(Code::Eacces, message)
}

fn as_it_is(mount: &Mount) -> ctx_cage::Mount {
    match mount.access {
        Access::ReadOnly => ctx_cage::Mount::ro(&mount.source, &mount.target),
        Access::ReadWrite => ctx_cage::Mount::rw(&mount.source, &mount.target),
    }
}

/// The session's owner. Root has no cages: for root it is the owner of the project, and nobody if that is root too.
fn owner_of(uid: u32, project: Option<&Path>) -> Result<Owner, CageError> {
    if uid != 0 {
        let own = geteuid().as_raw();
        let gid = match own == uid {
            true => rustix::process::getegid().as_raw(),
            false => {
                let groups = rights::groups_of(uid).map_err(|error| CageError::Input(error.to_string()))?;
                groups.first().copied().unwrap_or(Owner::NOBODY.gid())
            }
        };
        return Ok(Owner::new(uid, gid));
    }
    let Some(project) = project else { return Ok(Owner::NOBODY) };
    let data = std::fs::metadata(project).map_err(|error| CageError::Source {
        path: project.to_owned(),
        uid,
        error,
    })?;
    Ok(Owner::new(data.uid(), data.gid()))
}

/// The home that an agent keeps between commands; None where the root is not ours to keep it in. It is made with the first
/// command, see [`make_home`]: by then the session has made the directories above it, for their reader.
fn agent_home(whose: &CageFor<'_>, owner: Owner) -> Option<PathBuf> {
    let own = geteuid().as_raw();
    let is_ours = std::fs::metadata(whose.root.join(".state")).is_ok_and(|data| data.uid() == own);
    is_ours.then(|| whose.root.join(format!("home/{}/agent/{}/home", owner.uid(), whose.agent)))
}

/// Makes the home of a cage that is about to start, if it is missing.
pub fn make_home(cage: &Cage) -> Result<(), CageError> {
    let homes = cage.mounts.iter().filter(|mount| mount.target == Path::new(Cage::HOME));
    for home in homes.map(|mount| &mount.source).filter(|home| !home.is_dir()) {
        let failed = |error| CageError::Io { what: format!("cannot make {}", home.display()), error };
        // Where no session was yet, its user passes through these directories, and others cannot list them.
        if let Some(parent) = home.parent().filter(|parent| !parent.is_dir()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o711).create(parent).map_err(failed)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(home) {
            // Another cage of the agent starts at the same moment.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            made => made.map_err(failed)?,
        }
        if geteuid().is_root() {
            chown(home, Some(cage.owner.uid()), Some(cage.owner.gid())).map_err(failed)?;
        }
    }
    Ok(())
}
