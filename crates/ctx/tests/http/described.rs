//! What describes an agent, when it is wrong: the file, the line and the column are named, in the message and in
//! `details`.

use serde_json::{Value, json};

use crate::support::{Http, Response};

/// Where the answer says that something is wrong.
#[track_caller]
fn place(answer: &Response) -> Value {
    assert_eq!(answer.code(422), "EBADMSG");
    let error = answer.json(422)["error"].clone();
    let details = &error["details"];
    let (file, line, column) = (&details["file"], &details["line"], &details["column"]);
    let shown = format!("{}:{line}:{column}: ", file.as_str().unwrap_or_default());
    assert!(error["message"].as_str().unwrap().contains(&shown), "{shown} in {error}");
    assert_eq!(details["errors"][0]["file"], *file, "{error}");
    json!([file, line, column])
}

#[test]
fn a_bad_control_file_is_named_with_line_and_column() {
    let http = Http::start();
    let put = |name: &str, text: &str| {
        std::fs::write(http.daemon.root().join("agent/coder.d").join(name), text).unwrap();
    };
    let create = || http.call("POST", "/projects/default/sessions", Some("{}"));
    put("model", "# the one we have\n   bogus:x y\n");
    assert_eq!(place(&create()), json!(["agent/coder.d/model", 2, 4]));
    put("model", "debug:echo\n");
    put("env", "A=1\n\tB\n");
    assert_eq!(place(&create()), json!(["agent/coder.d/env", 2, 2]));
    put("env", "A=1\n");
    create().json(201);
}

#[test]
fn a_model_that_an_agents_own_file_names_and_is_not_there_is_the_files_fault() {
    let http = Http::start();
    let model = http.daemon.root().join("agent/coder.d/model");
    std::fs::write(&model, "debug:nope\n").unwrap();
    let create = || http.call("POST", "/projects/default/sessions", Some("{}"));
    assert_eq!(place(&create()), json!(["agent/coder.d/model", 1, 1]));
    std::fs::write(&model, "debug:echo\n").unwrap();
    let id = create().json(201)["id"].as_str().unwrap().to_owned();
    // What the request itself names is the request's.
    let set = http.call("PUT", &format!("/sessions/{id}"), Some(r#"{"model_override":"debug:nope"}"#));
    assert_eq!(set.json(404)["error"]["details"]["field"], "model_override", "{}", set.text);
}

#[test]
fn a_project_whose_model_does_not_exist_is_invalid_until_it_does() {
    let http = Http::start();
    let dir = http.daemon.path("music");
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    let file = "version: 1\nproject: music\nprimary:\n  model: debug:nope\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    let body = json!({ "directory": dir }).to_string();
    let added = http.call("POST", "/projects", Some(&body)).json(201);
    assert_eq!(added["state"], "invalid", "{added}");
    let error = &added["errors"][0];
    assert_eq!((&error["line"], &error["column"]), (&json!(4), &json!(10)), "{error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("unknown model debug:nope; available: debug:echo, debug:script"),
        "{error}"
    );
    let create = || http.call("POST", "/projects/music/sessions", Some("{}"));
    assert_eq!(place(&create()), json!([".ctx/project.yaml", 4, 10]));
    // The model comes, and the file is as it was.
    let model = http.daemon.root().join("model/debug/nope.d");
    std::fs::create_dir_all(&model).unwrap();
    std::fs::write(model.join("id"), "debug/echo\n").unwrap();
    assert_eq!(http.get("/projects/music")["state"], "ready");
    create().json(201);
}
