//! Images of a message: kept beside the log, sent in each provider's format, and shown to people as a line.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::models::{ModelServer, Reply, Wire};
use testkit::{Outcome, Place, finish};

use crate::support::build;

/// A picture of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const SHOWN: &str = "[image image/png, 0.1 KB]";

fn picture(place: &Place) -> PathBuf {
    let path = place.workspace().join("shot.png");
    let decoded =
        Command::new("sh").args(["-c", "printf %s \"$0\" | base64 -d > \"$1\"", PNG]).arg(&path).status();
    assert!(decoded.unwrap().success());
    path
}

/// A command in a shell that has the keys of every provider, which are all this server.
fn ctx(place: &Place, server: &ModelServer, args: &[&str]) -> Outcome {
    let mut command = place.command(args);
    for (name, base) in [("OPENAI", "/v1"), ("ANTHROPIC", ""), ("GEMINI", "")] {
        command.env(format!("{name}_API_KEY"), "a-key").env(format!("{name}_BASE_URL"), server.url() + base);
    }
    finish(command.stdin(Stdio::null()))
}

fn model(wire: Wire) -> &'static str {
    match wire {
        Wire::Responses | Wire::Chat => "openai:test-model",
        Wire::Messages => "anthropic:test-model",
        Wire::Gemini => "gemini:test-model",
    }
}

/// Where a format has its image, in the first message of the user.
fn sent(wire: Wire, body: &Value) -> String {
    let at = match wire {
        Wire::Responses => "/input/0/content/1/image_url",
        Wire::Chat => "/messages/1/content/1/image_url/url",
        Wire::Messages => "/messages/0/content/1/source/data",
        Wire::Gemini => "/contents/0/parts/1/inlineData/data",
    };
    body.pointer(at).and_then(Value::as_str).unwrap_or_else(|| panic!("{wire:?}: {body}")).to_owned()
}

#[test]
fn an_image_goes_to_every_provider_in_its_format_and_stays_through_restart_and_fork() {
    for wire in Wire::ALL {
        let (mut daemon, server) = (build().start(), ModelServer::start());
        if wire == Wire::Chat {
            server.only_chat();
        }
        let shot = picture(&daemon);
        let shot = shot.to_str().unwrap();
        server.reply(Reply::text("A pixel."));
        let args = ["run", "--session", "s", "--model", model(wire), "--image", shot, "what is this?"];
        ctx(&daemon, &server, &args).ok();
        assert!(sent(wire, server.bodies().last().unwrap()).ends_with(PNG), "{wire:?}");
        for words in [
            &["history", "coder", "--session", "s"][..],
            &["show", "coder/s"],
            &["export", "coder/s", "--to", "markdown"],
            &["log", "coder/s"],
        ] {
            let shown = daemon.ctx(words).ok();
            assert!(shown.contains(SHOWN) && !shown.contains(PNG), "{words:?}: {shown}");
        }
        daemon.kill();
        daemon.start_again();
        daemon.ctx(&["fork", "coder/s", "--name", "f"]).ok();
        server.reply(Reply::text("Still a pixel."));
        ctx(&daemon, &server, &["run", "--session", "f", "and now?"]).ok();
        assert!(
            sent(wire, server.bodies().last().unwrap()).ends_with(PNG),
            "{wire:?}: after a restart, in a fork"
        );
        assert_eq!(daemon.ctx(&["doctor"]).code, 0);
    }
}

#[test]
fn a_model_that_cannot_see_is_told_so_and_what_is_no_image_is_refused() {
    let (daemon, server) = (build().start(), ModelServer::start());
    let shot = picture(&daemon);
    server.reply(Reply::text("I cannot see it."));
    let args =
        ["run", "--session", "s", "--model", "openai:o3-mini", "--image", shot.to_str().unwrap(), "look"];
    ctx(&daemon, &server, &args).ok();
    let body = server.bodies().last().unwrap().to_string();
    assert!(body.contains("which you cannot be shown") && !body.contains(PNG), "{body}");
    let text = daemon.workspace().join("text.png");
    std::fs::write(&text, "not a picture").unwrap();
    let args = ["send", "--image", text.to_str().unwrap(), "look"];
    let refused = ctx(&daemon, &server, &args);
    assert!(refused.code == 2 && refused.stderr.contains("is not an image"), "{}", refused.stderr);
    assert_eq!(ctx(&daemon, &server, &["send", "--image", "/nowhere.png", "look"]).code, 1);
}

#[test]
fn an_image_that_a_line_of_the_chat_names_goes_with_it() {
    let daemon = build().start();
    picture(&daemon);
    let dump = r#"{"script":[{"dump":true}],"see":" @shot.png "}"#;
    let said = daemon.ctx_with(&["chat", "coder/c", "--model", "debug:script"], format!("{dump}\n"));
    assert!(said.stdout.contains(r#""type":"image""#), "{}{}", said.stdout, said.stderr);
    assert!(daemon.ctx(&["history", "coder", "--session", "c"]).ok().contains(SHOWN));
}

#[test]
fn an_image_that_a_message_names_goes_with_it() {
    let daemon = build().start();
    picture(&daemon);
    let dump = r#"{"script":[{"dump":true}],"see":" @shot.png "}"#;
    for command in ["run", "send"] {
        let said = daemon.ctx(&[command, "--session", command, "--model", "debug:script", dump]).ok();
        assert!(said.contains(r#""type":"image""#), "{command}: {said}");
        assert!(daemon.ctx(&["history", "coder", "--session", command]).ok().contains(SHOWN), "{command}");
    }
}
