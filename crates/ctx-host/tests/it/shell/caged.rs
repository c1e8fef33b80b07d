//! Shells in cages: the same shells, with walls around their processes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_cage::rights::Rights;
use ctx_cage::{Cage, Means, Net, Owner, Toolchains, find_bwrap, system_mounts};
use ctx_host::{CageSetup, CreateRequest, ExecRequest, ExecResult, HostConfig, NoLog, RunAs, ShellHost};
use testkit::until;
use testkit::users::{ANN, By, Place, by_both, by_one, processes_with, unique};

const MIB: u64 = 1 << 20;

/// A cage of Ann's around her project.
fn cage_of(place: &Place) -> Cage {
    let mut cage = Cage::new(Owner::new(ANN, ANN), &place.project());
    cage.mounts.extend(system_mounts(Net::Host));
    Toolchains::find(None, Path::exists).add_to(&mut cage);
    cage
}

/// A host whose shells are in cages, with one shell open.
struct Shell {
    host: ShellHost,
    id: String,
}

impl Shell {
    async fn new(place: &Place, by: By, cage: Cage, means: Means) -> Shell {
        let spool = place.path(&format!("spool-{}", unique()));
        let mut config = HostConfig::from_process(spool, "ctx test");
        config.env =
            cage.env.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
        config.cwd = cage.cwd.clone();
        if by == By::Root {
            let (rights, scratch_dir) = (Rights::of(ANN).unwrap(), place.path("scratch"));
            config.run_as = Some(RunAs { uid: ANN, gid: ANN, rights, scratch_dir });
        } else {
            config.spool_dir = place.path("open").join(unique());
        }
        let bwrap = find_bwrap(&std::env::var_os("PATH").unwrap()).unwrap();
        config.cage = Some(CageSetup { cage, bwrap, means, parent: "test".to_owned() });
        let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
        let id = host.create(CreateRequest::default()).await.unwrap();
        Shell { host, id }
    }

    async fn ask(&self, request: ExecRequest) -> ExecResult {
        self.host.exec(&self.id, request, None).await.unwrap()
    }

    async fn run(&self, command: &str) -> ExecResult {
        self.ask(ExecRequest { command: command.to_owned(), ..ExecRequest::default() }).await
    }

    async fn run_for(&self, command: &str, millis: u64) -> ExecResult {
        let timeout = Some(Duration::from_millis(millis));
        self.ask(ExecRequest { command: command.to_owned(), timeout, ..ExecRequest::default() }).await
    }

    async fn out(&self, command: &str) -> String {
        let result = self.run(command).await;
        assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}: {result:?}");
        result.stdout
    }
}

/// Runs a test in a runtime of the thread it is on, so that all has that thread's ids.
fn on_runtime(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work);
}

/// A test of one shell with the usual cage, as root.
fn with_shell(work: impl AsyncFnOnce(&Place, &Shell)) {
    let place = Place::new();
    on_runtime(async {
        let shell = Shell::new(&place, By::Root, cage_of(&place), Means::detect()).await;
        work(&place, &shell).await;
        shell.host.shutdown().await;
    });
}

