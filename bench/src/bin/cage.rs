//! Cages beside bare `bwrap`: their start, a command in a shell with and without one, a hundred at once, freezing.
//!
//! Needs root, as the limits of cages do. Rounds alternate, so that both sides meet the same load.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_bench::{millis, percentile, row, target};
use ctx_cage::{Cage, Io, Means, Net, Owner, RunningCage, Toolchains, find_bwrap, system_mounts};
use ctx_host::{CageSetup, CreateRequest, ExecRequest, HostConfig, NoLog, RunAs, ShellHost};

const STARTS: usize = 40;
const COMMANDS: usize = 500;
const MANY: usize = 100;
const FREEZES: usize = 20;
const OWNER: Owner = Owner::NOBODY;

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let project = dir.path().join("project");
    std::fs::create_dir(&project).expect("a project");
    for path in [dir.path(), &project] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, open).expect("a mode");
    }
    let mut cage = Cage::new(OWNER, &project);
    cage.mounts.extend(system_mounts(Net::None));
    Toolchains::find(None, Path::exists).add_to(&mut cage);
    let bwrap = find_bwrap(&std::env::var_os("PATH").unwrap_or_default()).expect("bwrap");
    let bench = Bench { cage, bwrap, means: Means::detect() };
    bench.start();
    bench.exec(dir.path());
    bench.many();
    bench.freeze();
}

struct Bench {
    cage: Cage,
    bwrap: std::path::PathBuf,
    means: Means,
}

impl Bench {
    fn run(&self, words: &[&str], stdout: Stdio) -> RunningCage {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let io = Io { stdin: Stdio::null(), stdout, stderr: Stdio::inherit() };
        RunningCage::start(&self.bwrap, &self.cage, &self.means, "bench", &command, io).expect("a cage")
    }

    /// Bare `bwrap` with the same mounts and namespaces.
    fn bare(&self) -> Command {
        let mut line = ctx_cage::command_line(&self.cage, &[], &["true".into()]);
        let mut args: Vec<OsString> = Vec::new();
        let mut words = line.args.drain(..).peekable();
        while let Some(word) = words.next() {
            // What it would read from descriptors of ours.
            match word.to_str() {
                Some("--json-status-fd" | "--block-fd" | "--args") => drop(words.next()),
                Some("--perms") if words.peek().is_some_and(|mode| mode == "0444") => {
                    words.by_ref().take(4).for_each(drop);
                }
                _ => args.push(word),
            }
        }
        let mut command = Command::new(&self.bwrap);
        std::os::unix::process::CommandExt::uid(&mut command, OWNER.uid());
        std::os::unix::process::CommandExt::gid(&mut command, OWNER.gid());
        command.args(args).env_clear().current_dir("/").stdin(Stdio::null());
        command
    }

    fn start(&self) {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            let begun = Instant::now();
            assert_eq!(self.run(&["true"], Stdio::null()).wait().code, 0);
            ours.push(begun.elapsed());
            let begun = Instant::now();
            assert!(self.bare().status().expect("bwrap").success());
            bare.push(begun.elapsed());
        }
        let (ours, bare) = (percentile(&mut ours, 50), percentile(&mut bare, 50));
        let on_top = ours.saturating_sub(bare);
        row(
            "`true` in a cage, from start to end",
            &millis(ours),
            &format!("bare bwrap {}", millis(bare)),
            &format!("{} on top", millis(on_top)),
            &target("at most 15 ms on top", on_top <= Duration::from_millis(15)),
        );
    }

    fn exec(&self, dir: &Path) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (mut caged, mut plain) = runtime.block_on(async {
            let caged = self.shell(dir, true).await;
            let plain = self.shell(dir, false).await;
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..COMMANDS {
                for (shell, times) in [(&caged, &mut ours), (&plain, &mut theirs)] {
                    let request = ExecRequest { command: ":".to_owned(), ..ExecRequest::default() };
                    let begun = Instant::now();
                    shell.0.exec(&shell.1, request, None).await.expect("a result");
                    times.push(begun.elapsed());
                }
            }
            caged.0.shutdown().await;
            plain.0.shutdown().await;
            (ours, theirs)
        });
        let (caged, plain) = (percentile(&mut caged, 50), percentile(&mut plain, 50));
        let ratio = caged.as_secs_f64() / plain.as_secs_f64();
        row(
            "`:` in a shell in a cage",
            &millis(caged),
            &format!("without a cage {}", millis(plain)),
            &format!("{ratio:.2}"),
            &target("at most 1.5", ratio <= 1.5),
        );
    }

    async fn shell(&self, dir: &Path, is_caged: bool) -> (ShellHost, String) {
        let mut config = HostConfig::from_process(dir.join("spool"), "bench");
        let rights = ctx_cage::rights::Rights::of(OWNER.uid()).expect("root");
        let scratch_dir = dir.join("scratch");
        config.run_as = Some(RunAs { uid: OWNER.uid(), gid: OWNER.gid(), rights, scratch_dir });
        config.env =
            self.cage.env.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        config.cwd = if is_caged { self.cage.cwd.clone() } else { dir.join("project") };
        let (cage, bwrap, means) = (self.cage.clone(), self.bwrap.clone(), self.means.clone());
        config.cage = is_caged.then(|| CageSetup { cage, bwrap, means, parent: "bench".to_owned() });
        let host = ShellHost::new(config, Arc::new(NoLog)).expect("a host");
        let id = host.create(CreateRequest::default()).await.expect("a shell");
        (host, id)
    }

    fn many(&self) {
        let before = resident();
        let begun = Instant::now();
        let cages: Vec<RunningCage> =
            (0..MANY).map(|_| self.run(&["sleep", "1000"], Stdio::null())).collect();
        let took = begun.elapsed();
        let each = resident().saturating_sub(before) / MANY as u64;
        drop(cages);
        row(
            &format!("{MANY} cages at once"),
            &format!("started in {}", millis(took)),
            &format!("{each} KiB of memory of ours each"),
            "",
            "bounded",
        );
    }

    fn freeze(&self) {
        let busy = "for i in 1 2 3 4; do (while :; do :; done) & done; echo ready; wait";
        let mut running = self.run(&["sh", "-c", busy], Stdio::piped());
        let mut said = [0; 6];
        running.stdout.take().expect("a pipe").read_exact(&mut said).expect("ready");
        let (mut freezes, mut thaws) = (Vec::new(), Vec::new());
        for _ in 0..FREEZES {
            let begun = Instant::now();
            running.freeze().expect("frozen");
            freezes.push(begun.elapsed());
            let begun = Instant::now();
            running.thaw().expect("thawed");
            thaws.push(begun.elapsed());
        }
        let slowest = percentile(&mut freezes, 100);
        row(
            "freeze and thaw a cage with 4 busy processes",
            &format!("{} and {}", millis(percentile(&mut freezes, 50)), millis(percentile(&mut thaws, 50))),
            &format!("slowest freeze {}", millis(slowest)),
            "",
            &target("at most 200 ms", slowest.as_millis() <= 200),
        );
    }
}

/// Our resident memory, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
