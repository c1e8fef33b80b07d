//! What a cage shows of the host so that things run and build in it: the system, and the user's toolchains. All of it
//! is read-only, and none of it has credentials. And where a program of the host is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::CageError;
use super::value::{Access, Cage, Mount, Net};

/// Top-level directories of programs and libraries. On most systems all but the first are links into it.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs read of `/etc`. The rest is not there: it has passwords, keys and settings of the machine.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "inputrc",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "python3",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];
/// Only of use with a network.
const ETC_NET: &[&str] = &["gai.conf", "host.conf", "hosts", "resolv.conf"];
/// Toolchains below a home directory. `~/.cargo` as a whole has the tokens of registries.
const TOOLCHAINS: &[&str] =
    &[".cargo/bin", ".cargo/registry", ".cargo/git", ".rustup", ".nvm", ".pyenv", "go/bin", "go/pkg/mod"];
/// Directories of programs in toolchains, in the order in which `PATH` has them.
const TOOL_PATHS: &[&str] = &[".cargo/bin", ".pyenv/shims", ".pyenv/bin", "go/bin"];
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The host's system, read-only.
pub fn system_mounts(net: Net) -> Vec<Mount> {
    let etc = ETC.iter().chain(if net == Net::Host { ETC_NET } else { &[] });
    let etc = etc.map(|name| Path::new("/etc").join(name));
    PROGRAMS.iter().map(PathBuf::from).chain(etc).filter_map(|path| as_it_is(&path)).collect()
}

/// A link stays a link where its target will be there too; everything else is mounted, if it exists.
fn as_it_is(path: &Path) -> Option<Mount> {
    let is_program = PROGRAMS.iter().any(|program| Path::new(program) == path);
    match std::fs::read_link(path) {
        Ok(target) if is_program => {
            Some(Mount { source: target, target: path.to_owned(), access: Access::Link })
        }
        _ => path.exists().then(|| Mount::ro(path, path)),
    }
}

/// The toolchains of a user, as a cage shows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toolchains {
    pub mounts: Vec<Mount>,
    /// Their directories of programs, as paths inside.
    pub paths: Vec<PathBuf>,
}

impl Toolchains {
    /// Those below a home directory that the cage's owner can read: `can_read` is asked for each. None: only the
    /// system's.
    pub fn find(home: Option<&Path>, can_read: impl Fn(&Path) -> bool) -> Toolchains {
        let mut found = Toolchains::default();
        let inside = Path::new(Cage::HOME);
        for (name, source) in
            home.into_iter().flat_map(|home| TOOLCHAINS.iter().map(|name| (*name, home.join(name))))
        {
            if !can_read(&source) {
                continue;
            }
            found.mounts.push(Mount::ro(&source, inside.join(name)));
            // Scripts of toolchains begin with the full name of their interpreter.
            if home != Some(inside) {
                let link = Mount { source: inside.join(name), target: source.clone(), access: Access::Link };
                found.mounts.push(link);
            }
            let of_it = TOOL_PATHS.iter().filter(|path| Path::new(path).starts_with(name));
            found.paths.extend(of_it.map(|path| inside.join(path)));
            if name == ".nvm" {
                let version = newest_node(&source);
                found.paths.extend(
                    version.map(|version| inside.join(".nvm/versions/node").join(version).join("bin")),
                );
            }
        }
        if Path::new("/usr/local/go/bin").is_dir() {
            found.paths.push(PathBuf::from("/usr/local/go/bin"));
        }
        found
    }

    /// Puts them into a cage, and sets `PATH`.
    pub fn add_to(&self, cage: &mut Cage) {
        cage.mounts.extend(self.mounts.iter().cloned());
        let own: String = self.paths.iter().map(|path| format!("{}:", path.display())).collect();
        cage.env.insert("PATH".to_owned(), format!("{own}{SYSTEM_PATH}"));
    }
}

/// The newest version of Node that nvm has: `v22.1.0` is newer than `v9.0.0`.
fn newest_node(nvm: &Path) -> Option<String> {
    let entries = std::fs::read_dir(nvm.join("versions/node")).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.max_by_key(|name| {
        let numbers =
            name.trim_start_matches('v').split('.').map(|number| number.parse::<u64>().unwrap_or(0));
        numbers.collect::<Vec<_>>()
    })
}

/// The program, where it is in this `PATH`.
pub fn find_bwrap(path: &OsStr) -> Result<PathBuf, CageError> {
    find("bwrap", path).ok_or(CageError::NoBwrap)
}

/// A program's file in a search path; a name with a slash is the file itself.
pub fn find(name: impl AsRef<Path>, path: &OsStr) -> Option<PathBuf> {
    let name = name.as_ref();
    let executable =
        |file: &PathBuf| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file();
    if name.components().count() > 1 {
        return Some(name.to_owned()).filter(executable);
    }
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(executable)
}
