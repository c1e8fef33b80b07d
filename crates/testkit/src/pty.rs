//! A terminal to type at: the program runs on a real PTY, as the leader of its own session.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::DEADLINE;
use crate::place::Place;

/// What a person needs at least to read a question; the chat takes no answer that was begun in less than 150 ms.
pub const READING: Duration = Duration::from_millis(250);

/// A program on a terminal of 80 by 24.
pub struct Pty {
    master: File,
    child: Child,
    /// All that was shown.
    shown: String,
    /// The beginning of a character whose rest has not come yet.
    unread: Vec<u8>,
    /// How much of it was waited for already.
    read: usize,
}

impl Pty {
    /// Runs `ctx` of a place with these arguments.
    pub fn ctx(place: &Place, args: &[&str]) -> Pty {
        Pty::ctx_with(place, args, &[])
    }

    /// The same, with these variables in its environment.
    pub fn ctx_with(place: &Place, args: &[&str], environment: &[(&str, &str)]) -> Pty {
        // `setsid --ctty` makes the terminal the program's own, so that Ctrl-C becomes a signal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]);
        // Whoever runs the tests behind a shell has Ctrl-C ignored, and programs inherit that.
        command.args(["env", "--default-signal=INT,QUIT"]);
        place.set_environment(command.arg(place.binary()).args(args));
        Pty::run(command.envs(environment.iter().copied()))
    }

    fn run(command: &mut Command) -> Pty {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
        grantpt(&master).expect("a pty of our own");
        unlockpt(&master).expect("a pty to open");
        let name = ptsname(&master, Vec::new()).expect("the terminal's name");
        let name = name.into_string().expect("a name in UTF-8");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a size for the terminal");
        let open = || File::options().read(true).write(true).open(&name).expect("the terminal");
        let stdio = || Stdio::from(OwnedFd::from(open()));
        let child =
            command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().expect("the program starts");
        Pty { master: File::from(master), child, shown: String::new(), unread: Vec::new(), read: 0 }
    }

    /// Types text as a person would; Enter is `\r`, Ctrl-C `\x03`.
    pub fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Answers a question that is on the screen, as somebody who has read it: what comes sooner is no answer.
    pub fn answer(&mut self, keys: &str) {
        std::thread::sleep(READING);
        self.type_keys(keys);
    }

    /// Sends the program a signal; a stopped one sees nothing of what happens.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the program takes a signal");
    }

    /// Waits until the text shows after what was waited for before; what came before it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        self.wait_for_one_of(&[text])
    }

    /// The same for whichever of some texts shows first.
    #[track_caller]
    pub fn wait_for_one_of(&mut self, texts: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let rest = self.shown.get(self.read..).unwrap_or_default();
            let found = texts.iter().filter_map(|text| Some((rest.find(text)?, text.len()))).min();
            if let Some((at, length)) = found {
                let before = rest.get(..at).unwrap_or_default().to_owned();
                self.read += at + length;
                return before;
            }
            let alive = self.pump();
            assert!(
                alive && begun.elapsed() < DEADLINE,
                "`{}` never showed; the terminal has:\n{}",
                texts.join("` or `"),
                self.shown
            );
        }
    }

    /// Closes the terminal; the program is hung up and may go on.
    pub fn close(&mut self) {
        self.master = File::open("/dev/null").expect("/dev/null");
    }

    /// Waits for the program to end; its exit code.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child's status") {
                // What it said last may still be on the way; the terminal closes behind it.
                while begun.elapsed() < DEADLINE && self.pump() && self.has_more() {}
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < DEADLINE, "the program goes on; the terminal has:\n{}", self.shown);
            if !self.pump() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Everything that was shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether the terminal has something to read right now.
    fn has_more(&self) -> bool {
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Leaves a character that a read has cut to the next one.
    fn show_whole_characters(&mut self) {
        let whole = match std::str::from_utf8(&self.unread) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.unread.len(),
        };
        let rest = self.unread.split_off(whole);
        self.shown.push_str(&String::from_utf8_lossy(&self.unread));
        self.unread = rest;
    }

    /// Takes in what is there, waiting a moment for it; false when the terminal is closed.
    fn pump(&mut self) -> bool {
        let moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        match poll(&mut fds, Some(&moment)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return true,
            Ok(_) => {}
            Err(error) => panic!("the terminal cannot be watched: {error}"),
        }
        let mut bytes = [0u8; 4096];
        match self.master.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.unread.extend_from_slice(bytes.get(..n).unwrap_or_default());
                self.show_whole_characters();
                true
            }
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // The program is another process than `setsid`; the terminal's hang-up ends it when the master goes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
