//! The operator's control over a running agent, through HTTP: checkpoints, compaction, approvals, and what holds
//! when the daemon is killed or commands race.

mod approvals;
mod calls;
mod checkpoints;
mod compaction;
mod delegates;
mod dispatch;
mod guide;
mod kill;
mod kill_issues;
mod kill_runs;
mod mends;
mod pins;
mod project;
mod proposals;
mod races;
mod races_answers;
mod references;
mod rollback;
pub mod seed;
mod subagents;
mod summaries;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use testkit::{DEADLINE, until};

use crate::line::Line;
use crate::support::{Http, Response, builder};

/// A message for `debug/script`.
fn script(steps: Value) -> String {
    json!({ "script": steps }).to_string()
}

/// A run that says something and goes on for long.
fn slow(text: &str) -> String {
    script(json!([{ "text": text }, { "sleep_ms": 600_000 }]))
}

/// A run that pauses its own session, then says more.
fn pausing(before: &str, after: &str) -> String {
    script(json!([
        { "text": before },
        { "tool": { "name": "checkpoint", "input": { "reason": "sign-off" } } },
        { "text": after }
    ]))
}

/// What the model is sent, as it says itself.
fn dumping() -> String {
    script(json!([{ "dump": true }]))
}

fn path(id: &str, what: &str) -> String {
    format!("/sessions/{id}/{what}")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// A daemon with these limits.
fn daemon(limits: &[(&str, &str)]) -> Http {
    let mut builder = builder();
    for (name, value) in limits {
        builder = builder.env(&format!("CTX_LIMITS_{name}"), value);
    }
    let http = Http::of(builder);
    // Tests that fill the window count on the room that these leave.
    let tools = "fs.read\nfs.list\noutput.read\ncheckpoint\ntodo\nissue\n";
    std::fs::write(http.daemon.root().join("agent/coder.d/tools"), tools).unwrap();
    http
}

impl Http {
    /// A session that is running and has said `begun`.
    fn running(&self) -> String {
        let id = self.playing();
        self.post(&id, &slow("begun"));
        self.said(&id, "begun");
        id
    }

    /// Waits until a partial answer is on its way, of which no record tells.
    fn said(&self, id: &str, text: &str) {
        let mut stream = UnixStream::connect(self.daemon.root().join("agent/coder.sock")).expect("a socket");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        writeln!(stream, "{}", json!({ "op": "resume", "session": id })).expect("the daemon reads");
        let frames = BufReader::new(stream).lines().map(|line| line.expect("a frame"));
        let mut frames = frames.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
        let mut said = String::new();
        let is_said = frames.any(|frame| {
            let piece = match frame["type"].as_str() {
                Some("delta") => &frame["text"],
                // All is said already.
                Some("message") => &frame["content"][0]["text"],
                _ => &Value::Null,
            };
            said += piece.as_str().unwrap_or_default();
            said.contains(text)
        });
        assert!(is_said, "{text} is not in {said}");
    }

    /// A session that is paused in the middle of an answer; it and the checkpoint.
    fn paused_midway(&self, steps: &Value) -> (String, Value) {
        // On a busy machine the answer may be over before the pause comes: that one does not count.
        until("a pause in the middle of an answer", || {
            let id = self.playing();
            self.post(&id, &script(steps.clone()));
            self.said(&id, steps[0]["text"].as_str().expect("a text"));
            let made = self.call("POST", &path(&id, "checkpoints"), None);
            let records = self.records(&id);
            let mut before = records.iter().take_while(|record| record["type"] != "checkpoint_created");
            let is_over = before.any(|record| record["type"] == "assistant_finished");
            (made.status == 201 && !is_over).then(|| (id, made.json(201)))
        })
    }

    /// A session that its model has paused; it and its checkpoint.
    fn paused(&self, before: &str, after: &str) -> (String, String) {
        let id = self.playing();
        let checkpoint = self.pause_by_model(&id, before, after);
        (id, checkpoint)
    }

    fn pause_by_model(&self, id: &str, before: &str, after: &str) -> String {
        self.post(id, &pausing(before, after));
        self.wait_for(id, "paused");
        text(&self.get(&format!("/sessions/{id}")), "checkpoint").to_owned()
    }

    fn checkpoint(&self, id: &str, checkpoint: &str) -> Value {
        self.get(&path(id, &format!("checkpoints/{checkpoint}")))
    }

    /// Something done with a checkpoint.
    fn at_checkpoint(&self, id: &str, checkpoint: &str, act: &str) -> Response {
        self.call("POST", &path(id, &format!("checkpoints/{checkpoint}/{act}")), None)
    }

    fn resume(&self, id: &str, checkpoint: &str) -> Value {
        self.at_checkpoint(id, checkpoint, "resume").json(200)
    }

    fn edit(&self, id: &str, checkpoint: &str, content: &str) -> Response {
        let body = json!({ "content": content }).to_string();
        self.call("PUT", &path(id, &format!("checkpoints/{checkpoint}/prompts/primary")), Some(&body))
    }

    /// The whole log.
    fn records(&self, id: &str) -> Vec<Value> {
        let log = self.quick("GET", &path(id, "records"), None).expect("an answer").text;
        log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
    }

    fn of_type(&self, id: &str, kind: &str) -> Vec<Value> {
        self.records(id).into_iter().filter(|record| record["type"] == kind).collect()
    }

    /// Role and text of every message that counts, or of those that do not.
    fn messages(&self, id: &str, superseded: bool) -> Vec<(String, String)> {
        let list = self.get(&path(id, "messages?limit=1000"));
        let items = list["items"].as_array().unwrap().iter();
        items
            .filter(|message| message["superseded"] == superseded)
            .map(|message| (text(message, "role").to_owned(), text(message, "content").to_owned()))
            .collect()
    }

    /// Posts a message and waits until its run is over; the run.
    fn done(&self, id: &str, message: &str) -> Value {
        let posted = self.post(id, message);
        self.wait_for(id, "idle");
        self.get(&path(id, &format!("runs/{}", text(&posted, "run_id"))))
    }

    /// What the model of a session is sent for one more message: the request that it dumps.
    fn dump(&self, id: &str) -> Value {
        let run = self.done(id, &dumping());
        dumped(text(&run["primary_response"], "content"))
    }

    /// The audit events of a session by name, once there are as many of this one.
    fn audit(&self, id: &str, event: &str, count: usize) -> Vec<Value> {
        until(&format!("{count} of {event}"), || {
            let list = self.get(&format!("/audit?session={id}&event={event}&limit=1000"));
            let items = list["items"].as_array().unwrap().clone();
            (items.len() >= count).then_some(items)
        })
    }

    /// One request on a connection of its own, without another process; None when the daemon goes away.
    fn quick(&self, method: &str, path: &str, body: Option<&str>) -> Option<Response> {
        Line::to(self).ask(method, path, body)
    }
}

/// A request as `debug/script` dumps it.
fn dumped(content: &str) -> Value {
    serde_json::from_str(content).unwrap_or_else(|error| panic!("{error}: {content}"))
}

/// All text that a dumped request's turns hold.
fn sent(request: &Value) -> String {
    request["messages"].to_string()
}
