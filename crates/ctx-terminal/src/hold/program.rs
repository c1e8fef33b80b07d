//! The program of a terminal: its PTY, its process, and how it becomes what the operator asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Gid, Pid, PidfdFlags, Signal, Uid, kill_process_group, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};

use super::super::place::{CageAround, Spec};
use super::super::protocol::Size;
use ctx_cage::{Io, Means, RunningCage};

/// How the binary is called to become the program; `ctx` passes the rest of the arguments to [`become_program`].
pub const BECOME: [&str; 2] = ["hold", "--become"];

/// The variable that tells a program in which terminals it is.
pub const INSIDE: &str = "CTX_TERMINAL";

pub(super) struct Program {
    master: File,
    /// Kept open, so that a program that closes its terminal does not end it.
    _terminal: OwnedFd,
    process: Process,
    /// Readable when it has ended.
    pidfd: OwnedFd,
}

enum Process {
    Own(Child),
    Caged(Caged),
}

/// A cage, and a thread that keeps the rights which its control groups need when the holder takes a user's.
struct Caged {
    cage: Arc<RunningCage>,
    acts: mpsc::Sender<(CageAct, mpsc::Sender<bool>)>,
    is_frozen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CageAct {
    Freeze,
    Thaw,
    Kill,
}

impl Caged {
    fn new(cage: RunningCage) -> Caged {
        let cage = Arc::new(cage);
        let (acts, asked) = mpsc::channel::<(CageAct, mpsc::Sender<bool>)>();
        let handle = Arc::clone(&cage);
        std::thread::spawn(move || {
            for (act, done) in asked {
                let is_done = match act {
                    CageAct::Freeze => handle.freeze().is_ok(),
                    CageAct::Thaw => handle.thaw().is_ok(),
                    CageAct::Kill => {
                        handle.kill();
                        true
                    }
                };
                let _ = done.send(is_done);
            }
        });
        Caged { cage, acts, is_frozen: false }
    }

    /// Does something to all its processes; whether that worked.
    fn act(&self, act: CageAct) -> bool {
        let (done, answer) = mpsc::channel();
        self.acts.send((act, done)).is_ok() && answer.recv().unwrap_or(false)
    }
}

/// A PTY's two ends, in this size.
fn open_pty(size: Size) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    tcsetwinsize(&master, winsize(size))?;
    fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
    Ok((master, terminal))
}

/// The terminals that a program is in: its own, and then those that the client that started it was in.
fn inside(spec: &Spec) -> String {
    let outer = spec.env.iter().find(|(name, _)| name == INSIDE).map(|(_, outer)| outer.as_str());
    [spec.about.id.to_string().as_str()].into_iter().chain(outer).collect::<Vec<_>>().join(":")
}

impl Program {
    pub fn start(spec: &Spec) -> io::Result<Program> {
        let (master, terminal) = open_pty(spec.size)?;
        let stdio = || terminal.try_clone().map(Stdio::from);
        // The program needs the terminal as its own, which takes a process between: this binary, that then becomes it.
        let child = Command::new("/proc/self/exe")
            .arg0("ctx")
            .args(BECOME)
            .arg(&spec.about.cwd)
            .args(&spec.about.command)
            .env_clear()
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .env(INSIDE, inside(spec))
            .stdin(stdio()?)
            .stdout(stdio()?)
            .stderr(stdio()?)
            .spawn()?;
        let pidfd = pidfd_open(pid_of(&child)?, PidfdFlags::empty())?;
        Ok(Program { master: File::from(master), _terminal: terminal, process: Process::Own(child), pidfd })
    }

