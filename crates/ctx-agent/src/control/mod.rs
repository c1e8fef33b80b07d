//! Control files: small text files in a `.d` directory, read with care.
//!
//! A file is opened beneath its directory without following links, must belong to the daemon's user or to root,
//! and must be small. What it says is checked by whoever asks; a bad value names the file, the line and the column.
//! What the lines of `mount` and `policy` mean is in the modules of these names; what all the files of an agent amount
//! to is in [`crate::describe`].

pub mod mount;
pub mod policy;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ctx_session::project::Problem;
use ctx_session::{Code, Name, Refusal};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Why a control file cannot be used. Nothing is changed by it.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("{file}:{line}:{column}: {problem}")]
    BadValue { file: String, line: usize, column: usize, problem: String },
    #[error("{file} is a link or a special file; replace it with a regular file")]
    NotAFile { file: String },
    #[error(
        "{file} belongs to uid {owner}; it must belong to the daemon's user or to root: change its owner"
    )]
    Owner { file: String, owner: u32 },
    #[error("{file} has more than {max} bytes; make it smaller")]
    TooLarge { file: String, max: usize },
    #[error("{file} is not UTF-8 from byte {byte} on; rewrite it")]
    NotText { file: String, byte: usize },
    #[error("{dir} does not exist; create it, or use a name that exists")]
    NoDirectory { dir: String },
    #[error("cannot read {file}: {source}")]
    Io { file: String, source: std::io::Error },
}

impl ControlError {
    pub fn code(&self) -> Code {
        match self {
            ControlError::BadValue { .. }
            | ControlError::NotAFile { .. }
            | ControlError::Owner { .. }
            | ControlError::TooLarge { .. }
            | ControlError::NotText { .. } => Code::Ebadmsg,
            ControlError::NoDirectory { .. } => Code::Enoent,
            ControlError::Io { .. } => Code::Eio,
        }
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Refusal {
        let refusal = Refusal::new(error.code(), error.to_string());
        let place = |at: usize| u64::try_from(at).unwrap_or(u64::MAX);
        match error {
            ControlError::BadValue { file, line, column, problem } => {
                let problem = Problem { file, line: place(line), column: place(column), message: problem };
                Refusal { problems: vec![problem], ..refusal }
            }
            ControlError::NotAFile { .. }
            | ControlError::Owner { .. }
            | ControlError::TooLarge { .. }
            | ControlError::NotText { .. }
            | ControlError::NoDirectory { .. }
            | ControlError::Io { .. } => refusal,
        }
    }
}

/// The control directory of an agent, below the root.
pub fn control_dir(agent: &Name) -> String {
    format!("agent/{agent}.d")
}

/// Where programs are looked for unless an agent says otherwise.
pub fn default_path() -> Vec<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec()
}

/// An object's control directory, held open so that all its files come from the same one.
#[derive(Debug)]
pub struct ControlDir {
    dir: OwnedFd,
    /// As people write it: `agent/coder.d`.
    label: String,
    file_bytes_max: usize,
}

/// One meaningful line of a control file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    pub number: usize,
    /// Where its text begins: in characters, from 1.
    pub column: usize,
    pub text: &'a str,
}

/// The text of a control file, with its name for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlText {
    pub file: String,
    pub text: String,
}

impl ControlDir {
    /// Opens `<root>/<path>`, a path of checked names such as `agent/coder.d`.
    pub fn open(root: &Path, path: &str, file_bytes_max: usize) -> Result<ControlDir, ControlError> {
        let io = |source: Errno| ControlError::Io { file: path.to_owned(), source: source.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(io)?;
        match rustix::fs::openat2(&root, path, flags, Mode::empty(), beneath()) {
            Ok(dir) => Ok(ControlDir { dir, label: path.to_owned(), file_bytes_max }),
            Err(Errno::NOENT) => Err(ControlError::NoDirectory { dir: path.to_owned() }),
            Err(Errno::LOOP | Errno::XDEV | Errno::NOTDIR) => {
                Err(ControlError::NotAFile { file: path.to_owned() })
            }
            Err(other) => Err(io(other)),
        }
    }

    /// The whole text of a file, or `None` when it is not there.
    pub fn read(&self, name: &str) -> Result<Option<ControlText>, ControlError> {
        let file = format!("{}/{name}", self.label);
        let io = |source: std::io::Error| ControlError::Io { file: file.clone(), source };
        // Not blocking: a pipe in the place of a file must not hang the daemon.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat2(&self.dir, name, flags, Mode::empty(), beneath()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::XDEV | Errno::NXIO) => return Err(ControlError::NotAFile { file }),
            Err(other) => return Err(io(other.into())),
        };
        let meta = opened.metadata().map_err(io)?;
        if !meta.is_file() {
            return Err(ControlError::NotAFile { file });
        }
        let owner = std::os::unix::fs::MetadataExt::uid(&meta);
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(ControlError::Owner { file, owner });
        }
        let max = self.file_bytes_max;
        let mut bytes = Vec::new();
        opened.take(max as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() > max {
            return Err(ControlError::TooLarge { file, max });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(ControlText { file, text })),
            Err(error) => Err(ControlError::NotText { file, byte: error.utf8_error().valid_up_to() }),
        }
    }

    /// The one value of a file, read by `parse`, or `None` when the file is not there or says nothing.
    pub fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ControlError> {
        let Some(control) = self.read(name)? else { return Ok(None) };
        let mut lines = control.lines();
        let Some(first) = lines.next() else { return Ok(None) };
        if let Some(second) = lines.next() {
            return Err(control.bad(second, "this file holds one value on one line"));
        }
        parse(first.text).map(Some).map_err(|problem| control.bad(first, problem))
    }

    /// The items of a file, one a line, each read by `parse`; none when the file is not there.
    pub fn items<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, ControlError> {
        let Some(control) = self.read(name)? else { return Ok(Vec::new()) };
        let read = |line: Line<'_>| parse(line.text).map_err(|problem| control.bad(line, problem));
        control.lines().map(read).collect()
    }

    /// The directory as people write it.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl ControlText {
    /// The lines that say something: trimmed, numbered from 1, without empty ones and `#` comments.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let numbered = self.text.lines().enumerate();
        let trimmed = numbered.map(|(at, text)| {
            let indent = text.chars().take_while(|c| c.is_whitespace()).count();
            Line { number: at + 1, column: indent + 1, text: text.trim() }
        });
        trimmed.filter(|line| !line.text.is_empty() && !line.text.starts_with('#'))
    }

    /// An error that points at a line of this file.
    pub fn bad(&self, at: Line<'_>, problem: impl Into<String>) -> ControlError {
        let Line { number: line, column, .. } = at;
        ControlError::BadValue { file: self.file.clone(), line, column, problem: problem.into() }
    }
}

/// `KEY=VALUE`, as in `env` and `default`.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("expected KEY=VALUE, found `{}`", short(text)));
    };
    let well_formed = key.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !well_formed {
        return Err(format!("`{}` is not a key: letters, digits and _ are expected", short(key)));
    }
    if value.contains('\0') {
        return Err(format!("the value of {key} holds a NUL byte"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// An absolute path of one line.
pub fn absolute_path(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') && !text.contains('\0') {
        Ok(PathBuf::from(text))
    } else {
        Err(format!("expected an absolute path, found `{}`", short(text)))
    }
}

/// Enough of a value to recognise it in a message.
pub fn short(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
    if text.chars().count() > 60 {
        shown.push('…');
    }
    shown
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}
