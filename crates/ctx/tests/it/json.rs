//! `--json` of the commands that change something, and the name that was meant when an unknown one was typed.

use serde_json::{Value, json};
use testkit::until;

use crate::support::{daemon, json_lines};

#[test]
fn what_a_command_changes_is_printed_as_an_object() {
    let daemon = daemon();
    let run = |args: &[&str]| -> Value {
        let options = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let args = [&args[..options], &["--json"], &args[options..]].concat();
        let said = daemon.ctx(&args).ok();
        let mut objects = json_lines(&said);
        assert_eq!(objects.len(), 1, "{args:?} printed {said}");
        objects.remove(0)
    };
    let config = run(&["config", "init"])["file"].as_str().unwrap().to_owned();
    assert_eq!(run(&["config", "path"]), json!({ "file": config, "exists": true }));
    assert_eq!(run(&["config"])["file"], json!(config), "the same as `config show`");

    let added =
        run(&["model", "add", "own", "--kind", "openai", "--base-url", "http://127.0.0.1:1", "--no-test"]);
    assert_eq!(added, json!({ "provider": "own", "file": config }));
    assert_eq!(run(&["model", "rm", "own"])["provider"], "own");
    assert_eq!(run(&["model", "use", "debug:script"])["name"], "debug:script");
    assert_eq!(run(&["mcp-server", "add", "files", "--", "true"])["name"], "files");
    assert_eq!(run(&["mcp-server", "rm", "files"])["command"], json!(["true"]));

    assert_eq!(run(&["agent", "new", "tester", "--model", "debug/script"])["model"], "debug/script");
    let set = run(&["set", "tester", "model", "debug/echo"]);
    assert_eq!(set, json!({ "name": "tester", "key": "model", "value": "debug/echo" }));
    assert_eq!(run(&["agent", "rm", "tester", "--yes"])["model"], "debug/echo");
    assert_eq!(run(&["tool", "new", "greet"])["from"], "own");

    let dir = daemon.root().parent().unwrap().join("music");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    assert_eq!(run(&["project", "init", dir])["project"], "music");
    assert_eq!(run(&["project", "check", dir])["project"], "music");
    run(&["project", "add", dir]);
    assert_eq!(run(&["project", "rm", "music", "--yes"])["id"], "music");
    let file = std::path::Path::new(dir).join(".ctx/project.yaml");
    std::fs::write(file, "project: [\n").unwrap();
    let broken = daemon.ctx(&["project", "check", dir, "--json"]);
    assert_eq!(json_lines(&broken.stdout)[0]["code"], "EBADMSG", "{}", broken.stdout);

    let token = json_lines(&daemon.ctx(&["token", "new", "--json"]).ok()).remove(0);
    let id = token["id"].as_str().unwrap();
    assert_eq!(run(&["token", "revoke", id])["id"], id);
    assert_eq!(run(&["import", "undo"])["import_id"], Value::Null);

    let terminal = run(&["term", "run", "--detach", "--", "cat"]);
    let id = terminal["id"].as_str().unwrap();
    assert_eq!(run(&["term", "send", id, "hello", "--enter"])["id"], id);
    until("the text to be on the screen", || {
        run(&["term", "screen", id]).to_string().contains("hello").then_some(())
    });
    assert_eq!(run(&["term", "close", id])["state"], "closed");
    assert_eq!(daemon.ctx(&["snapshots", "--json"]).ok(), daemon.ctx(&["snapshots", "list", "--json"]).ok());
}

#[test]
fn an_unknown_name_is_answered_with_the_one_that_was_meant() {
    let daemon = daemon();
    let cases: [(&[&str], u8, &str); 9] = [
        (&["help", "chta"], 2, "'chat'"),
        (&["help", "term", "atach"], 2, "'attach'"),
        (&["send", "-a", "codr", "hello"], 1, "no agent `codr`; did you mean coder?"),
        (&["latest", "codr"], 1, "did you mean coder?"),
        (&["agent", "rm", "codr", "--yes"], 1, "no agent `codr`; did you mean coder?"),
        (&["which", "debug/ech"], 1, "did you mean debug/echo?"),
        (&["model", "use", "debug:ech"], 1, "no model debug:ech; did you mean debug:echo?"),
        (&["project", "trust", "defalt"], 1, "no project defalt; did you mean default?"),
        (&["project", "rm", "defalt", "--yes"], 1, "no project defalt; did you mean default?"),
    ];
    for (args, exit, said) in cases {
        let stderr = daemon.ctx(args).fails(exit.into());
        assert!(stderr.contains(said), "{args:?}: {stderr}");
        assert!(!stderr.contains("works in the directory"), "{args:?}: {stderr}");
    }
}