    /// The same in a cage of its own, whose parent is this process: it ends with it.
    pub fn start_caged(spec: &Spec, around: &CageAround) -> io::Result<Program> {
        let (master, terminal) = open_pty(spec.size)?;
        let CageAround { cage, bwrap, parent } = around;
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(cage.owner.uid()), Gid::from_raw(cage.owner.gid()));
            rustix::fs::fchown(&terminal, Some(uid), Some(gid))?;
        }
        let mut cage = cage.clone();
        cage.has_terminal = true;
        cage.env.extend(spec.env.iter().cloned());
        cage.env.insert(INSIDE.to_owned(), inside(spec));
        let stdio = || terminal.try_clone().map(Stdio::from);
        let io = Io { stdin: stdio()?, stdout: stdio()?, stderr: stdio()? };
        // Inside there is nothing of ours that could take the terminal for the program.
        let words = ["setsid".into(), "-c".into()].into_iter();
        let command: Vec<OsString> = words.chain(spec.about.command.iter().map(OsString::from)).collect();
        let running = RunningCage::start(bwrap, &cage, &Means::detect(), parent, &command, io);
        let running = running.map_err(io::Error::other)?;
        let pidfd = pidfd_open(running.first_process(), PidfdFlags::empty())?;
        let process = Process::Caged(Caged::new(running));
        Ok(Program { master: File::from(master), _terminal: terminal, process, pidfd })
    }

    /// Stops what is in its cage where it is; what is in none goes on.
    pub fn freeze(&mut self) {
        if let Process::Caged(caged) = &mut self.process {
            caged.is_frozen |= caged.act(CageAct::Freeze);
        }
    }

    pub fn thaw(&mut self) {
        if let Process::Caged(caged) = &mut self.process {
            caged.is_frozen &= !caged.act(CageAct::Thaw);
        }
    }

    pub fn master(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// Readable when the program has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub fn pid(&self) -> u32 {
        match &self.process {
            Process::Own(child) => child.id(),
            Process::Caged(caged) => caged.cage.first_process().as_raw_nonzero().get().unsigned_abs(),
        }
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.master.read(buffer)
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.master.write(bytes)
    }

    /// The kernel tells the program (SIGWINCH to the group in the foreground).
    pub fn resize(&self, size: Size) -> io::Result<()> {
        Ok(tcsetwinsize(&self.master, winsize(size))?)
    }

    /// None: it has not ended. Some(None): it has, and nobody knows how.
    pub fn exit_code(&mut self) -> io::Result<Option<Option<i32>>> {
        let child = match &mut self.process {
            Process::Own(child) => child,
            // Its first process has ended; the rest takes a moment.
            Process::Caged(caged) => return Ok(Some(Some(caged.cage.wait().code))),
        };
        let status = child.try_wait()?;
        Ok(status.map(|status| status.code().or(status.signal().map(|signal| 128 + signal))))
    }

    pub fn hang_up(&self) {
        if let Process::Caged(caged) = &self.process
            && caged.is_frozen
        {
            // It would not hear of it, and must not go on.
            caged.act(CageAct::Kill);
            return;
        }
        self.signal(Signal::HUP);
        // A shell that ignores a hang-up still gives in to this one once its job is gone.
        self.signal(Signal::CONT);
    }

    pub fn kill(&self) {
        if let Process::Caged(caged) = &self.process {
            caged.act(CageAct::Kill);
            return;
        }
        self.signal(Signal::KILL);
    }

    /// To the program's group, and to the group in the foreground.
    fn signal(&self, signal: Signal) {
        let foreground = tcgetpgrp(&self.master).ok();
        let own = match &self.process {
            Process::Own(child) => pid_of(child).ok(),
            Process::Caged(_) => None,
        };
        for group in [foreground, own.filter(|own| Some(*own) != foreground)].into_iter().flatten() {
            // A group that has just ended is what was wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the program has no process id"))
}

fn winsize(size: Size) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Takes a user's ids for good. The holder has one thread, so the thread's ids are the process's.
pub(super) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// In the process that becomes the program: `arguments` are its directory, its name and its arguments. Returns only when
/// that fails; the exit code is that of shells.
pub fn become_program(arguments: &[OsString]) -> u8 {
    let [cwd, program, rest @ ..] = arguments else { return 2 };
    let own = rustix::process::setsid().map_err(io::Error::from);
    let own = own.and_then(|_| Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?));
    if let Err(error) = own {
        return say(126, format_args!("this terminal cannot be the program's own: {error}"));
    }
    if let Err(error) = std::env::set_current_dir(cwd) {
        return say(126, format_args!("{}: {error}", cwd.to_string_lossy()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let _signals = runtime.as_ref().ok().map(default_signals);
    let error = Command::new(program).args(rest).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    say(code, format_args!("cannot run `{}`: {error}", program.to_string_lossy()))
}

/// Says why there is no program, in its terminal; gives the exit code back.
fn say(code: u8, reason: std::fmt::Arguments<'_>) -> u8 {
    let _ = writeln!(io::stderr(), "ctx: {reason}");
    code
}

/// A daemon that a script started in the background ignores Ctrl-C, and programs inherit that. A signal that has a
/// handler is at its default again in the program that takes over.
fn default_signals(runtime: &tokio::runtime::Runtime) -> Vec<tokio::signal::unix::Signal> {
    use tokio::signal::unix::{SignalKind, signal};
    let _entered = runtime.enter();
    let job_control =
        [Signal::TSTP, Signal::TTIN, Signal::TTOU].map(|signal| SignalKind::from_raw(signal.as_raw()));
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::hangup(),
        SignalKind::terminate(),
        SignalKind::child(),
        SignalKind::alarm(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ];
    kinds.into_iter().chain(job_control).filter_map(|kind| signal(kind).ok()).collect()
}
