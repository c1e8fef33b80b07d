//! Configuration: which layer wins, what is refused and where it is to blame.

use expect_test::{Expect, expect};
use testkit::{Outcome, Place};

use crate::support::{build, json_lines, place};

/// `ctx config show --json` with a file and variables.
fn show(place: &Place, file: &str, variables: &[(&str, &str)]) -> Outcome {
    let path = place.path("config.toml");
    std::fs::write(&path, file).unwrap();
    let mut command = place.command(&["config", "show", "--json", "--config"]);
    command.arg(&path).envs(variables.iter().copied());
    testkit::finish(&mut command)
}

/// A setting's value and origin, the place's own path shortened.
fn setting(place: &Place, shown: &str, key: &str) -> String {
    let all = &json_lines(shown)[0];
    let settings = all["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["key"] == key).unwrap();
    let text = format!("{} from {}", found["value"], found["origin"].as_str().unwrap());
    text.replace(&place.path("").display().to_string(), "")
}

#[test]
fn the_environment_goes_before_the_file_and_the_file_before_the_default() {
    let place = place();
    let file = "[limits]\nrunning_per_project = 7\nsteps_per_run = 8\n\n[log]\nformat = \"json\"\n";
    let shown = show(&place, file, &[("CTX_LIMITS_STEPS_PER_RUN", "1_000")]).ok();
    assert_eq!(setting(&place, &shown, "limits.running_per_operator"), "16 from default");
    assert_eq!(setting(&place, &shown, "limits.running_per_project"), "7 from config.toml:2");
    assert_eq!(setting(&place, &shown, "limits.steps_per_run"), "1000 from $CTX_LIMITS_STEPS_PER_RUN");
    assert_eq!(setting(&place, &shown, "log.format"), "\"json\" from config.toml:6");
}

#[test]
fn the_users_file_is_read_without_being_named() {
    let place = place();
    place.ctx(&["config", "init"]).ok();
    let path = place.home().join(".config/ctx/config.toml");
    std::fs::write(&path, "[limits]\nsteps_per_run = 3\n").unwrap();
    let shown = place.ctx(&["config", "show", "--json"]).ok();
    assert_eq!(setting(&place, &shown, "limits.steps_per_run"), "3 from home/.config/ctx/config.toml:2");
    assert_eq!(place.ctx(&["config", "path"]).ok().trim(), path.display().to_string());
}

/// What a bad file or variable is told, its path shortened.
fn check(file: &str, variables: &[(&str, &str)], wanted: Expect) {
    let place = place();
    let said = show(&place, file, variables).fails(2);
    wanted.assert_eq(&said.replace(&place.path("").display().to_string(), ""));
}

#[test]
fn a_mistake_in_the_file_has_its_line_and_column() {
    check(
        "[limits]\nrunning_per_projct = 7\n",
        &[],
        expect![[r#"
            error: config.toml:2:1: unknown key `running_per_projct` in [limits] (EBADMSG)
            hint: did you mean `running_per_project`?
        "#]],
    );
    check(
        "# über\n[limit]\nx = 1\n",
        &[],
        expect![[r#"
            error: config.toml:2:2: unknown section `limit` (EBADMSG)
            hint: did you mean `limits`?
        "#]],
    );
    check(
        "[log]\n  format = \"xml\"\n",
        &[],
        expect![[r#"
            error: config.toml:2:12: `log.format` must be one of text, json, not "xml" (EBADMSG)
        "#]],
    );
    check(
        "[limits]\nsteps_per_run = \"many\"\n",
        &[],
        expect![[r"
            error: config.toml:2:17: `limits.steps_per_run` must be a whole number, not string (EBADMSG)
        "]],
    );
    check(
        "[limits]\nsteps_per_run = -1\n",
        &[],
        expect![[r#"
            error: config.toml:2:17: `limits.steps_per_run` must be a whole number of at least 1, not -1 (EBADMSG)
        "#]],
    );
    check(
        "[limits]\nsteps_per_run = 5000000000\n",
        &[],
        expect![[r#"
            error: config.toml:2:17: invalid value for `limits.steps_per_run`: invalid value: integer `5000000000`, expected u32 (EBADMSG)
        "#]],
    );
    check(
        "[shells.ssh]\nhosts = [\"a\", \"\"]\n",
        &[],
        expect![[r"
            error: config.toml:2:9: `shells.ssh.hosts` has ``, which is no name: names are compared as a whole (EBADMSG)
        "]],
    );
    check(
        "[shells]\ncontainers = \"web-*\"\n",
        &[],
        expect![[r"
            error: config.toml:2:14: `shells.containers` has `web-*`, which is no name: names are compared as a whole (EBADMSG)
        "]],
    );
    check(
        "limits = 3\n",
        &[],
        expect![[r"
        error: config.toml:1:1: `limits` is a section: write [limits] and its keys below it (EBADMSG)
    "]],
    );
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    let place = place();
    let said = show(&place, "[limits]\nsteps_per_run = = 2\n", &[]).fails(2);
    assert!(said.contains("config.toml:2:17: "), "{said}");
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    check(
        "",
        &[("CTX_LIMITS_STEPS_PER_RUN", "few")],
        expect![[r#"
            error: $CTX_LIMITS_STEPS_PER_RUN: must be a whole number of at least 1, not `few` (EINVAL)
        "#]],
    );
    check(
        "",
        &[("CTX_LIMITS_STEPS_PER_RUNN", "1")],
        expect![[r"
            error: $CTX_LIMITS_STEPS_PER_RUNN: unknown key (EINVAL)
            hint: did you mean CTX_LIMITS_STEPS_PER_RUN?
        "]],
    );
}

#[test]
fn variables_that_are_not_ours_are_left_alone() {
    let place = place();
    show(&place, "", &[("CTX_SOMETHING_ELSE", "x"), ("CTX_HOME", "y")]).ok();
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let place = place();
    let said = place.ctx(&["config", "show", "--config", "nowhere.toml"]).fails(1);
    assert!(said.contains("nowhere.toml: cannot read the config file"), "{said}");
}

#[test]
fn init_writes_a_file_that_changes_nothing_and_is_never_written_over_by_accident() {
    let place = place();
    place.ctx(&["config", "init"]).ok();
    let path = place.home().join(".config/ctx/config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("# running_per_project = 4\n"), "{text}");
    let shown = place.ctx(&["config", "show", "--json"]).ok();
    let settings = json_lines(&shown)[0]["settings"].as_array().unwrap().clone();
    // The tests themselves say that no daemon is to be started.
    let of_file = settings.iter().filter(|setting| setting["key"] != "autostart");
    assert!(
        of_file.clone().count() > 40 && of_file.into_iter().all(|setting| setting["origin"] == "default")
    );

    // Every line can be switched on: that is what it is for.
    let on: String = text.lines().map(switch_on).collect();
    std::fs::write(&path, on).unwrap();
    let shown = place.ctx(&["config", "show", "--json"]).ok();
    let settings = json_lines(&shown)[0]["settings"].as_array().unwrap().clone();
    assert!(settings.iter().all(|setting| setting["origin"] != "default"), "{settings:?}");

    std::fs::write(&path, "[log]\n").unwrap();
    let said = place.ctx(&["config", "init"]).fails(1);
    assert!(said.contains("already exists") && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[log]\n");
    place.ctx(&["config", "init", "--force"]).ok();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// Takes the `#` from lines that set a key.
fn switch_on(line: &str) -> String {
    let set = line.strip_prefix("# ").filter(|rest| {
        rest.split_once(" = ")
            .is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    });
    format!("{}\n", set.unwrap_or(line))
}

#[test]
fn the_daemon_lives_by_its_configuration() {
    let daemon = build().env("CTX_LIMITS_TITLE_BYTES", "5").start();
    daemon.ctx(&["send", "hello"]).ok();
    daemon.ctx(&["rename", "coder", "short"]).ok();
    let said = daemon.ctx(&["rename", "coder", "too long"]).fails(2);
    assert!(said.contains("EINVAL") || said.contains("EMSGSIZE"), "{said}");
    let status = json_lines(&daemon.ctx(&["status", "--json"]).ok());
    assert_eq!(status[0]["limits"]["title_bytes"], 5);
}

#[test]
fn a_daemon_with_a_bad_configuration_does_not_start() {
    let place = place();
    std::fs::write(place.path("bad.toml"), "[serv]\n").unwrap();
    let bad = place.path("bad.toml");
    let said = place.ctx(&["serve", "--config", bad.to_str().unwrap()]).fails(2);
    assert!(said.contains("bad.toml:1:2: unknown section `serv`"), "{said}");
    assert!(!place.root().exists(), "and it has not touched the root");
}

#[test]
fn zero_is_refused_where_nothing_would_work_with_it() {
    for key in ["frame_bytes", "running_per_project", "http_connections", "requests_per_second"] {
        let place = place();
        let said = show(&place, &format!("[limits]\n{key} = 0\n"), &[]).fails(2);
        assert!(said.contains(key) && said.contains("must be a whole number of at least 1, not 0"), "{said}");
        let name = format!("CTX_LIMITS_{}", key.to_uppercase());
        let said = show(&place, "", &[(&name, "0")]).fails(2);
        assert!(said.contains(&name) && said.contains("of at least 1"), "{said}");
    }
    let place = place();
    show(&place, "[limits]\nidle_unload_ms = 0\nstop_grace_ms = 0\n", &[]).ok();
}

#[test]
fn a_file_that_is_not_utf_8_says_so_and_where() {
    let place = place();
    let path = place.path("config.toml");
    std::fs::write(&path, b"[log]\nlevel = \"\xff\"\n").unwrap();
    let said = place.ctx(&["config", "show", "--config", path.to_str().unwrap()]).fails(2);
    assert!(said.contains("config.toml:2:10: the config file is not UTF-8"), "{said}");
}

#[test]
fn every_line_that_init_writes_can_be_uncommented_and_changes_nothing() {
    let place = place();
    place.ctx(&["config", "init"]).ok();
    let path = place.home().join(".config/ctx/config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let is_key = |line: &str| line.starts_with("# ") && line.contains(" = ");
    let all: Vec<&str> = text.lines().map(|line| if is_key(line) { &line[2..] } else { line }).collect();
    std::fs::write(&path, all.join("\n")).unwrap();
    let values = |shown: &str| -> Vec<String> {
        let settings = json_lines(shown)[0]["settings"].as_array().unwrap().clone();
        settings.iter().map(|setting| format!("{} = {}", setting["key"], setting["value"])).collect()
    };
    let set = values(&place.ctx(&["config", "show", "--json"]).ok());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(set, values(&place.ctx(&["config", "show", "--json"]).ok()));
}
