//! Shells behind a real sshd and in a real container: who may go where, and what is left when a connection ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ctx_host::{CreateRequest, Destination, ExecRequest, HostConfig, ShellError, ShellHost, SshRequest};
use ctx_session::Code;
use testkit::elsewhere::{Container, Sshd};

use super::elsewhere::request;
use super::support::{Bench, Kind, Records, alive, config, eventually, pid_in, rows_elsewhere};

rows_elsewhere![
    ids_name_the_place,
    nothing_of_the_frame_is_seen,
    a_long_command_and_long_input_arrive,
    no_process_stays_after_a_destroy,
    no_process_stays_after_a_time_out_that_had_to_kill,
    a_cwd_that_is_not_there_is_refused,
];

const PLAIN: &[&str] = &["127.0.0.1"];

struct Elsewhere {
    config: HostConfig,
    dir: tempfile::TempDir,
    records: Arc<Records>,
}

impl Elsewhere {
    fn new(sshd: &Sshd) -> Elsewhere {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(Kind::Bash, dir.path());
        config.remote.key_dir = sshd.dir.clone();
        config.remote.beat = Duration::from_secs(1);
        // Nothing of the user's own ssh is asked or changed.
        let file = dir.path().join("ssh_config");
        let known = dir.path().join("known_hosts");
        std::fs::write(&known, "").unwrap();
        let text = format!("Host *\n  UserKnownHostsFile {0}\n  GlobalKnownHostsFile {0}\n", known.display());
        std::fs::write(&file, text).unwrap();
        config.remote.ssh_config = Some(file);
        Elsewhere { config, dir, records: Arc::default() }
    }

    fn known_hosts(&self, sshd: &Sshd, key: &Path) {
        let key = std::fs::read_to_string(key).unwrap();
        let line = format!("[127.0.0.1]:{} {key}", sshd.port);
        std::fs::write(self.dir.path().join("known_hosts"), line).unwrap();
    }

    fn add_config(&self, text: &str) {
        let file = self.dir.path().join("ssh_config");
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}\n{before}")).unwrap();
    }

    fn host(&self) -> ShellHost {
        ShellHost::new(self.config.clone(), self.records.clone()).unwrap()
    }

    async fn create(&self, to: Destination) -> Result<(ShellHost, String), ShellError> {
        let host = self.host();
        let id = host.create(CreateRequest { to, ..CreateRequest::default() }).await?;
        Ok((host, id))
    }

    async fn refused(&self, request: SshRequest, code: Code, says: &str) {
        let Err(error) = self.create(Destination::Ssh(request)).await else {
            panic!("it was let in: {says}")
        };
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }

    async fn works(&self, request: SshRequest) -> String {
        let (host, id) = self.create(Destination::Ssh(request)).await.unwrap();
        let result = exec(&host, &id, "echo hello").await.unwrap();
        assert_eq!((result.stdout.as_str(), result.exit_code), ("hello\n", 0));
        host.shutdown().await;
        id
    }
}

async fn exec(host: &ShellHost, id: &str, command: &str) -> Result<ctx_host::ExecResult, ShellError> {
    host.exec(id, ExecRequest { command: command.to_owned(), ..ExecRequest::default() }, None).await
}

async fn ids_name_the_place(kind: Kind) {
    let bench = Bench::new(kind).await;
    let expected = match kind {
        Kind::Container => "1_docker_box".to_owned(),
        _ => {
            let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
            format!("1_ssh_{}@127.0.0.1:{}", user.trim(), Sshd::shared().port)
        }
    };
    assert_eq!(bench.id, expected);
    let listed = bench.host.list();
    let transport = if kind == Kind::Container { "docker" } else { "ssh" };
    assert_eq!((listed[0].session_id.as_str(), listed[0].transport), (expected.as_str(), transport));
    bench.end().await;
}

async fn nothing_of_the_frame_is_seen(kind: Kind) {
    let bench = Bench::new(kind).await;
    assert_eq!(bench.run("set | grep __ctx").await.stdout, "");
    assert_eq!(bench.out("echo \"$PAGER $EDITOR\"").await, "cat true\n");
    bench.end().await;
}

