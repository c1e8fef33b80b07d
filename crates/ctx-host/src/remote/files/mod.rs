//! The files of a workspace on another machine or in a container, for snapshots: read and written with the tools that a
//! POSIX system has there (`find`, `stat`, `base64`, `mv -T` and the like), over a connection of their own.
//!
//! One channel takes an order a line and answers with a line, where there is content with lines of base64 between; long
//! content has a channel of its own. Words go as octal escapes, so a name may hold any byte.

mod channel;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use self::channel::{Channel, Hello, Reached, answers, feed, heard, lost, said, word};
use super::{RemoteTransport, Way};
use crate::error::ShellError;
use crate::frame::quote::quote;
use ctx_snapshot::files::{Files, Found, FoundKind, PATH_BYTES_MAX, Stat, TOO_LONG, Walk, WalkOptions};
use ctx_snapshot::ignored::{Ignored, RULES_FILE, is_never_part};
use ctx_snapshot::tree::{Outer, RelPath, parent, parents};

/// Longer content has a channel of its own: the shell there reads its orders byte by byte.
const SHORT: u64 = 16 << 10;
/// A directory that was found on the other side.
pub(crate) struct FarFiles {
    way: Arc<Way>,
    /// As it was asked for.
    path: String,
    reached: Mutex<Reached>,
    /// Where it is there, without links.
    pub top: PathBuf,
    /// The home directory of the user there.
    pub home: PathBuf,
    /// What to add to a time there, in seconds, for a time here.
    ahead: i64,
}

/// What is there, in the order of the paths.
type Listed = Vec<(RelPath, Found)>;

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let dir = parent(path).unwrap_or_default();
    (dir, path.rsplit(|byte| *byte == b'/').next().unwrap_or(path))
}

impl RemoteTransport {
    /// The files of a directory there. Logs in once more; blocks.
    pub fn files(&self, path: &str) -> Result<FarFiles, ShellError> {
        let (reached, Hello { top, home, ahead }) = Reached::new(&self.way, path)?;
        let (way, path, reached) = (Arc::clone(&self.way), path.to_owned(), Mutex::new(reached));
        Ok(FarFiles { way, path, reached, top, home, ahead })
    }
}

impl FarFiles {
    fn reached(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works over the connection; over a new one, where it was found lost before.
    fn with<T>(&self, work: impl FnOnce(&mut Channel) -> io::Result<T>) -> io::Result<T> {
        let mut reached = self.reached();
        if !matches!(reached.channel.child.try_wait(), Ok(None)) {
            let (again, hello) =
                Reached::new(&self.way, &self.path).map_err(|error| lost(&error.to_string()))?;
            if hello.top != self.top {
                return Err(lost("the directory is another one now"));
            }
            *reached = again;
        }
        let done = work(&mut reached.channel);
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected) {
            let _ = reached.channel.child.kill();
            let _ = reached.channel.child.wait();
        }
        done
    }

    fn order(&self, letter: char, path: &[u8], more: &str) -> io::Result<String> {
        let (dir, name) = split(path);
        self.with(|channel| channel.order(&format!("{letter} {} {} {more}\n", word(dir), word(name))))
    }

    /// From what `stat` says. A time there is known to the second: it counts as the end of it, so that a change within the
    /// same second is not taken for none.
    fn found(&self, said: &str, target: Option<Vec<u8>>) -> Option<Found> {
        let mut words = said.split(' ');
        let mode = u32::from_str_radix(words.next()?, 16).ok()?;
        let mut number = || words.next()?.parse::<i64>().ok();
        let (size, mtime, ctime, ino, dev) = (number()?, number()?, number()?, number()?, number()?);
        let time = |secs: i64| (secs + self.ahead + 1).saturating_mul(1_000_000_000);
        let kind = match (mode & 0o170_000, target) {
            (0o100_000, _) => FoundKind::File,
            (0o040_000, _) => FoundKind::Dir,
            (0o120_000, Some(target)) => FoundKind::Link { target },
            _ => FoundKind::Other,
        };
        let (size, ino, dev) = (size.cast_unsigned(), ino.cast_unsigned(), dev.cast_unsigned());
        Some(Found {
            kind,
            mode: mode & 0o7777,
            stat: Stat { size, mtime: time(mtime), ctime: time(ctime), ino, dev },
        })
    }

