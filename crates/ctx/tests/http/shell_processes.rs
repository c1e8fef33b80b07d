//! Processes of another user's shell, where the daemon lacks the capability to mark them: as in most containers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::until;

use crate::shells::{NOBODY, alive, id, pid_in};
use crate::support::{Http, Response, builder};

/// `setpriv` with what takes the capability from all that it starts.
const WITHOUT_CAPABILITY: [&str; 3] = ["setpriv", "--bounding-set", "-sys_resource"];

/// A process that has left its parent, its session, its environment and its descriptors; its pid is in a file.
fn leaves(file: &str) -> String {
    format!("(setsid env -i sh -c 'echo $$ >{file}; exec sleep 300' 0<&- 1>&- 2>&- 241>&- 242>&- &)")
}

/// A user who is not the daemon's.
struct Other {
    http: Http,
    token: String,
    /// Where they may write.
    dir: PathBuf,
}

impl Other {
    fn new(under: &[&str]) -> Other {
        let http = Http::of(builder().under(under));
        let token = http.daemon.ctx(&["token", "new", "--uid", NOBODY]).ok().trim().to_owned();
        let dir = http.daemon.path("open");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        Other { http, token, dir }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Response {
        self.http.call_as(&self.token, method, path, Some(&body.to_string()))
    }

    fn shell(&self) -> String {
        id(&self.call("POST", "/shells", &json!({ "cwd": self.dir })).json(201))
    }

    fn exec(&self, shell: &str, command: &str) -> Value {
        let body = json!({ "command": command, "timeout_secs": 1 });
        self.call("POST", &format!("/shells/{shell}/exec"), &body).json(200)
    }

    fn left(&self, shell: &str, file: &str) -> i32 {
        self.exec(shell, &leaves(file));
        pid_in(&self.dir.join(file))
    }
}

fn gone(pid: i32) {
    until(&format!("the end of {pid}"), || (!alive(pid)).then_some(()));
}

#[test]
fn what_left_another_users_shell_ends_with_it_and_no_sooner() {
    let other = Other::new(&WITHOUT_CAPABILITY);
    let (one, two) = (other.shell(), other.shell());
    let job = other.left(&one, "job");
    let neighbour = other.left(&two, "neighbour");
    // A command that is stopped takes what it started, and not the jobs of earlier ones.
    let stopped = other.exec(&one, &format!("{}; sleep 300", leaves("of-command")));
    assert_eq!((&stopped["timed_out"], &stopped["shell_restarted"]), (&json!(true), &json!(false)));
    gone(pid_in(&other.dir.join("of-command")));
    assert!(alive(job), "an earlier job lives on");
    // Also through a new interpreter.
    assert_eq!(other.exec(&one, "exit 3")["shell_restarted"], true);
    let later = other.left(&one, "later");
    assert!(alive(job) && alive(later));
    other.call("DELETE", &format!("/shells/{one}"), &json!({})).json(204);
    assert!(!alive(job) && !alive(later));
    assert!(alive(neighbour), "another shell's job lives");
    other.call("DELETE", &format!("/shells/{two}"), &json!({})).json(204);
    assert!(!alive(neighbour));
}

#[test]
fn a_killed_daemon_leaves_nothing_of_another_users_shell() {
    let mut other = Other::new(&WITHOUT_CAPABILITY);
    let shell = other.shell();
    let job = other.left(&shell, "job");
    other.http.daemon.kill();
    gone(job);
}

#[test]
fn doctor_says_how_processes_are_found() {
    let told = |under: &[&str]| {
        let http = Http::of(builder().under(under));
        let told = http.daemon.ctx(&["doctor", "--json"]).ok();
        let told: Value = serde_json::from_str(&told).unwrap();
        told["facts"]["shells"].as_str().unwrap().to_owned()
    };
    let without = told(&WITHOUT_CAPABILITY);
    assert!(without.contains("set with every command"), "its own user's: {without}");
    assert!(
        without.contains("other users are found by a mark that the shell sets at its start"),
        "{without}"
    );
    let limited = told(&["prlimit", "--locks=1000:1000"]);
    assert!(limited.contains("by descent only") && limited.contains("RLIMIT_LOCKS unlimited"), "{limited}");
}
