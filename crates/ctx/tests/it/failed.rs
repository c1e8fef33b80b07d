//! Sessions whose log is gone or cannot be read: every door shows them as failed and says what to do, and one that is back
//! goes on.

use std::fs;
use std::path::Path;

use serde_json::Value;
use testkit::{TestDaemon, until};

use crate::support::{build, json_lines};

/// The way in which a session gets lost.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Directory,
    Log,
    /// The log is something that cannot be read.
    Unreadable,
}

impl Way {
    fn lose(self, dir: &Path, aside: &Path) {
        let log = dir.join("events.jsonl");
        match self {
            Way::Directory => fs::rename(dir, aside).unwrap(),
            Way::Log => fs::rename(&log, aside).unwrap(),
            Way::Unreadable => {
                fs::rename(&log, aside).unwrap();
                fs::create_dir(&log).unwrap();
            }
        }
    }

    fn bring_back(self, dir: &Path, aside: &Path) {
        let log = dir.join("events.jsonl");
        match self {
            Way::Directory => fs::rename(aside, dir).unwrap(),
            Way::Log => fs::rename(aside, log).unwrap(),
            Way::Unreadable => {
                fs::remove_dir(&log).unwrap();
                fs::rename(aside, log).unwrap();
            }
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Way::Directory | Way::Log => "log_missing",
            Way::Unreadable => "log_unreadable",
        }
    }
}

/// What the API says of a session.
fn get(daemon: &TestDaemon, path: &str) -> Value {
    let socket = daemon.root().join(".state/api.sock");
    let curl = std::process::Command::new("curl")
        .args(["-s", "--unix-socket"])
        .arg(socket)
        .arg(format!("http://ctx/api/v1{path}"))
        .output();
    serde_json::from_slice(&curl.unwrap().stdout).unwrap()
}

fn listed(daemon: &TestDaemon, id: &str, more: &[&str]) -> Option<Value> {
    let all = json_lines(&daemon.ctx(&[&["ls", "--json"], more].concat()).ok());
    all.into_iter().find(|session| session["id"] == id)
}

#[test]
fn a_session_whose_log_is_gone_or_unreadable_is_failed_at_every_door_until_it_is_back() {
    for way in [Way::Directory, Way::Log, Way::Unreadable] {
        for down in [true, false] {
            let mut daemon = build().env("CTX_LIMITS_IDLE_UNLOAD_MS", "50").start();
            for name in ["lost", "other"] {
                daemon.ctx(&["send", "--session", name, "words"]).ok();
            }
            let (dir, aside) = (daemon.session_dir("lost"), daemon.path("aside"));
            let first = fs::read_to_string(dir.join("events.jsonl")).unwrap();
            let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
            let id = first["session_id"].as_str().unwrap().to_owned();
            until("the session to be let go of", || (get(&daemon, "/status")["loaded"] == 0).then_some(()));
            if down {
                assert_eq!(daemon.stop(), 0);
            }
            way.lose(&dir, &aside);
            if down {
                daemon.start_again();
            } else {
                // Whoever asks first finds out.
                let refused = daemon.ctx(&["rename", &id, "a title"]);
                assert!(refused.code == 1 && refused.stderr.contains("ESHUTDOWN"), "{way:?}: {refused:?}");
            }
            let session = until("the session to be shown as failed", || {
                let session = get(&daemon, &format!("/sessions/{id}"));
                (session["state"] == "failed").then_some(session)
            });
            assert_eq!(session["failure"]["reason"], way.reason(), "{way:?}, down {down}: {session}");
            let advice = session["failure"]["message"].as_str().unwrap().to_owned();
            assert!(advice.contains(&format!("ctx purge {id}")), "{advice}");
            let of_project = get(&daemon, "/projects/default/sessions?state=failed");
            assert_eq!(of_project["items"][0]["id"], id.as_str(), "{of_project}");
            // Lists show it without being asked, and say why.
            until("the list to show it", || {
                listed(&daemon, &id, &[])
                    .filter(|row| row["state"] == "failed" && row["failure"]["reason"] == way.reason())
            });
            assert!(daemon.ctx(&["ls", "--needs-me"]).ok().contains(&format!("failed: {}", way.reason())));
            for args in [&["send", "--session", "x", "--detach", "y"][..], &["ls"]] {
                daemon.ctx(args).ok();
            }
            for args in
                [&["rename", &id, "t"][..], &["archive", &id], &["pause", &id], &["end", "--yes", &id]]
            {
                let refused = daemon.ctx(args);
                assert!(
                    refused.code == 1 && refused.stderr.contains("ESHUTDOWN"),
                    "{way:?} {args:?}: {refused:?}"
                );
                assert!(refused.stderr.contains("ctx purge"), "{refused:?}");
            }
            // A part of the id and the name are known to every command too, where the directory is gone.
            let end = &id[id.len() - 8..];
            if way == Way::Directory {
                for args in [
                    &["show", end][..],
                    &["show", &id],
                    &["history", "coder/lost"],
                    &["log", end],
                    &["export", "--to", "jsonl", end],
                    &["repair", end],
                    &["fork", end],
                    &["end", "--yes", end],
                    &["wait", end],
                ] {
                    let said = daemon.ctx(args).fails(1);
                    assert!(
                        said.contains("failed") && !said.contains("no agent or session"),
                        "{args:?}: {said}"
                    );
                }
                daemon.ctx(&["wait", "--for", "ended", end]).ok();
            }
            let messages = get(&daemon, &format!("/sessions/{id}/messages"));
            assert_eq!(messages["error"]["code"], "ESHUTDOWN", "{messages}");
            assert_ne!(daemon.ctx(&["doctor"]).code, 0, "{way:?}");
            assert_eq!(daemon.ctx(&["send", "--session", "other", "unharmed"]).ok(), "unharmed\n");
            // Back in its place, it goes on.
            way.bring_back(&dir, &aside);
            until("the session to be back", || {
                (get(&daemon, &format!("/sessions/{id}"))["state"] == "idle").then_some(())
            });
            assert_eq!(daemon.ctx(&["send", "--session", "lost", "goes on"]).ok(), "goes on\n", "{way:?}");
            assert!(daemon.ctx(&["history", "coder/lost"]).ok().contains("words"));
            until("the list to show it as it is", || {
                listed(&daemon, &id, &[]).filter(|row| row["state"] == "idle")
            });
        }
    }
}