    fn bad_answer() -> io::Error {
        io::Error::other("the other side's `stat` is not understood")
    }

    /// A process there with a channel of its own, in the directory of a path.
    fn own_channel(&self, path: &[u8], script: &str) -> io::Result<Child> {
        let (dir, name) = split(path);
        let top = word(std::os::unix::ffi::OsStrExt::as_bytes(self.top.as_os_str()));
        let script = format!(
            "LC_ALL=C; export LC_ALL; un() {{ v=$(printf '%b.' \"${{1#=}}\"); v=${{v%.}}; }}; un '{top}'; top=$v; un '{}'; d=$v; un '{}'; n=$v\n\
             cd -- \"$top${{d:+/$d}}\" && [ \"$(pwd -P; echo .)\" = \"$top${{d:+/$d}}\n.\" ] || exit 1\n{script}",
            word(dir),
            word(name)
        );
        let mut command = self.way.further(&self.reached().dir, &format!("exec sh -c {}", quote(&script)));
        command.as_std_mut().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }

    /// All that is there, by what `find` and `stat` say, and the directories that cannot be looked into.
    fn listed(&self) -> io::Result<(Listed, BTreeSet<RelPath>)> {
        let (names, stats, closed) = self.with(|channel| {
            channel.order("w = =\n")?;
            Ok((channel.content()?, channel.content()?, channel.content()?))
        })?;
        let closed = closed.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"./"));
        let closed = closed.map(<[u8]>::to_vec).collect();
        let mut rest = stats.as_slice();
        let mut listed = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            // Six words, then the name as it was given; what has gone meanwhile has no line.
            let words =
                rest.iter().enumerate().filter(|(_, byte)| **byte == b' ').nth(5).map(|(at, _)| at + 1);
            let Some((stat, after)) = words.and_then(|at| rest.split_at_checked(at)) else { break };
            let Some(after) = after.strip_prefix(name).and_then(|after| after.strip_prefix(b"\n")) else {
                continue;
            };
            rest = after;
            if name == b"." {
                continue;
            }
            let path = name.strip_prefix(b"./").unwrap_or(name).to_vec();
            let stat = String::from_utf8_lossy(stat);
            let mut found = self.found(stat.trim_end(), None).ok_or_else(FarFiles::bad_answer)?;
            if stat.starts_with('a') {
                match self.look(&path)? {
                    Some(link) => found = link,
                    None => continue,
                }
            }
            listed.push((path, found));
        }
        listed.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok((listed, closed))
    }

    /// The rules of the repository that the workspace is in, from outside of it.
    fn outer(&self) -> io::Result<Vec<Outer>> {
        let top = self.top.as_os_str().as_encoded_bytes();
        self.with(|channel| {
            channel.order("o = =\n")?;
            let mut outer = Vec::new();
            loop {
                let line = channel.line()?;
                if line == "." {
                    return Ok(outer);
                }
                let (dir, text) = line.split_once(' ').ok_or_else(FarFiles::bad_answer)?;
                let bytes = |text: &str| BASE64_STANDARD.decode(text).map_err(io::Error::other);
                let (dir, text) = (bytes(dir)?, bytes(text)?);
                let below = top.strip_prefix(dir.as_slice()).ok_or_else(FarFiles::bad_answer)?;
                outer.push(Outer { below: below.strip_prefix(b"/").unwrap_or(below).to_vec(), text });
            }
        })
    }

    /// The rules that hold in each directory that is not ignored itself, the outer ones first.
    fn rules(&self, listed: &Listed, outer: &[Outer]) -> io::Result<Ignored> {
        let mut rules = Ignored::above(outer);
        let is_rules = |(path, found): &&(RelPath, Found)| {
            split(path).1 == RULES_FILE && found.kind == FoundKind::File && found.stat.size < 1 << 20
        };
        let mut files: Vec<&RelPath> = listed.iter().filter(is_rules).map(|(path, _)| path).collect();
        files.sort_by_key(|path| path.iter().filter(|byte| **byte == b'/').count());
        for path in files {
            let dir = split(path).0;
            if dir.is_empty() || !rules.has_within(dir, true) {
                let mut text = Vec::new();
                self.open(path)?.0.read_to_end(&mut text)?;
                rules.add(dir, &text);
            }
        }
        Ok(rules)
    }
}