#[test]
fn a_shell_in_a_cage_keeps_its_state() {
    by_both(|by| {
        let place = Place::new();
        on_runtime(async {
            let shell = Shell::new(&place, by, cage_of(&place), Means::detect()).await;
            assert_eq!(shell.out("pwd; id -u; echo $HOME").await, "/work\n1000\n/home/agent\n");
            let made = shell
                .run("mkdir -p a/b; cd a; export X=1; y=2; echo out; echo err >&2; touch made; false")
                .await;
            assert_eq!((made.stdout.as_str(), made.stderr.as_str()), ("out\n", "err\n"));
            assert_eq!((made.exit_code, made.cwd.as_str()), (1, "/work/a"));
            assert_eq!(std::fs::metadata(place.path("project/a/made")).unwrap().uid(), ANN);
            assert_eq!(shell.out("echo $X$y; pwd").await, "12\n/work/a\n");
            let request = ExecRequest {
                command: "cat; wc -c".to_owned(),
                stdin: Some(b"given".to_vec()),
                ..ExecRequest::default()
            };
            assert_eq!(shell.ask(request).await.stdout, "given0\n");
            let long = format!(": {}; echo done", "x".repeat(200_000));
            assert_eq!(shell.out(&long).await, "done\n");
            let none = shell.out("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
            assert_eq!(none, "HOME LANG LOGNAME OLDPWD PATH PWD SHLVL USER X _ ", "nothing of ours");
            shell.host.shutdown().await;
        });
    });
}

#[test]
fn a_replaced_interpreter_finds_its_jobs_and_tmp() {
    with_shell(async |_, shell| {
        let mark = unique();
        shell.run(&format!("cd /tmp; export X=1; echo kept > file; sleep {mark} & ")).await;
        let ended = shell.run("exit 3").await;
        assert_eq!((ended.exit_code, ended.shell_restarted), (3, true), "{ended:?}");
        assert_eq!(shell.out("cat file; echo $X; pwd").await, "kept\n1\n/tmp\n");
        assert_eq!(processes_with(&format!("sleep\0{mark}")).len(), 1);
        let gone = shell.run("mkdir d; cd d; rmdir /tmp/d; exit 1").await;
        assert!(gone.shell_restarted, "{gone:?}");
        assert_eq!(shell.out("pwd").await, "/tmp\n", "the nearest directory that is there");
    });
}

#[test]
fn a_command_that_takes_too_long_is_stopped_and_the_shell_lives_on() {
    by_both(|by| {
        let place = Place::new();
        on_runtime(async {
            let shell = Shell::new(&place, by, cage_of(&place), Means::detect()).await;
            shell.run("v=kept").await;
            for command in [
                "sleep 1000",
                "while :; do :; done",
                "bash -c 'trap \"\" INT TERM; while :; do sleep 1; done'",
            ] {
                let result = shell.run_for(command, 300).await;
                assert!(result.timed_out && !result.shell_restarted, "{command}: {result:?}");
            }
            assert_eq!(shell.out("echo $v").await, "kept\n");
            shell.host.shutdown().await;
        });
    });
}

#[test]
fn ending_leaves_no_process_and_the_next_command_goes_on_from_there() {
    for means in [Means::detect(), Means::default()] {
        let place = Place::new();
        on_runtime(async {
            let shell = Shell::new(&place, By::Root, cage_of(&place), means).await;
            let mark = unique();
            shell.run("cd /home/agent; export X=1").await;
            // Daemonised, forked twice, deaf, stopped, and one that says farewell.
            let start = format!(
                "setsid sleep {mark} & ( ( setsid sleep {mark} & ) & ) ; ( trap '' TERM HUP INT; sleep {mark}; sleep {mark} ) & \
                 sleep {mark} & kill -STOP $!; ( trap 'echo bye > /work/bye; exit' TERM; while :; do sleep 0.01; done ) & \
                 touch /work/ready; while :; do sleep {mark}; done"
            );
            let (host, id) = (shell.host.clone(), shell.id.clone());
            let running = async move {
                host.exec(&id, ExecRequest { command: start, ..ExecRequest::default() }, None).await
            };
            let ending = async {
                while !place.path("project/ready").exists()
                    || processes_with(&format!("sleep\0{mark}")).len() < 4
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                shell.host.end_processes(Duration::from_millis(700)).await;
                assert_eq!(processes_with(&mark), [0; 0]);
            };
            let (result, ()) = tokio::join!(running, ending);
            assert_ne!(result.unwrap().exit_code, 0);
            assert_eq!(
                std::fs::read_to_string(place.path("project/bye")).unwrap(),
                "bye\n",
                "it was asked first"
            );
            let next = shell.run("echo $X; pwd").await;
            assert_eq!((next.stdout.as_str(), next.shell_restarted), ("1\n/home/agent\n", true), "{next:?}");
            shell.host.shutdown().await;
        });
    }
}

#[test]
fn a_frozen_shell_goes_on_where_it_was_and_its_time_stands_still() {
    with_shell(async |place, shell| {
        let (host, id) = (shell.host.clone(), shell.id.clone());
        let request = ExecRequest {
            command: "touch /work/ready; while ! [ -e /work/go ]; do sleep 0.01; done; echo went on"
                .to_owned(),
            timeout: Some(Duration::from_millis(1_500)),
            ..ExecRequest::default()
        };
        let running = async move { host.exec(&id, request, None).await.unwrap() };
        let freezing = async {
            while !place.path("project/ready").exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            shell.host.freeze().unwrap();
            std::fs::write(place.path("project/go"), "").unwrap();
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(2) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            shell.host.thaw().unwrap();
        };
        let (result, ()) = tokio::join!(running, freezing);
        assert_eq!((result.stdout.as_str(), result.timed_out), ("went on\n", false), "{result:?}");
    });
}

#[test]
fn what_starts_while_a_shell_is_frozen_is_frozen_too() {
    with_shell(async |place, shell| {
        shell.host.end_processes(Duration::ZERO).await;
        shell.host.freeze().unwrap();
        let (host, id) = (shell.host.clone(), shell.id.clone());
        let request = ExecRequest { command: "touch /work/ran".to_owned(), ..ExecRequest::default() };
        let running = tokio::spawn(async move { host.exec(&id, request, None).await.unwrap() });
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!place.path("project/ran").exists());
        shell.host.thaw().unwrap();
        assert_eq!(running.await.unwrap().exit_code, 0);
        assert!(place.path("project/ran").exists());
    });
}