#[test]
fn a_session_whose_log_is_gone_or_unreadable_can_be_purged_and_its_name_used_again() {
    for way in [Way::Directory, Way::Log, Way::Unreadable] {
        let mut daemon = build().env("CTX_LIMITS_IDLE_UNLOAD_MS", "50").start();
        daemon.ctx(&["send", "--session", "lost", "words"]).ok();
        let id = listed(&daemon, "", &[]).map_or_else(
            || json_lines(&daemon.ctx(&["ls", "--json"]).ok())[0]["id"].as_str().unwrap().to_owned(),
            |row| row.to_string(),
        );
        assert_eq!(daemon.stop(), 0);
        way.lose(&daemon.session_dir("lost"), &daemon.path("aside"));
        daemon.start_again();
        until("the session to be shown as failed", || {
            (get(&daemon, &format!("/sessions/{id}"))["state"] == "failed").then_some(())
        });
        daemon.ctx(&["purge", "--yes", &id]).ok();
        assert_eq!(get(&daemon, &format!("/sessions/{id}"))["error"]["code"], "ENOENT", "{way:?}");
        until("the list to forget it", || listed(&daemon, &id, &["--all"]).is_none().then_some(()));
        assert_eq!(daemon.ctx(&["send", "--session", "lost", "new"]).ok(), "new\n", "{way:?}");
        assert_eq!(daemon.stop(), 0);
        daemon.start_again();
        assert_eq!(daemon.ctx(&["send", "--session", "lost", "newer"]).ok(), "newer\n", "{way:?}");
        assert!(listed(&daemon, &id, &["--all"]).is_none(), "{way:?}");
        daemon.ctx(&["doctor"]).ok();
    }
}

#[test]
fn a_new_session_of_the_name_leaves_what_is_left_of_the_failed_one() {
    for way in [Way::Directory, Way::Log, Way::Unreadable] {
        let mut daemon = build().start();
        for text in ["one", "two"] {
            daemon.ctx(&["send", "--session", "lost", text]).ok();
        }
        let id = json_lines(&daemon.ctx(&["ls", "--json"]).ok())[0]["id"].as_str().unwrap().to_owned();
        let (dir, aside) = (daemon.session_dir("lost"), daemon.path("aside"));
        let messages = fs::read(dir.join("messages.jsonl")).unwrap();
        assert_eq!(daemon.stop(), 0);
        way.lose(&dir, &aside);
        daemon.start_again();
        until("the session to be shown as failed", || {
            (get(&daemon, &format!("/sessions/{id}"))["state"] == "failed").then_some(())
        });
        assert_eq!(daemon.ctx(&["send", "--session", "lost", "again"]).ok(), "again\n");
        let freed = dir.with_file_name(format!("lost+{id}"));
        if way != Way::Directory {
            assert_eq!(fs::read(freed.join("messages.jsonl")).unwrap(), messages, "{way:?}");
        }
        let session = get(&daemon, &format!("/sessions/{id}"));
        assert_eq!(
            (&session["state"], &session["failure"]["reason"]),
            (&"failed".into(), &way.reason().into())
        );
        until("the list to show both", || {
            let new = json_lines(&daemon.ctx(&["ls", "--json"]).ok());
            let new = new.iter().find(|row| row["name"] == "lost" && row["id"] != id.as_str());
            (new.is_some_and(|row| row["state"] == "idle")
                && listed(&daemon, &id, &["--all"]).is_some_and(|row| row["state"] == "failed"))
            .then_some(())
        });
        // It is so after the next start, and what is put back where it is looked for is read again.
        assert_eq!(daemon.stop(), 0);
        daemon.start_again();
        until("the session to be failed again", || {
            (get(&daemon, &format!("/sessions/{id}"))["state"] == "failed").then_some(())
        });
        way.bring_back(&freed, &aside);
        until("the session to be back", || {
            let back = get(&daemon, &format!("/sessions/{id}/messages"));
            back["items"].as_array().is_some_and(|items| !items.is_empty()).then_some(())
        });
        assert_eq!(daemon.ctx(&["send", "--session", "lost", "more"]).ok(), "more\n");
    }
}
