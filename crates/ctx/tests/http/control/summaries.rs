//! Summaries that are none: of a really large session, by a model that repeats what it is given.

use serde_json::{Value, json};

use super::{daemon, path, text};
use crate::support::Http;

const EXCHANGES: u32 = 1_000;
/// Of each message: 25 MB in all.
const BYTES: usize = 12_500;

/// The exchange of a log's only run, again and again with other ids, as if a model with a large window had been talked to.
fn grow(log: &str) -> String {
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_run: Vec<&Value> = lines.iter().skip_while(|line| line["type"] != "user").collect();
    let mut grown = log.to_owned();
    let mut seq = lines.len();
    for n in 0..EXCHANGES {
        for line in &of_run {
            let mut line = (*line).clone();
            line["seq"] = json!(seq);
            seq += 1;
            for field in ["turn_id", "message_id"] {
                if let Some(id) = line[field].as_str() {
                    // Ids of one moment differ at their ends alone.
                    line[field] = json!(format!("{}{n:07}{}", &id[..18], &id[25..]));
                }
            }
            if line["text"].is_string() {
                line["text"] = json!(format!("{} {n}", "x".repeat(BYTES)));
            }
            line.as_object_mut().unwrap().remove("client_id");
            grown += &format!("{line}\n");
        }
    }
    grown
}

fn large(http: &mut Http) -> String {
    let id = http.session(r#"{"name":"large"}"#);
    http.call("PUT", &format!("/sessions/{id}"), Some(r#"{"model_override":"debug:echo"}"#)).json(200);
    http.done(&id, "x");
    http.daemon.stop();
    let uid = rustix::process::getuid().as_raw();
    let at = http.daemon.root().join(format!("home/{uid}/agent/coder/session/large/events.jsonl"));
    let log = std::fs::read_to_string(&at).unwrap();
    std::fs::write(&at, grow(&log)).unwrap();
    assert!(std::fs::metadata(&at).unwrap().len() > 25_000_000);
    http.daemon.start_again();
    id
}

#[test]
fn a_model_that_repeats_a_large_session_has_not_summed_it_up() {
    let mut http = daemon(&[]);
    let id = large(&mut http);
    let run = http.done(&id, "are you there?");
    assert_eq!(
        (&run["state"], &run["primary_response"]["content"]),
        (&json!("done"), &json!("are you there?"))
    );
    let made = http.get(&path(&id, "compactions"))["items"][0].clone();
    assert_eq!((&made["fallback_occurred"], &made["summary"]), (&json!(true), &Value::Null));
    assert!(text(&made, "fallback_reason").contains("more than 524288 bytes"), "{}", made["fallback_reason"]);
    assert_eq!(made["superseded_message_ids"].as_array().map(Vec::len), Some(2 * EXCHANGES as usize + 2));
    assert_eq!(http.done(&id, "and now?")["state"], "done");
}
