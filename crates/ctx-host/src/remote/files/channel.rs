//! The connection to files elsewhere: the script that runs there, orders and answers, and what an answer means.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ctx_snapshot::workspace::now;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::super::Way;
use super::super::private::{PASSWORD, PrivateDir};
use crate::error::ShellError;

/// A side that says nothing for that long does not answer any more.
const SILENT_MAX: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };
/// The same while it lists all that is there, or syncs: it says nothing until that is done.
const SILENT_MAX_AT_WORK: Timespec = Timespec { tv_sec: 600, tv_nsec: 0 };
/// A longer file of rules above the workspace does not hold.
const RULES_BYTES: &str = "65536";
/// What is needed there.
const TOOLS: &str = "find xargs stat base64 readlink mktemp mv chmod sync wc";
pub(super) const STAT: &str = "%f %s %Y %Z %i %d";

/// The directory of a path without links, and that the tools are there. What follows are the orders.
const SCRIPT: &str = r#"{ trap '' PIPE
LC_ALL=C; export LC_ALL
un() { v=$(printf '%b.' "${1#=}"); v=${v%.}; }
at() { cd -- "$top${1:+/$1}" 2>/dev/null && x=$(pwd -P; echo .) && [ "$x" = "$top${1:+/$1}
." ]; }
no() { m=$(printf %s "$1" | head -n 1); echo "no $m"; }
try() { m=$("$@" 2>&1) && echo ok || no "$m"; }
kind() { [ -f "./$n" ] && [ ! -L "./$n" ]; }
rules() { [ -f "$1" ] && [ -r "$1" ] && [ "$(wc -c <"$1")" -le RULES_BYTES ] || return
    echo "$(printf %s "$2" | base64 | tr -d '\n') $(base64 -- "$1" | tr -d '\n')"; }
all() { find . -name .git -print0 -prune -o -print0 2>/dev/null; }
lines() { while IFS= read -r l && [ "$l" != . ]; do echo "$l"; done; }
for t in TOOLS; do command -v "$t" >/dev/null 2>&1 || { echo "hello no $t"; exit 0; }; done
un WORD; cd -- "$v" 2>/dev/null && [ -d . ] || { echo "hello no such directory"; exit 0; }
top=$(pwd -P; echo .); top=${top%?.}
echo "hello ok $(date +%s) $(printf %s "$top" | base64 | tr -d '\n') $(printf %s "$HOME" | base64 | tr -d '\n')"
while read -r o a b c e; do
    un "$a"; d=$v; un "$b"; n=$v
    case $o in
    l) at "$d" && { [ -e "./$n" ] || [ -L "./$n" ]; } || { echo ok; continue; }
        k=; [ ! -L "./$n" ] || k=$(readlink -n -- "./$n" | base64 | tr -d '\n')
        echo "ok $(stat -c 'STAT' -- "./$n") $k" ;;
    g) at "$d" && kind || { echo "no it is not a regular file any more"; continue; }
        echo "ok $(stat -c 'STAT' -- "./$n")"; base64 -- "./$n" && echo . || echo ! ;;
    p) lines | { at "$d" || { echo "no its directory is not there"; exit; }
        m=$( { (umask 077; set -C; base64 -d >"./$n") && chmod "$c" "./$n"; } 2>&1) && echo ok || no "$m"; } ;;
    k) un "$c"; at "$d" && try ln -s -- "$v" "./$n" || echo "no its directory is not there" ;;
    r) un "$c"; s=$v; un "$e"; f="$top${d:+/$d}/$n"
        at "$d" && at "$s" && try mv -fT -- "$f" "./$v" || echo "no its directory is not there" ;;
    m) at "$d" && try mkdir -m "$c" -- "./$n" || echo "no its directory is not there" ;;
    d) at "$d" && if [ "$c" = 1 ]; then try rmdir -- "./$n"; else try rm -- "./$n" </dev/null; fi || echo "no its directory is not there" ;;
    c) at "$d" && try chmod "$b" . || echo "no its directory is not there" ;;
    s) try sync ;;
    w) at "" || { echo "no its directory is not there"; continue; }
        t=$(mktemp 2>&1) || { no "$t"; continue; }
        all >"$t" || [ "$(all | wc -c)" = "$(wc -c <"$t")" ] || {
            rm -f "$t"; echo "no the list of its files did not fit into ${TMPDIR:-/tmp} there, or they change all the time"; continue; }
        echo ok; base64 -- "$t"; echo .; xargs -0 stat -c 'STAT %n' -- <"$t" 2>/dev/null | base64; echo .
        find . -name .git -prune -o -type d -exec sh -c 'for d; do { [ -r "$d" ] && [ -x "$d" ]; } || printf "%s\0" "$d"; done' sh {} + 2>/dev/null | base64
        echo .; rm -f "$t" ;;
    o) r=$top; until [ -z "$r" ] || [ -e "$r/.git" ]; do r=${r%/*}; done
        echo ok
        if [ -n "$r" ]; then
            rules "$r/.git/info/exclude" "$r"
            until [ "$r" = "$top" ]; do rules "$r/.gitignore" "$r"; x=${top#"$r"/}; r=$r/${x%%/*}; done
        fi
        echo . ;;
    esac
done
exit 0; }
"#;

/// A connection to it.
pub(super) struct Reached {
    pub dir: PrivateDir,
    pub channel: Channel,
}

/// What the other side says of the directory first.
pub(super) struct Hello {
    pub top: PathBuf,
    pub home: PathBuf,
    pub ahead: i64,
}

pub(super) struct Channel {
    pub child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    silent_max: Timespec,
}

impl Drop for Channel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Channel {
    pub(super) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            if self.stdout.buffer().is_empty() {
                ready(self.stdout.get_ref(), PollFlags::IN, &self.silent_max)?;
            }
            let bytes = self.stdout.fill_buf()?;
            if bytes.is_empty() {
                return Err(lost("the connection was lost"));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
            let read = end.map_or(bytes.len(), |end| end + 1);
            self.stdout.consume(read);
            if end.is_some() {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }

    /// What `ok` is followed by.
    fn answer(&mut self) -> io::Result<String> {
        let line = self.line()?;
        match line.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None => Err(said(line.strip_prefix("no ").unwrap_or(&line))),
        }
    }

    pub(super) fn order(&mut self, line: &str) -> io::Result<String> {
        self.silent_max = if line.starts_with(['w', 's']) { SILENT_MAX_AT_WORK } else { SILENT_MAX };
        self.stdin.write_all(line.as_bytes()).map_err(|_| lost("the connection was lost"))?;
        self.answer()
    }

    /// Lines of base64 up to a dot.
    pub(super) fn content(&mut self) -> io::Result<Vec<u8>> {
        let mut text = String::new();
        loop {
            match self.line()?.as_str() {
                "." => return BASE64_STANDARD.decode(&text).map_err(io::Error::other),
                "!" => return Err(io::Error::other("it could not be read to its end")),
                line => text.push_str(line),
            }
        }
    }
}

/// The other side is not there any more: nothing that could not be read or done was so because of the file.
pub(super) fn lost(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, why.to_owned())
}

/// Waits until there is something to read, or the end.
pub(super) fn answers(from: &impl AsFd) -> io::Result<()> {
    ready(from, PollFlags::IN, &SILENT_MAX)
}

/// What a pipe takes at once, when it takes something.
const TAKEN_BYTES: usize = 4096;

/// Sends content to a process that may stop reading.
pub(super) fn feed(mut to: ChildStdin, content: &mut dyn Read) -> io::Result<()> {
    let mut piece = [0; TAKEN_BYTES];
    loop {
        match content.read(&mut piece)? {
            0 => return Ok(()),
            read => {
                ready(&to, PollFlags::OUT, &SILENT_MAX)?;
                to.write_all(piece.get(..read).unwrap_or_default())?;
            }
        }
    }
}

/// What a process says to its end.
pub(super) fn heard(mut from: impl AsFd + Read) -> io::Result<String> {
    let (mut all, mut piece) = (Vec::new(), [0; TAKEN_BYTES]);
    loop {
        answers(&from)?;
        match from.read(&mut piece)? {
            0 => return Ok(String::from_utf8_lossy(&all).into_owned()),
            read => all.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
}

fn ready(pipe: &impl AsFd, flags: PollFlags, silent_max: &Timespec) -> io::Result<()> {
    let mut fds = [PollFd::new(pipe, flags)];
    match retry_on_intr(|| poll(&mut fds, Some(silent_max)))? {
        0 => Err(lost("the other side does not answer")),
        _ => Ok(()),
    }
}

/// What a tool said, as an error of the kind that it means.
pub(super) fn said(message: &str) -> io::Error {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotFound, Other, PermissionDenied, StorageFull};
    use io::ErrorKind::{ExecutableFileBusy, InvalidFilename, ReadOnlyFilesystem, ResourceBusy};
    let kinds = [
        ("No space left", StorageFull),
        ("Permission denied", PermissionDenied),
        ("Operation not permitted", PermissionDenied),
        ("Read-only file system", ReadOnlyFilesystem),
        ("Text file busy", ExecutableFileBusy),
        ("resource busy", ResourceBusy),
        ("File exists", AlreadyExists),
        ("No such file", NotFound),
        ("its directory is not there", NotFound),
        ("not empty", DirectoryNotEmpty),
        ("name too long", InvalidFilename),
    ];
    let kind = kinds.iter().find(|(part, _)| message.contains(part)).map_or(Other, |(_, kind)| *kind);
    io::Error::new(kind, message.to_owned())
}

/// A word that no shell reads as anything else.
pub(super) fn word(bytes: &[u8]) -> String {
    let mut word = String::from("=");
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'/' | b'-' => {
                word.push(char::from(*byte))
            }
            byte => word.push_str(&format!("\\0{byte:03o}")),
        }
    }
    word
}

impl Reached {
    pub(super) fn new(way: &Way, path: &str) -> Result<(Reached, Hello), ShellError> {
        let dir = PrivateDir::new(way.rights.clone())?;
        let broken = |error: io::Error| way.failure(&error.to_string());
        let mut command = way.first(&dir)?;
        let mut child = command.as_std_mut().stderr(Stdio::piped()).spawn().map_err(broken)?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(mut stderr)) = streams else {
            return Err(way.failure("it has no streams"));
        };
        let mut channel = Channel { child, stdin, stdout: BufReader::new(stdout), silent_max: SILENT_MAX };
        let script = SCRIPT.replace("TOOLS", TOOLS).replace("STAT", STAT).replace("RULES_BYTES", RULES_BYTES);
        let script = script.replace("un WORD;", &format!("un '{}';", word(path.as_bytes())));
        // ssh may end before it has read this; what it says is the reason then.
        let sent = channel.stdin.write_all(script.as_bytes());
        let hello = loop {
            match channel.line() {
                Ok(line) => match line.rfind("hello ").and_then(|at| line.get(at + 6..)) {
                    Some(hello) => break hello.to_owned(),
                    None => continue,
                },
                Err(error) => {
                    dir.remove(PASSWORD);
                    // Where it does not answer, it has not ended either.
                    let _ = channel.child.kill();
                    let mut complaint = String::new();
                    let _ = stderr.read_to_string(&mut complaint);
                    let said = if complaint.is_empty() { error.to_string() } else { complaint };
                    return Err(way.failure(&said));
                }
            }
        };
        dir.remove(PASSWORD);
        sent.map_err(broken)?;
        let refused = |why: &str| ShellError::invalid("workspace", format!("workspace: {why}"));
        let mut words = hello.split(' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("ok"), Some(there), Some(top), home) => {
                let path = |text: &str| {
                    use std::os::unix::ffi::OsStringExt;
                    let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
                    PathBuf::from(std::ffi::OsString::from_vec(bytes))
                };
                let here = now().as_millis() / 1_000;
                let ahead =
                    i64::try_from(here).unwrap_or_default() - there.parse::<i64>().unwrap_or_default();
                let (top, home) = (path(top), path(home.unwrap_or_default()));
                // Nothing reads it from here on: it is drained, so that ssh is never held up.
                std::thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
                Ok((Reached { dir, channel }, Hello { top, home, ahead }))
            }
            (Some("no"), Some("such"), ..) => Err(refused(&format!("{path} is not a directory there"))),
            (Some("no"), Some(tool), ..) => {
                Err(refused(&format!("snapshots need `{tool}` on the other side, and it is not there")))
            }
            _ => Err(way.failure("it has no POSIX shell")),
        }
    }
}