impl Files for FarFiles {
    fn walk(&self, options: WalkOptions<'_>) -> io::Result<Walk> {
        let (listed, closed) = self.listed()?;
        let outer = if options.with_ignored { Vec::new() } else { self.outer()? };
        let rules = if options.with_ignored { Ignored::default() } else { self.rules(&listed, &outer)? };
        let mut walk = Walk { outer, ..Walk::default() };
        let is_wanted = |path: &[u8]| {
            options.also.is_some_and(|also| {
                also.iter().any(|wanted| wanted == path || parents(wanted).any(|dir| dir == path))
            })
        };
        let mut out: Option<RelPath> = None;
        for (path, found) in listed {
            let (dir, name) = split(&path);
            let is_in =
                |out: &RelPath| path.strip_prefix(out.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
            let is_dir = found.kind == FoundKind::Dir;
            let is_out = out.as_ref().is_some_and(is_in);
            let leaves = is_never_part(name) || options.leaves(&rules, &path, is_dir);
            if (is_out || leaves) && !is_wanted(&path) {
                if !is_out {
                    walk.crowded.insert(dir.to_vec());
                    out = Some(path);
                }
                continue;
            }
            if is_dir && leaves {
                // What else is in it is no part of the walk.
                walk.crowded.insert(path.clone());
                out = Some(path.clone());
            }
            if walk.found.len() >= options.files_max {
                let message =
                    format!("it has more than {} files; ignore some in .gitignore", options.files_max);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
            let why = match found.kind {
                FoundKind::Other => "a socket, a pipe or a device",
                _ if path.len() > PATH_BYTES_MAX => TOO_LONG,
                FoundKind::Dir if closed.contains(&path) => {
                    out = Some(path.clone());
                    walk.add_closed(path, found, "it cannot be read".to_owned());
                    continue;
                }
                _ => {
                    walk.found.insert(path, found);
                    continue;
                }
            };
            walk.crowded.insert(dir.to_vec());
            if is_dir {
                out = Some(path.clone());
            }
            walk.left_out.insert(path, why.to_owned());
        }
        Ok(walk)
    }

    fn open(&self, path: &[u8]) -> io::Result<(Box<dyn Read>, Stat)> {
        let gone = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file any more");
        let found = self.look(path)?.filter(|found| found.kind == FoundKind::File).ok_or_else(gone)?;
        if found.stat.size <= SHORT {
            let (dir, name) = split(path);
            let (said, content) = self.with(|channel| {
                let said = channel.order(&format!("g {} {}\n", word(dir), word(name)))?;
                Ok((said, channel.content()?))
            })?;
            let found = self.found(&said, None).ok_or_else(FarFiles::bad_answer)?;
            return Ok((Box::new(io::Cursor::new(content)), found.stat));
        }
        let mut child =
            self.own_channel(path, "[ -f \"./$n\" ] && [ ! -L \"./$n\" ] && exec cat -- \"./$n\"")?;
        let out = child.stdout.take().ok_or_else(gone)?;
        Ok((Box::new(Long { child: Own(child), out }), found.stat))
    }

    fn look(&self, path: &[u8]) -> io::Result<Option<Found>> {
        let said = self.order('l', path, "")?;
        if said.is_empty() {
            return Ok(None);
        }
        let target = said.split(' ').nth(6).and_then(|text| BASE64_STANDARD.decode(text).ok());
        self.found(&said, target).map(Some).ok_or_else(FarFiles::bad_answer)
    }

    fn write(&self, path: &[u8], mode: u32, content: &mut dyn Read) -> io::Result<()> {
        let mut begin = Vec::new();
        content.take(SHORT + 1).read_to_end(&mut begin)?;
        if begin.len() as u64 <= SHORT {
            let (dir, name) = split(path);
            let mut order = format!("p {} {} {mode:o}\n", word(dir), word(name));
            for piece in begin.chunks(48) {
                order.push_str(&BASE64_STANDARD.encode(piece));
                order.push('\n');
            }
            return self.with(|channel| channel.order(&format!("{order}.\n"))).map(drop);
        }
        let script = format!("(umask 077; set -C; cat >\"./$n\") && chmod {mode:o} \"./$n\"");
        let mut child = self.own_channel(path, &script)?;
        let (Some(stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
            return Err(lost("it has no streams"));
        };
        let mut child = Own(child);
        let sent = match feed(stdin, &mut begin.as_slice().chain(content)) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Err(error),
            // Where it was refused, the other side says why.
            sent => sent,
        };
        let complaint = heard(stderr)?;
        match child.0.wait()?.success() {
            true => sent,
            false => Err(said(complaint.lines().next_back().unwrap_or("it failed"))),
        }
    }

    fn link(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        self.order('k', path, &word(target)).map(drop)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let (dir, name) = split(to);
        self.order('r', from, &format!("{} {}", word(dir), word(name))).map(drop)
    }

    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.order('m', path, &format!("{mode:o}")).map(drop)
    }

    fn remove(&self, path: &[u8], is_dir: bool) -> io::Result<()> {
        self.order('d', path, if is_dir { "1" } else { "0" }).map(drop)
    }

    fn set_mode(&self, dir: &[u8], mode: u32) -> io::Result<()> {
        // With fewer than five digits, `chmod` leaves a directory's setuid and setgid bits as they are.
        self.with(|channel| channel.order(&format!("c {} {mode:05o}\n", word(dir)))).map(drop)
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|channel| channel.order("s = =\n")).map(drop)
    }
}