async fn a_long_command_and_long_input_arrive(kind: Kind) {
    let bench = Bench::new(kind).await;
    let long = format!(": '{}'; echo done", "x".repeat(200_000));
    assert_eq!(bench.out(&long).await, "done\n");
    let stdin = Some(vec![b'y'; 300_000]);
    let request = ExecRequest { command: "wc -c".to_owned(), stdin, ..ExecRequest::default() };
    assert_eq!(bench.try_run(request).await.unwrap().stdout.trim(), "300000");
    bench.end().await;
}

/// Also daemons, stopped ones, and those that have left the session.
async fn no_process_stays_after_a_destroy(kind: Kind) {
    let bench = Bench::new(kind).await;
    bench
        .out(
            "sleep 1000 & echo $! >a; (setsid sleep 1000 & echo $! >b); sh -c 'echo $$ >c; kill -STOP $$' & \
             while [ ! -s c ]; do :; done; echo $$ >d",
        )
        .await;
    let pids: Vec<i32> = ["a", "b", "c", "d"].map(|name| pid_in(&bench.path(name)).unwrap()).into();
    assert!(pids.iter().all(|pid| alive(*pid)));
    bench.host.destroy(&bench.id).await.unwrap();
    for pid in pids {
        eventually("the end of a process", || !alive(pid)).await;
    }
    bench.end().await;
}

/// Whether a `sleep` with this time runs anywhere.
fn sleeps(time: u32) -> bool {
    let command = format!("^sleep {time}$");
    Command::new("pgrep").args(["-f", &command]).stdout(Stdio::null()).status().unwrap().success()
}

/// The time of a `sleep` that no other test has.
fn own_time() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_000_000 + std::process::id() % 1_000_000 * 100 + NEXT.fetch_add(1, Ordering::Relaxed)
}

fn brief(command: String) -> ExecRequest {
    ExecRequest { command, timeout: Some(Duration::from_millis(300)), ..ExecRequest::default() }
}

async fn no_process_stays_after_a_time_out_that_had_to_kill(kind: Kind) {
    let bench = Bench::new(kind).await;
    for _ in 0..6 {
        let time = own_time();
        let command = format!("A=kept; sh -c 'trap \"\" INT TERM; while :; do sleep {time}; done'");
        let result = bench.try_run(brief(command)).await.unwrap();
        assert!(result.timed_out && !sleeps(time), "{result:?}");
    }
    assert_eq!(bench.out("echo $A").await, "kept\n");
    bench.end().await;
}

