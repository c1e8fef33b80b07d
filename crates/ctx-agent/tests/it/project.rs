//! Project files: what is right, and what is said of what is wrong.

use std::os::unix::fs::symlink;
use std::path::Path;

use ctx_agent::describe::describe_snapshot;
use ctx_agent::project::{
    Net, Parsed, Plays, Snapshot, TOOLS, Trust, looked_like, parse, read_project, template,
};
use ctx_agent::sha256_hex;
use ctx_agent::tool::Tools;
use ctx_session::project::{Delegate, Strategy};
use ctx_session::{Name, Timestamp};
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// The example of the design, whole.
const WHOLE: &str = r#"version: 1
project: music
primary:
  name: band                      # default: the project
  model: openai:gpt-4o            # or debug:echo
  prompt: prompts/primary.md
  tools: [fs.read, fs.write, fs.list, shell.exec, agent.dispatch, checkpoint, todo, github.search]
  compaction: {upper: 0.85, lower: 0.60, strategy: summarize}
  max_steps: 64
subagents:
  tester: {model: "debug:script", prompt: prompts/tester.md, terminal: true, cage: {net: none, memory: 512M, walltime: 10m}}
  codex: {acp: [codex-acp], cage: {net: host}}
policy: ["deny shell.exec git push*", "ask shell.exec", "allow fs.*"]
mcp: {github: {command: [github-mcp]}}
limits: {running_per_project: 4}
"#;

const LEAST: &str = "version: 1\nproject: music\nprimary: {}\n";

fn good(text: &str) -> Parsed {
    parse(text).unwrap()
}