/// Content from a channel of its own. Its end counts only if the other side says that it was the end. That the file could not be
/// read, `cat` and the shell say with 1; everything else is the end of the channel or of the process.
struct Long {
    child: Own,
    out: ChildStdout,
}

/// A process of a channel of its own; it ends with its use.
struct Own(Child);

impl Read for Long {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        answers(&self.out)?;
        match self.out.read(buf)? {
            0 if !buf.is_empty() => match self.child.0.wait()?.code() {
                Some(0) => Ok(0),
                Some(1) => Err(io::Error::other("it could not be read to its end")),
                _ => Err(lost("the connection was lost while a file was read")),
            },
            read => Ok(read),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a directory there may be a workspace, by the operator's list; without one, it lies below the user's home.
pub(crate) fn may_be_workspace(files: &FarFiles, roots: &[PathBuf]) -> Result<(), String> {
    let (top, home) = (&files.top, &files.home);
    if top.parent().is_none() {
        return Err("it is the root of the file system".to_owned());
    }
    if home.parent().is_some() && home.starts_with(top) {
        return Err("it is a home directory, or holds one; name a directory in it".to_owned());
    }
    let own: &[PathBuf] = if home.is_absolute() { std::slice::from_ref(home) } else { &[] };
    let roots = if roots.is_empty() { own } else { roots };
    match roots.iter().any(|root| top.starts_with(root) && top != Path::new("/")) {
        true => Ok(()),
        false => {
            let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            let top = top.display();
            Err(format!(
                "{top} is not inside {}; the operator allows others with remote_workspace_roots",
                roots.join(", ")
            ))
        }
    }
}