async fn a_cwd_that_is_not_there_is_refused(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(kind, dir.path());
    let to = kind.place(&mut config);
    let host = ShellHost::new(config, Arc::new(Records::default())).unwrap();
    let cwd = Some("/nowhere/at/all".to_owned());
    let refused = host.create(CreateRequest { to, cwd, ..CreateRequest::default() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Einval, "{refused}");
    assert_eq!(host.list().len(), 0);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosts_key_must_be_known_or_pinned_and_never_another() {
    let sshd = &Sshd::start("");
    let place = Elsewhere::new(sshd);
    let plain = SshRequest { fingerprint: None, ..request(sshd) };
    place.refused(plain.clone(), Code::Eacces, "is not known").await;
    let other = SshRequest { fingerprint: Some(format!("SHA256:{}", "A".repeat(43))), ..request(sshd) };
    place.refused(other.clone(), Code::Eacces, "fingerprint").await;
    place.works(request(sshd)).await;
    // A known host needs no fingerprint, and one that is given must agree.
    place.known_hosts(sshd, &sshd.dir.join("host.pub"));
    place.works(plain.clone()).await;
    place.works(request(sshd)).await;
    place.refused(other, Code::Eacces, "fingerprint").await;
    // Another key under its name: changed, whatever is given.
    place.known_hosts(sshd, &sshd.dir.join("id.pub"));
    place.refused(plain.clone(), Code::Eacces, "has changed").await;
    place.refused(request(sshd), Code::Eacces, "changed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_of_ssh_does_not_get_round_the_check_of_a_hosts_key() {
    let sshd = &Sshd::start("");
    let place = Elsewhere::new(sshd);
    place.add_config(
        "NoHostAuthenticationForLocalhost yes\nVerifyHostKeyDNS yes\nStrictHostKeyChecking no\nGSSAPIKeyExchange yes\n\
         IgnoreUnknown GSSAPIKeyExchange",
    );
    let other = SshRequest { fingerprint: Some(format!("SHA256:{}", "A".repeat(43))), ..request(sshd) };
    place.refused(other, Code::Eacces, &format!("ssh-keyscan -p {} 127.0.0.1", sshd.port)).await;
    let plain = SshRequest { fingerprint: None, ..request(sshd) };
    place.refused(plain, Code::Eacces, "is not known").await;
    place.works(request(sshd)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_key_is_refused_also_where_the_path_of_the_known_hosts_holds_spaces() {
    let sshd = &Sshd::start("");
    let place = Elsewhere::new(sshd);
    let dir = place.dir.path().join("sp  ace");
    std::fs::create_dir(&dir).unwrap();
    for list in ["UserKnownHostsFile /dev/null", "GlobalKnownHostsFile"] {
        place.add_config(&format!("{list} \"{}\" /dev/null", dir.join("known").display()));
        place.known_hosts(sshd, &sshd.dir.join("id.pub"));
        std::fs::rename(place.dir.path().join("known_hosts"), dir.join("known")).unwrap();
        place.refused(request(sshd), Code::Eacces, "changed").await;
        place.known_hosts(sshd, &sshd.dir.join("host.pub"));
        std::fs::rename(place.dir.path().join("known_hosts"), dir.join("known")).unwrap();
        place.works(request(sshd)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_decides_on_first_use_hosts_users_and_containers() {
    let sshd = Sshd::shared();
    let mut place = Elsewhere::new(sshd);
    let plain = SshRequest { fingerprint: None, ..request(sshd) };
    place.config.remote.first_use = true;
    place.works(plain.clone()).await;
    place.config.remote.hosts = Some(vec!["other".to_owned()]);
    place.refused(plain.clone(), Code::Eacces, "does not allow the host").await;
    place.config.remote.hosts = Some(PLAIN.iter().map(|&name| name.to_owned()).collect());
    place.works(plain.clone()).await;
    place.config.remote.users = Some(vec!["nobody-else".to_owned()]);
    place.refused(plain, Code::Eacces, "does not allow the user").await;
    place.config.remote.containers = Some(vec!["other".to_owned()]);
    place.config.remote.engine = Some(Container::shared().engine.clone());
    let Err(refused) = place.create(Destination::Container("box".to_owned())).await else { panic!("let in") };
    assert_eq!(refused.code(), Code::Eacces);
    place.config.remote.containers = None;
    for (name, code, says) in [
        ("nobody", Code::Ehostdown, "there is no container"),
        ("-v", Code::Einval, "container"),
        ("a b", Code::Einval, "container"),
        ("a\u{7}", Code::Einval, "container"),
    ] {
        let Err(refused) = place.create(Destination::Container(name.to_owned())).await else {
            panic!("let in")
        };
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aliases_and_jump_hosts_of_the_ssh_config_hold() {
    let sshd = Sshd::shared();
    let place = Elsewhere::new(sshd);
    place.known_hosts(sshd, &sshd.dir.join("host.pub"));
    let key = sshd.dir.join("id");
    place.add_config(&format!(
        "Host there\n  HostName 127.0.0.1\n  Port {0}\n  IdentityFile {1}\nHost behind\n  HostName 127.0.0.1\n  Port {0}\n  \
         IdentityFile {1}\n  ProxyCommand ssh -F {2} -W %h:%p there",
        sshd.port,
        key.display(),
        place.dir.path().join("ssh_config").display(),
    ));
    for alias in ["there", "behind"] {
        let id = place.works(SshRequest { host: alias.to_owned(), ..SshRequest::default() }).await;
        assert!(id.contains(&format!("@{alias}:")), "{id}");
    }
}

/// An agent with one key; it ends with the value.
struct Agent(std::process::Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_key_lets_in() {
    let sshd = Sshd::shared();
    let mut place = Elsewhere::new(sshd);
    place.known_hosts(sshd, &sshd.dir.join("host.pub"));
    // Without it there is no key that would do.
    place.add_config("IdentityFile none");
    let plain = SshRequest { key_path: None, fingerprint: None, ..request(sshd) };
    place.refused(plain.clone(), Code::Eacces, "refused the login").await;
    let socket = place.dir.path().join("agent");
    let mut command = Command::new("ssh-agent");
    command.args(["-D", "-a"]).arg(&socket).stdout(Stdio::null());
    let _agent = Agent(command.spawn().unwrap());
    eventually("the agent", || socket.exists()).await;
    let mut add = Command::new("ssh-add");
    add.arg(sshd.dir.join("id")).env("SSH_AUTH_SOCK", &socket).stderr(Stdio::null());
    assert!(add.status().unwrap().success());
    let value = socket.to_str().unwrap().as_bytes().to_vec();
    place.config.env.push(("SSH_AUTH_SOCK".to_owned(), value));
    place.works(plain).await;
}

fn engine(container: &Container, words: &[&str]) {
    let mut command = Command::new(&container.engine);
    assert!(
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success(),
        "{words:?}"
    );
}

/// Starts a further container, `own`, with processes of its own: they end with it.
fn run_own(container: &Container) {
    let tmp = format!("{0}:{0}", std::env::temp_dir().display());
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"];
    let about = ["run", "-d", "--name", "own", "--network", "none", "-v", &tmp];
    engine(container, &[&about[..], &limits, &["ctx-test:1", "/bin/sleep", "1000"]].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_numbers_that_begin_again_change_nothing_about_what_a_time_out_ends() {
    let container = Container::start();
    run_own(&container);
    let mut place = Elsewhere::new(Sshd::shared());
    place.config.remote.engine = Some(container.engine.clone());
    let inspect = ["inspect", "-f", "{{.State.Pid}}", "own"];
    let said = Command::new(&container.engine).args(inspect).output().unwrap();
    let first = String::from_utf8(said.stdout).unwrap().trim().to_owned();
    let near_the_end = || {
        let script = "echo $(($(cat /proc/sys/kernel/pid_max) - 20)) >/proc/sys/kernel/ns_last_pid";
        let mut command = Command::new("nsenter");
        assert!(command.args(["-t", &first, "-p", "sh", "-c", script]).status().unwrap().success());
    };
    let (host, id) = place.create(Destination::Container("own".to_owned())).await.unwrap();
    let forks = "k=0; while [ $k -lt 30 ]; do /bin/true; k=$((k+1)); done";
    exec(&host, &id, "A=kept").await.unwrap();
    // They begin again in the command that is stopped, at different places of it.
    for before in 0..4 {
        near_the_end();
        exec(&host, &id, &"/bin/true; ".repeat(before * 5)).await.unwrap();
        let time = own_time();
        let result = host.exec(&id, brief(format!("{forks}; sleep {time}")), None).await.unwrap();
        assert!(result.timed_out && !result.shell_restarted && !sleeps(time), "{result:?}");
    }
    // They begin again before it: a job that has been there for longer has a higher number.
    near_the_end();
    let [old, new] = [own_time(), own_time()];
    exec(&host, &id, &format!("sleep {old} & {forks}")).await.unwrap();
    let result = host.exec(&id, brief(format!("sleep {new}")), None).await.unwrap();
    assert!(result.timed_out && !sleeps(new) && sleeps(old), "{result:?}");
    assert_eq!(exec(&host, &id, "echo $A").await.unwrap().stdout, "kept\n");
    host.shutdown().await;
    assert!(!sleeps(old));
    engine(&container, &["rm", "-f", "-t", "0", "own"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_does_not_run_is_refused_and_one_that_is_stopped_closes_the_shell() {
    let container = Container::start();
    let mut place = Elsewhere::new(Sshd::shared());
    place.config.remote.engine = Some(container.engine.clone());
    let engine = |words: &[&str]| engine(&container, words);
    engine(&["create", "--name", "idle", "--network", "none", "ctx-test:1", "/bin/sleep", "1000"]);
    let Err(refused) = place.create(Destination::Container("idle".to_owned())).await else {
        panic!("let in")
    };
    assert_eq!(refused.code(), Code::Ehostdown);
    assert!(refused.to_string().contains("does not run: start it first"), "{refused}");
    run_own(&container);
    // Its first process waits for nobody: what a shell has started there is waited for by the shell's own processes.
    let (host, id) = place.create(Destination::Container("own".to_owned())).await.unwrap();
    exec(&host, &id, "echo a | cat").await.unwrap();
    host.destroy(&id).await.unwrap();
    host.shutdown().await;
    let left = ["exec", "own", "sh", "-c", "grep -h '^Name\\|^State' /proc/[0-9]*/status | grep -B1 zombie"];
    eventually("no zombies", || {
        let said = Command::new(&container.engine).args(left).output().unwrap();
        said.stdout.is_empty()
    })
    .await;
    let (host, id) = place.create(Destination::Container("own".to_owned())).await.unwrap();
    let file: PathBuf = place.dir.path().join("started");
    let command = format!(": >{}; sleep 1000", file.display());
    let (result, ()) = tokio::join!(exec(&host, &id, &command), async {
        eventually("the command's start", || file.exists()).await;
        engine(&["kill", "own"]);
    });
    assert_eq!(result.unwrap_err().code(), Code::Ehostdown);
    eventually("the shell is closed", || host.list().is_empty()).await;
    host.shutdown().await;
}

/// A command whose other side stops answering, as `stop` makes it, is given up on soon after its time, long before pings
/// would tell.
async fn gives_up(place: &Elsewhere, to: Destination, stop: impl FnOnce()) {
    let (host, id) = place.create(to).await.unwrap();
    let file = place.dir.path().join("begun");
    let command = format!(": >{}; sleep 1000", file.display());
    let timeout = Some(Duration::from_secs(2));
    let request = ExecRequest { command, timeout, ..ExecRequest::default() };
    let started = Instant::now();
    let (result, ()) = tokio::join!(host.exec(&id, request, None), async {
        eventually("the command's start", || file.exists()).await;
        stop();
    });
    let error = result.unwrap_err();
    assert_eq!(error.code(), Code::Ehostdown, "{error}");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    eventually("the shell is closed", || host.list().is_empty()).await;
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_in_a_container_that_is_paused_is_given_up_on() {
    let container = Container::start();
    let mut place = Elsewhere::new(Sshd::shared());
    place.config.remote.engine = Some(container.engine.clone());
    place.config.remote.beat = Duration::from_secs(60);
    let paused = || engine(&container, &["pause", "box"]);
    gives_up(&place, Destination::Container("box".to_owned()), paused).await;
    engine(&container, &["unpause", "box"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_on_a_host_that_does_not_answer_is_given_up_on() {
    let sshd = &Sshd::start("");
    let mut place = Elsewhere::new(sshd);
    place.config.remote.beat = Duration::from_secs(60);
    gives_up(&place, Destination::Ssh(request(sshd)), || signal("-STOP", &sshd.connections())).await;
    signal("-KILL", &sshd.connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_lets_in_and_is_seen_nowhere() {
    let sshd = &Sshd::with_user("/bin/sh");
    let place = Elsewhere::new(sshd);
    let login = |password: &str| SshRequest {
        user: Some("ctxtest".to_owned()),
        key_path: None,
        password: Some(password.to_owned()),
        ..request(sshd)
    };
    place.refused(login("wrong-password-1"), Code::Eacces, "refused the login").await;
    let (host, id) = place.create(Destination::Ssh(login("sesame-7319"))).await.unwrap();
    assert_eq!(exec(&host, &id, "id -u").await.unwrap().stdout, "54777\n");
    // Not in the arguments or the environment of any process, and not in what the shell shows and records.
    let own = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| entry.file_name() != *own) {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&bytes).contains("sesame-7319"), "{:?} {file}", entry.path());
        }
    }
    let shown = exec(&host, &id, "echo sesame-7319").await.unwrap().stdout;
    assert!(shown.contains("[REDACTED:"), "{shown}");
    assert!(!format!("{:?}", place.records.0.lock().unwrap()).contains("sesame"));
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_not_for_a_jump_host_that_asks_in_the_same_words() {
    let (target, jump) = (&Sshd::with_user("/bin/sh"), Sshd::with_user("/bin/sh"));
    let mut place = Elsewhere::new(target);
    let config = place.dir.path().join("config");
    let text = format!(
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nHost via\n  HostName 127.0.0.1\n  Port {}\n  \
         ProxyJump ctxtest@127.0.0.1:{}\n",
        target.port, jump.port
    );
    std::fs::write(&config, text).unwrap();
    place.config.remote.ssh_config = Some(config);
    let login = SshRequest {
        host: "via".to_owned(),
        port: None,
        user: Some("ctxtest".to_owned()),
        key_path: None,
        password: Some("sesame-7319".to_owned()),
        ..request(target)
    };
    place.refused(login, Code::Eacces, "refused the login").await;
    let log = std::fs::read_to_string(jump.dir.join("log")).unwrap();
    assert!(log.contains("ctxtest") && !log.contains("Accepted password"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_takes_too_few_sessions_is_told_of_and_no_second_connection_is_made() {
    for sessions in 1..=2 {
        // What was made on the other side is removed there, too.
        let far = tempfile::tempdir().unwrap();
        let sshd = &Sshd::start(&format!("MaxSessions {sessions}\nSetEnv TMPDIR={}", far.path().display()));
        let place = Elsewhere::new(sshd);
        place.refused(request(sshd), Code::Ehostdown, "ctx needs three (MaxSessions").await;
        let log = std::fs::read_to_string(sshd.dir.join("log")).unwrap();
        assert_eq!(log.matches("Accepted publickey").count(), 1, "{log}");
        eventually("an empty directory", || far.path().read_dir().unwrap().next().is_none()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_without_a_shell_is_called_that() {
    let sshd = &Sshd::with_user("/bin/false");
    let place = Elsewhere::new(sshd);
    let password = Some("sesame-7319".to_owned());
    let login = SshRequest { user: Some("ctxtest".to_owned()), key_path: None, password, ..request(sshd) };
    place.refused(login, Code::Ehostdown, "works, but it runs no commands").await;
}

fn signal(signal: &str, pids: &[String]) {
    let done = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
    assert!(done.is_ok());
}

/// Cuts the connection of a running command in some way, and looks at both sides.
async fn cut(sshd: &Sshd, by: &str) {
    let place = Elsewhere::new(sshd);
    let (host, id) = place.create(Destination::Ssh(request(sshd))).await.unwrap();
    let file: PathBuf = place.dir.path().join("pid");
    let command =
        format!("(setsid sleep 1000 & echo $! >{0}.new; mv {0}.new {0}); sleep 1000", file.display());
    let started = Instant::now();
    let (result, ()) = tokio::join!(exec(&host, &id, &command), async {
        eventually("the command's start", || file.exists()).await;
        signal(by, &sshd.connections());
    });
    let error = result.unwrap_err();
    assert_eq!(error.code(), Code::Ehostdown, "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    eventually("the shell is closed", || host.list().is_empty()).await;
    let pid = pid_in(&file).unwrap();
    // The other side's own guard: the connection is gone.
    eventually("the end of what was left there", || !alive(pid)).await;
    signal("-KILL", &sshd.connections());
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connection_closes_the_shell_and_leaves_nothing() {
    cut(&Sshd::start(""), "-KILL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_answer_closes_the_shell_and_leaves_nothing() {
    cut(&Sshd::start(""), "-STOP").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_lost_its_connection_while_idle_says_so() {
    let sshd = &Sshd::start("");
    let place = Elsewhere::new(sshd);
    let (host, id) = place.create(Destination::Ssh(request(sshd))).await.unwrap();
    signal("-KILL", &sshd.connections());
    // Whoever is the first to find out, too.
    let first = loop {
        if let Err(error) = exec(&host, &id, "true").await {
            break error;
        }
    };
    assert_eq!(first.code(), Code::Ehostdown, "{first}");
    assert!(first.to_string().contains("the connection"), "{first}");
    eventually("the shell is closed", || host.list().is_empty()).await;
    for _ in 0..2 {
        let error = exec(&host, &id, "true").await.unwrap_err();
        assert_eq!(error.code(), Code::Ehostdown, "{error}");
        assert!(error.to_string().contains("the connection"), "{error}");
    }
    assert_eq!(exec(&host, "9_ssh_x", "true").await.unwrap_err().code(), Code::Enoent);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_not_there_cannot_be_reached() {
    let sshd = Sshd::shared();
    let place = Elsewhere::new(sshd);
    // Nothing listens on the discard port.
    let discard = SshRequest { port: Some(9), ..request(sshd) };
    place.refused(discard, Code::Ehostdown, "cannot be reached").await;
    let key = SshRequest { key_path: Some("../other".to_owned()), ..request(sshd) };
    place.refused(key, Code::Einval, "key_path").await;
    let wrong = SshRequest { key_path: Some("host".to_owned()), ..request(sshd) };
    place.refused(wrong, Code::Eacces, "refused the login").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_never_stops_talking_is_given_up_on() {
    let sshd = Sshd::shared();
    let elsewhere = Elsewhere::new(sshd);
    elsewhere.add_config("Match exec \"yes >&2\"\n  User nobody");
    elsewhere.refused(request(sshd), Code::Ehostdown, "too long").await;
}