#[track_caller]
fn complains(text: &str, expected: Expect) {
    let problems = parse(text).unwrap_err();
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn the_whole_example_is_read() {
    let Parsed { spec, named, agent_at, .. } = good(WHOLE);
    assert_eq!((spec.project.as_str(), spec.primary.name.as_str()), ("music", "band"));
    assert_eq!(spec.primary.model, "openai:gpt-4o");
    assert_eq!(spec.primary.max_steps, Some(64));
    assert_eq!(spec.primary.tools.unwrap().len(), 8);
    assert_eq!(spec.primary.compaction.strategy, Strategy::Summarize);
    assert_eq!((spec.primary.compaction.upper, spec.primary.compaction.lower), (0.85, 0.60));
    let subagent = |name: &str| spec.subagents.get(&Name::new(name).unwrap()).unwrap().clone();
    let tester = subagent("tester");
    assert!(tester.terminal);
    assert_eq!((tester.cage.memory_bytes, tester.cage.walltime_ms), (Some(512 << 20), Some(600_000)));
    assert_eq!(subagent("codex").plays, Plays::Acp { command: vec!["codex-acp".to_owned()] });
    assert_eq!((tester.cage.net, subagent("codex").cage.net), (Some(Net::None), Some(Net::Host)));
    assert_eq!(spec.policy, ["deny shell.exec git push*", "ask shell.exec", "allow fs.*"]);
    assert_eq!(spec.limits.running_per_project, Some(4));
    assert_eq!(agent_at.pair(), (4, 9));
    assert_eq!(
        named.prompts.iter().map(|prompt| prompt.path.as_str()).collect::<Vec<_>>(),
        ["prompts/tester.md", "prompts/primary.md"]
    );
}

#[test]
fn what_is_left_out_has_its_default() {
    let Parsed { spec, .. } = good(LEAST);
    assert_eq!(spec.primary.name.as_str(), "music");
    assert_eq!(spec.primary.model, "main");
    assert_eq!((spec.primary.tools, spec.primary.max_steps, spec.primary.prompt), (None, None, None));
    assert_eq!(spec.primary.compaction.strategy, Strategy::Summarize);
}

#[test]
fn a_compaction_can_be_delegated() {
    let with = |delegate: &str| {
        format!(
            "version: 1\nproject: p\nprimary: {{compaction: {{strategy: delegate, delegate: {delegate}}}}}\n\
             subagents: {{short: {{model: main}}}}\n"
        )
    };
    let made = |delegate: &str| good(&with(delegate)).spec.primary.compaction.delegate.unwrap();
    assert_eq!(made("short"), Delegate::Subagent("short".to_owned()));
    assert_eq!(made("[sum, up]"), Delegate::Command(vec!["sum".to_owned(), "up".to_owned()]));
    complains(
        &with("nobody"),
        expect![".ctx/project.yaml:3:54: unknown subagent `nobody`; name one, or write a command as a list"],
    );
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_place() {
    complains(
        "\
version: 2
project: my music
primry:
  model: a b
primary:
  model: 5
  tools: [fs.raed, fs.list, fs.list]
  compaction: {upper: 0.5, lower: 0.9, strategy: shrink}
  max_steps: many
  max_steps: 3
subagents:
  tester: {terminal: perhaps, cage: {net: all, memory: lots, walltime: 10}}
  both: {model: main, acp: [x]}
policy: [permit fs.read, 7]
mcp: {github: {command: github-mcp}}
limits: {running_per_project: 0}
",
        expect![[r#"
            .ctx/project.yaml:1:10: this ctx reads version 1 of project files, not 2
            .ctx/project.yaml:2:10: `my music` cannot be used for `project`: a name holds only letters, digits and the characters . _ + -
            .ctx/project.yaml:3:1: unknown key `primry`; did you mean `primary`?
            .ctx/project.yaml:6:10: `primary.model` must be a text, not a number; write "5" with quotes
            .ctx/project.yaml:7:11: unknown tool `fs.raed`; did you mean `fs.read`?
            .ctx/project.yaml:7:29: duplicate `fs.list`
            .ctx/project.yaml:8:35: `lower` must be less than `upper`: 0.9 is not less than 0.5
            .ctx/project.yaml:8:50: `compaction.strategy` must be one of drop, summarize, delegate, checkpoint, not `shrink`
            .ctx/project.yaml:9:14: `primary.max_steps` must be a whole number, not a text
            .ctx/project.yaml:10:3: duplicate `max_steps`; first on line 9
            .ctx/project.yaml:12:11: `subagents.tester` needs `model` or `acp`
            .ctx/project.yaml:12:22: `subagents.tester.terminal` must be true or false, not a text
            .ctx/project.yaml:12:43: `subagents.tester.cage.net` must be one of none, host, not `all`
            .ctx/project.yaml:12:56: `subagents.tester.cage.memory` must be a size such as 512M: a number and K, M or G
            .ctx/project.yaml:12:72: `subagents.tester.cage.walltime` must be a time such as 10m: a number and ms, s, m or h
            .ctx/project.yaml:13:23: `subagents.both` can have `model` or `acp`, not both
            .ctx/project.yaml:14:10: expected `allow|ask|deny TOOL [PATTERN]`, found `permit`
            .ctx/project.yaml:14:26: `policy` must be a text, not a number; write "7" with quotes
            .ctx/project.yaml:15:25: `mcp.github.command` must be a list: a program and its arguments, not a text
            .ctx/project.yaml:16:31: `limits.running_per_project` must be a whole number from 1 to 10000, not 0"#]],
    );
}

#[test]
fn what_is_no_project_file_at_all_says_so() {
    complains(
        "",
        expect![".ctx/project.yaml:1:1: the file is empty; start with `version: 1` and `project: NAME`"],
    );
    complains(
        "just text\n",
        expect![".ctx/project.yaml:1:1: a project file is a mapping of keys to values, not a text"],
    );
    complains(
        "a: [1,\n",
        expect![
            ".ctx/project.yaml:2:1: invalid YAML: while parsing a node, did not find expected node content"
        ],
    );
    complains(
        "a: b: c\n",
        expect![".ctx/project.yaml:1:5: invalid YAML: mapping values are not allowed in this context"],
    );
    complains(
        "\tversion: 1\n",
        expect![[r#"
        .ctx/project.yaml:1:2: `primary` is missing
        .ctx/project.yaml:1:2: `project` is missing"#]],
    );
    complains(
        &format!("{LEAST}---\nversion: 1\n"),
        expect![".ctx/project.yaml:4:1: a project file is one document; remove what follows `---`"],
    );
    complains(
        "version: 1\nproject: &p music\nprimary: {name: *p}\nlimits: !!map {}\n",
        expect![[r#"
        .ctx/project.yaml:2:10: anchors and aliases (& and *) are not supported; write the value out
        .ctx/project.yaml:3:17: `primary.name` must be a text, not nothing
        .ctx/project.yaml:3:17: anchors and aliases (& and *) are not supported; write the value out
        .ctx/project.yaml:4:9: tags (!) are not supported; write the plain value"#]],
    );
    complains(
        "1: 2\nproject: x\n",
        expect![[r#"
        .ctx/project.yaml:1:1: `primary` is missing
        .ctx/project.yaml:1:1: `version` is missing
        .ctx/project.yaml:1:1: a key must be a text, not a number"#]],
    );
}

#[test]
fn columns_count_characters() {
    complains(
        "version: 1\nproject: x\nprimary: {name: \"ü\", naem: 1}\n",
        expect![[r#"
        .ctx/project.yaml:3:17: `ü` cannot be used for `primary.name`: a name begins with a letter or a digit
        .ctx/project.yaml:3:22: unknown key `naem` in `primary`; did you mean `name`?"#]],
    );
}

#[test]
fn what_init_writes_is_right() {
    for name in ["music", "007", "null", "a.b+c-d_e"] {
        let name = Name::new(name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), ".ctx/project.yaml", &template::project_file(&name));
        put(dir.path(), template::PROMPT_FILE, &template::prompt(&name));
        let looked = read_project(dir.path(), Trust::Anyone, 1 << 18, Timestamp::from_millis(0));
        let found = looked.found.unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(found.snapshot.spec.project, name);
        assert!(found.snapshot.prompt().contains("the agent of the project"));
    }
}

fn put(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

const WITH_PROMPT: &str = "version: 1\nproject: p\nprimary:\n  prompt: prompts/a.md\n";

/// What is said of a project whose files are these.
fn first_problem(dir: &Path) -> String {
    let looked = read_project(dir, Trust::Anyone, 4096, Timestamp::from_millis(0));
    looked.found.unwrap_err().first().unwrap().to_string()
}

#[test]
fn a_prompt_is_beside_the_file_or_in_the_project_and_nowhere_else() {
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), "secret", "SECRET");
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), ".ctx/project.yaml", WITH_PROMPT);
    assert_eq!(
        first_problem(dir.path()),
        ".ctx/project.yaml:4:11: no prompt prompts/a.md in .ctx/ or in the project's directory"
    );
    let prompt = || {
        let looked = read_project(dir.path(), Trust::Anyone, 4096, Timestamp::from_millis(0));
        looked.found.unwrap().snapshot.prompt().to_owned()
    };
    put(dir.path(), "prompts/a.md", "from the directory");
    assert_eq!(prompt(), "from the directory");
    put(dir.path(), ".ctx/prompts/a.md", "beside the file");
    assert_eq!(prompt(), "beside the file");
    std::fs::remove_file(dir.path().join(".ctx/prompts/a.md")).unwrap();
    symlink("../../prompts/a.md", dir.path().join(".ctx/prompts/a.md")).unwrap();
    assert_eq!(prompt(), "from the directory", "a link inside is followed");
    for target in [outside.path().join("secret"), Path::new("../../../secret").to_owned()] {
        std::fs::remove_file(dir.path().join(".ctx/prompts/a.md")).unwrap();
        symlink(target, dir.path().join(".ctx/prompts/a.md")).unwrap();
        assert_eq!(
            first_problem(dir.path()),
            ".ctx/project.yaml:4:11: .ctx/prompts/a.md is outside of the project's directory; move the file inside"
        );
    }
    put(dir.path(), ".ctx/project.yaml", &WITH_PROMPT.replace("prompts/a.md", "../../../etc/passwd"));
    assert!(first_problem(dir.path()).contains("is outside of the project's directory"));
    put(dir.path(), ".ctx/project.yaml", &WITH_PROMPT.replace("prompts/a.md", "/etc/passwd"));
    assert!(first_problem(dir.path()).contains("must be a path beneath the project's directory"));
}

#[test]
fn files_that_cannot_be_read_as_text_are_problems_with_a_place() {
    let dir = tempfile::tempdir().unwrap();
    assert!(first_problem(dir.path()).contains("no .ctx/project.yaml in"));
    std::fs::create_dir(dir.path().join(".ctx")).unwrap();
    let file = dir.path().join(".ctx/project.yaml");
    std::fs::write(&file, b"version: 1\nproj\xffect").unwrap();
    assert_eq!(
        first_problem(dir.path()),
        ".ctx/project.yaml:2:5: .ctx/project.yaml is not UTF-8 here; rewrite it"
    );
    std::fs::write(&file, "x".repeat(5000)).unwrap();
    assert!(first_problem(dir.path()).contains("more than 4096 bytes"));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(first_problem(dir.path()).contains("is not a regular file"));
    let gone = dir.path().join("gone");
    assert!(first_problem(&gone).contains("cannot be opened"));
    let nobody = read_project(dir.path(), Trust::Owner(4_000_000), 4096, Timestamp::from_millis(0));
    assert!(nobody.found.unwrap_err().first().unwrap().message.contains("does not belong to uid 4000000"));
}

#[test]
fn a_snapshot_keeps_what_the_files_were() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), ".ctx/project.yaml", WITH_PROMPT);
    put(dir.path(), ".ctx/prompts/a.md", "first");
    let now = Timestamp::from_millis(0);
    let first = read_project(dir.path(), Trust::Anyone, 4096, now).found.unwrap();
    assert_eq!(first.file_hash, sha256_hex(WITH_PROMPT.as_bytes()));
    assert_eq!(first.hash, sha256_hex(&first.bytes));
    put(dir.path(), ".ctx/prompts/a.md", "second");
    let second = read_project(dir.path(), Trust::Anyone, 4096, now).found.unwrap();
    assert_eq!(first.file_hash, second.file_hash);
    assert_ne!(first.hash, second.hash, "a prompt that changed makes another snapshot");
    let kept = Snapshot::from_bytes(&first.bytes).unwrap();
    let description = describe_snapshot(&kept).unwrap();
    assert_eq!((description.prompt.as_str(), description.cwd.as_str()), ("first", "/work"));
    assert_eq!(description.mounts.first().unwrap().source, dir.path());
}

#[test]
fn a_look_is_repeated_only_when_something_may_have_changed() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), ".ctx/project.yaml", WITH_PROMPT);
    put(dir.path(), ".ctx/prompts/a.md", "first");
    let later = Timestamp::from_millis(u64::MAX);
    let look = |now| read_project(dir.path(), Trust::Anyone, 4096, now);
    assert!(!looked_like(dir.path(), &look(Timestamp::from_millis(0))), "just written: it may change unseen");
    let settled = look(later);
    assert!(looked_like(dir.path(), &settled));
    put(dir.path(), ".ctx/prompts/a.md", "other");
    assert!(!looked_like(dir.path(), &settled));
    let missing = {
        put(dir.path(), ".ctx/project.yaml", &WITH_PROMPT.replace("a.md", "b.md"));
        look(later)
    };
    assert!(missing.found.is_err() && looked_like(dir.path(), &missing));
    put(dir.path(), "prompts/b.md", "there now");
    assert!(!looked_like(dir.path(), &missing), "a file that was missing came");
}

use proptest::strategy::Strategy as Texts;

/// A valid file with a few characters changed, dropped or put in.
fn mutated() -> impl Texts<Value = String> {
    let change = (any::<prop::sample::Index>(), 0..3u8, "[ -~\\n\\t\u{e9}]{0,3}");
    prop::collection::vec(change, 1..6).prop_map(|changes| {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for (at, kind, with) in changes {
            let at = at.index(text.len());
            if kind > 0 {
                text.remove(at);
            }
            if kind != 1 {
                text.splice(at..at, with.chars());
            }
        }
        text.into_iter().collect()
    })
}

proptest! {
    #[test]
    fn no_text_panics_and_every_problem_has_a_place_in_it(text in "\\PC{0,200}|[a-z: \\[\\]{}\\n&*!|>\"'#,-]{0,80}") {
        holds(&text)?;
    }

    #[test]
    fn no_mutation_of_a_good_file_panics(text in mutated()) {
        holds(&text)?;
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        holds(&String::from_utf8_lossy(&bytes))?;
    }
}

fn holds(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(parsed) => {
            // What was read can be written down and read back.
            let json = serde_json::to_string(&parsed.spec).unwrap();
            prop_assert_eq!(
                serde_json::from_str::<ctx_agent::project::ProjectSpec>(&json).unwrap(),
                parsed.spec
            );
        }
        Err(problems) => {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(problem.line >= 1 && problem.column >= 1, "{}", problem);
                // A lone CR ends a line in YAML, and what breaks off is complained of on the line after.
                let lines = text.matches(['\n', '\r']).count() as u64 + 2;
                prop_assert!(problem.line <= lines, "{}", problem);
            }
        }
    }
    Ok(())
}