#[test]
fn a_limit_ends_the_cage_is_named_and_the_shell_goes_on() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits.memory_bytes = 64 * MIB;
    cage.limits.processes = 30;
    cage.limits.tmp_bytes = MIB;
    on_runtime(async {
        let shell = Shell::new(&place, By::Root, cage, Means::detect()).await;
        shell.run("export X=kept").await;
        for (command, limit) in [
            ("python3 -c 'x = bytearray(512 << 20)'", "memory limit (64 MiB)"),
            ("while :; do sleep 1000 & done", "process limit (30)"),
        ] {
            let result = shell.run(command).await;
            let hint = result.hint.clone().unwrap_or_default();
            assert!(hint.contains(limit) && result.exit_code != 0 && result.shell_restarted, "{result:?}");
        }
        let full = shell.run("head -c 2M /dev/zero > /tmp/x").await;
        assert!(full.hint.unwrap_or_default().contains("/tmp of the cage is full: its limit is 1 MiB"));
        assert_eq!(shell.out("echo $X").await, "kept\n");
        shell.host.shutdown().await;
    });
}

#[test]
fn the_wall_time_of_a_shell_s_cage_is_named() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits.walltime = Some(Duration::from_millis(600));
    on_runtime(async {
        let shell = Shell::new(&place, By::Root, cage, Means::detect()).await;
        let result = shell.run("sleep 1000").await;
        assert!(result.hint.clone().unwrap_or_default().contains("walltime reached"), "{result:?}");
        shell.host.shutdown().await;
    });
}

#[test]
fn a_command_that_lacks_the_network_is_told_how_to_get_it() {
    with_shell(async |place, shell| {
        shell.run("cd /tmp; export X=1").await;
        let result = shell.run("echo 'curl: (6) Could not resolve host: x' >&2; exit 6").await;
        assert!(result.hint.unwrap_or_default().contains("--net host"));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connect =
            format!("(: < /dev/tcp/127.0.0.1/{}) && echo reached", listener.local_addr().unwrap().port());
        assert!(shell.run(&connect).await.hint.unwrap_or_default().contains("--net host"));
        let cage = Cage { net: Net::Host, ..cage_of(place) };
        shell.host.change_cage(&cage, Duration::from_secs(1)).await;
        let result = shell.run(&format!("{connect}; echo $X; pwd")).await;
        assert_eq!(
            (result.stdout.as_str(), result.shell_restarted),
            ("reached\n1\n/tmp\n", true),
            "{result:?}"
        );
        shell.host.change_cage(&cage, Duration::from_secs(1)).await;
        assert!(!shell.run("true").await.shell_restarted, "the same cage stays");
    });
}

#[test]
fn a_shell_whose_cage_was_killed_from_inside_starts_anew() {
    with_shell(async |_, shell| {
        shell.run("export X=1").await;
        let result = shell.run("kill -9 -1; kill -9 $PPID; sleep 10").await;
        assert!(result.shell_restarted, "{result:?}");
        assert_eq!(shell.out("echo $X").await, "1\n");
    });
}

#[test]
fn a_host_that_is_gone_leaves_no_process_and_no_file() {
    let place = Place::new();
    let mark = unique();
    on_runtime(async {
        let shell = Shell::new(&place, By::Root, cage_of(&place), Means::detect()).await;
        shell.run(&format!("setsid sleep {mark} &")).await;
        shell.host.shutdown().await;
        assert_eq!(processes_with(&mark), [0; 0]);
        assert_eq!(std::fs::read_dir(place.path("scratch")).unwrap().count(), 0);
        let shell = Shell::new(&place, By::Root, cage_of(&place), Means::detect()).await;
        shell.run(&format!("setsid sleep {mark} &")).await;
        drop(shell);
    });
    until("what a dropped host left to be gone", || processes_with(&mark).is_empty().then_some(()));
}

#[test]
fn without_user_namespaces_the_reason_is_said() {
    let place = Place::new();
    // What bwrap itself says there.
    let fake = place.file(
        "project/bwrap",
        ANN,
        0o755,
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n",
    );
    let error = by_one(By::Ann, || {
        let mut cage = cage_of(&place);
        cage.cwd = "/work".into();
        let mut said = String::new();
        on_runtime(async {
            let mut config = HostConfig::from_process(place.path("open").join(unique()), "ctx test");
            config.cage =
                Some(CageSetup { cage, bwrap: fake, means: Means::default(), parent: "test".to_owned() });
            let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
            said = host.create(CreateRequest::default()).await.unwrap_err().to_string();
        });
        said
    });
    assert!(error.contains("No permissions to create a new namespace"), "{error}");
}
