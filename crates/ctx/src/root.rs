//! The root that a command works on: the directory with the sessions and the daemon's socket.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_journal::FileJournal;
use ctx_session::Code;
use ctx_views::RootDir;
use ctx_views::read::Reader;

use crate::failure::Failure;

const SYSTEM_ROOT: &str = "/ctx";
/// Where the index is beneath the root.
pub const INDEX: &str = ".state/index.db";

/// The root as a command sees it; it may not exist yet.
#[derive(Debug, Clone)]
pub struct Root {
    pub path: PathBuf,
}

impl Root {
    /// The root of a client: the given one, else `/ctx` if it exists or can be created, else the user's own.
    pub fn of_client(given: Option<PathBuf>) -> Result<Root, Failure> {
        let system = Path::new(SYSTEM_ROOT);
        let there = system.join(".state").exists();
        Root::choose(given, there || may_keep(system))
    }

    /// The root of a daemon: the given one, else `/ctx` if it is writable, else the user's own.
    pub fn of_daemon(given: Option<PathBuf>) -> Result<Root, Failure> {
        Root::choose(given, may_keep(Path::new(SYSTEM_ROOT)))
    }

    fn choose(given: Option<PathBuf>, system: bool) -> Result<Root, Failure> {
        let path = match given {
            Some(path) if path.as_os_str().is_empty() => {
                return Err(Failure::new(Code::Einval, "the root is empty: name a directory"));
            }
            Some(path) => path,
            None if system => PathBuf::from(SYSTEM_ROOT),
            None => xdg("XDG_DATA_HOME", ".local/share")?.join("ctx"),
        };
        let path = std::path::absolute(&path).map_err(|error| Failure::io(path.display(), error))?;
        if path.exists() && !path.is_dir() {
            let message = format!("{} is not a directory, and so no root; name a directory", path.display());
            return Err(Failure::new(Code::Einval, message));
        }
        Ok(Root { path })
    }

    /// Reads the files of the tree; no daemon is needed.
    pub fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(&self.dir()?, self.journal()?))
    }

    /// Reads logs; no daemon is needed.
    pub fn journal(&self) -> Result<Arc<FileJournal>, Failure> {
        let journal = FileJournal::at(&self.path);
        Ok(Arc::new(journal.map_err(|error| Failure::io(self.path.display(), error))?))
    }

    pub fn dir(&self) -> Result<RootDir, Failure> {
        RootDir::open(&self.path).map_err(|error| match error.is_not_found() {
            true => {
                let message = format!("there is no session yet: {} does not exist", self.path.display());
                Failure::new(Code::Enoent, message).hint(
                    "`ctx chat` starts the first session; --root or CTX_ROOT names another place with sessions",
                )
            }
            false => error.into(),
        })
    }

    /// Whether nobody has used it yet.
    pub fn is_new(&self) -> bool {
        RootDir::open(&self.path).is_err_and(|error| error.is_not_found())
    }

    /// Whether a daemon listens.
    pub fn is_up(&self) -> bool {
        let path = ctx_doors::unix::short_path(&self.api_socket());
        path.is_ok_and(|(short, _dir)| std::os::unix::net::UnixStream::connect(short).is_ok())
    }

    /// The process that listens on the API's socket, if there is one. The kernel names it, so a file that a killed
    /// daemon left behind misleads nobody.
    pub fn daemon(&self) -> Result<Option<rustix::net::UCred>, Failure> {
        let connected = ctx_doors::unix::short_path(&self.api_socket())
            .and_then(|(short, _dir)| std::os::unix::net::UnixStream::connect(short));
        match connected {
            Ok(stream) => rustix::net::sockopt::socket_peercred(&stream)
                .map(Some)
                .map_err(|error| Failure::io("cannot see who listens", error.into())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(Failure::io(self.api_socket().display(), error)),
        }
    }

    /// The socket of the API.
    pub fn api_socket(&self) -> PathBuf {
        self.path.join(".state/api.sock")
    }

    /// The failure of a command that needs a daemon when none is running.
    pub fn daemon_down(&self) -> Failure {
        Failure::new(Code::Ehostdown, format!("no daemon is running at {}", self.path.display()))
            .hint(format!("start one with `ctx serve --detach --root {}`", shell_word(&self.path)))
    }
}

/// Whether a daemon of this user may keep its files there.
fn may_keep(path: &Path) -> bool {
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if path.exists() { writable(path) } else { path.parent().is_some_and(writable) }
}

/// A directory of the XDG specification, or its default in the home directory.
pub fn xdg(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match (set(variable).filter(|path| path.is_absolute()), set("HOME")) {
        (Some(path), _) => Ok(path),
        (None, Some(home)) => Ok(home.join(below_home)),
        (None, None) => Err(Failure::new(Code::Einval, format!("neither {variable} nor HOME is set"))
            .hint("name the directory with --root or CTX_ROOT")),
    }
}

/// A path quoted for a shell.
pub fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