#[test]
fn what_could_not_be_looked_at_is_looked_at_again() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("music");
    let late = Timestamp::from_millis(4_000_000_000_000);
    let away = read_project(&dir, Trust::Anyone, 4096, late);
    assert!(away.found.is_err());
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    std::fs::write(dir.join(".ctx/project.yaml"), LEAST).unwrap();
    assert!(!looked_like(&dir, &away), "the directory came back");
    assert!(read_project(&dir, Trust::Anyone, 4096, late).found.is_ok());

    std::fs::write(parent.path().join("outside"), "x").unwrap();
    symlink("../../outside", dir.join(".ctx/p.md")).unwrap();
    std::fs::write(dir.join(".ctx/project.yaml"), "version: 1\nproject: music\nprimary: {prompt: p.md}\n")
        .unwrap();
    let linked = read_project(&dir, Trust::Anyone, 4096, late);
    assert!(linked.found.is_err());
    std::fs::remove_file(dir.join(".ctx/p.md")).unwrap();
    std::fs::write(dir.join(".ctx/p.md"), "a prompt").unwrap();
    assert!(!looked_like(&dir, &linked), "a file took the place of the link");
}

#[test]
fn a_project_file_knows_every_tool_and_no_server_takes_the_name_of_one() {
    let mut tools: Vec<String> = Tools::all().specs().into_iter().map(|spec| spec.name).collect();
    // It is made for each run, of the subagents that there are.
    tools.push("agent.dispatch".to_owned());
    tools.sort();
    let mut known = TOOLS.to_vec();
    known.sort_unstable();
    assert_eq!(known, tools);
    for tool in TOOLS {
        let server = tool.split('.').next().unwrap();
        let problems = parse(&format!("{LEAST}mcp: {{{server}: {{command: [x]}}}}\n")).unwrap_err();
        assert!(format!("{problems:?}").contains("cannot be a server"), "{server}: {problems:?}");
    }
}
