//! The published schema of project files and the parser agree, as a validator that others wrote sees it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ctx_agent::project::{as_json, parse, template};
use ctx_session::Name;
use serde_json::json;

const RIGHT: &[&str] = &[
    "version: 1\nproject: p\nprimary: {}\n",
    "version: 1\nproject: \"007\"\nprimary: {name: a.b+c, model: main, max_steps: 1}\n",
    "version: 1\nproject: p\nprimary:\n  model: openai:gpt-4o\n  prompt: prompts/p.md\n  tools: [fs.read, issue, gh.find]\n  compaction: {upper: 1, lower: 0.1, strategy: drop}\nmcp: {gh: {command: [gh-mcp, --stdio]}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {strategy: delegate, delegate: short}}\nsubagents: {short: {model: debug/echo}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {strategy: delegate, delegate: [sum, '']}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents:\n  t: {model: \"debug:script\", prompt: t.md, terminal: true, cage: {net: none, memory: 512M, walltime: 10m}}\n  c: {acp: [codex-acp], cage: {net: host, memory: 1G, walltime: 500ms}}\n",
    "version: 1\nproject: p\nprimary: {}\npolicy: [\"deny shell.exec git push*\", \"ask  shell.exec\", \"allow fs.*\"]\nlimits: {running_per_project: 10000}\n",
    "version: 1\nproject: p\nprimary: {tools: [shell.exec, shell.output]}\ncage: {net: host, memory: 4G, walltime: 1h, processes: 99, tmp: 2G, git: rw}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {mounts: [\"/a:/b:ro\", \"/c:/d\"], path: [/opt/sdk/bin], env: {A: \"1\", _b: x}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {}\npolicy: []\nmcp: {}\nlimits: {}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {ssh: \"ci@build.test:22\", policy: [allow shell.exec make*]}, b: {ssh: alias}, c: {ssh: \"fe80::1\"}}\n",
    "version: 1\nproject: p\nprimary: {tools: [gh.*]}\nmcp: {gh: {command: [x], env: {A: b, C: {from_env: D}}, cage: {net: host}}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {web: {url: \"https://x.test/mcp\", headers: {X-A: b, Authorization: {from_env: T, prefix: \"Bearer \"}}}}\n",
];

/// Each breaks one rule.
const WRONG: &[&str] = &[
    "[]",
    "text",
    "version: 1\n",
    "version: 1\nproject: p\n",
    "project: p\nprimary: {}\n",
    "version: 2\nproject: p\nprimary: {}\n",
    "version: \"1\"\nproject: p\nprimary: {}\n",
    "version: 1\nproject: 5\nprimary: {}\n",
    "version: 1\nproject: null\nprimary: {}\n",
    "version: 1\nproject: -p\nprimary: {}\n",
    "version: 1\nproject: p.sock\nprimary: {}\n",
    "version: 1\nproject: p\nprimary: {}\nextra: 1\n",
    "version: 1\nproject: p\nprimary: []\n",
    "version: 1\nproject: p\nprimary: {nam: x}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {ssh: \"-x\"}}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {ssh: \"a b\"}}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {ssh: \"-l@x\"}}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {policy: []}}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {ssh: a, docker: b}}\n",
    "version: 1\nproject: p\nprimary: {}\nhosts: {build: {ssh: a, policy: [maybe x]}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {command: [x], url: \"http://x\"}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {command: [x], headers: {}}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {url: \"http://x\", env: {}}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {url: \"http://u:p@x/\"}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {url: x}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {shell: {command: [x]}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a.b: {command: [x]}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {command: [x], env: {A: {from: B}}}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {a: {command: [x], env: {PATH: b}}}\n",
    "version: 1\nproject: p\nprimary: {name: a b}\n",
    "version: 1\nproject: p\nprimary: {model: true}\n",
    "version: 1\nproject: p\nprimary: {model: \"a:b:c\"}\n",
    "version: 1\nproject: p\nprimary: {model: \"\"}\n",
    "version: 1\nproject: p\nprimary: {prompt: /etc/passwd}\n",
    "version: 1\nproject: p\nprimary: {prompt: \"\"}\n",
    "version: 1\nproject: p\nprimary: {tools: fs.read}\n",
    "version: 1\nproject: p\nprimary: {tools: [fs.raed]}\n",
    "version: 1\nproject: p\nprimary: {tools: [nothing]}\n",
    "version: 1\nproject: p\nprimary: {tools: [fs.read, fs.read]}\n",
    "version: 1\nproject: p\nprimary: {tools: [5]}\n",
    "version: 1\nproject: p\nprimary: {max_steps: 0}\n",
    "version: 1\nproject: p\nprimary: {max_steps: 10001}\n",
    "version: 1\nproject: p\nprimary: {max_steps: 1.5}\n",
    "version: 1\nproject: p\nprimary: {max_steps: \"5\"}\n",
    "version: 1\nproject: p\nprimary: {compaction: {upper: 1.1}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {lower: 0}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {lower: -0.5}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {upper: high}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {strategy: shrink}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {strategy: delegate}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {delegate: [x]}}\n",
    "version: 1\nproject: p\nprimary: {compaction: {strategy: delegate, delegate: []}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, acp: [x]}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {acp: [x], prompt: p.md}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {acp: x}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {acp: [\"\"]}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {a b: {model: main}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, terminal: yes}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, cage: {net: all}}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, cage: {memory: 512}}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, cage: {memory: 0M}}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, cage: {walltime: 10 m}}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: {t: {model: main, cage: {cpu: 1}}}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {git: write}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {processes: 0}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {mounts: [\"a:/b\"]}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {path: [bin]}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {env: {PATH: x}}\n",
    "version: 1\nproject: p\nprimary: {}\ncage: {env: {A: 1}}\n",
    "version: 1\nproject: p\nprimary: {}\nsubagents: [t]\n",
    "version: 1\nproject: p\nprimary: {}\npolicy: allow fs.read\n",
    "version: 1\nproject: p\nprimary: {}\npolicy: [permit fs.read]\n",
    "version: 1\nproject: p\nprimary: {}\npolicy: [allow]\n",
    "version: 1\nproject: p\nprimary: {}\npolicy: [\"allow fs/read\"]\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {gh: {}}\n",
    "version: 1\nproject: p\nprimary: {}\nmcp: {gh: {command: gh}}\n",
    "version: 1\nproject: p\nprimary: {}\nlimits: {running_per_project: 0}\n",
    "version: 1\nproject: p\nprimary: {}\nlimits: {running: 1}\n",
];

#[test]
fn the_schema_and_the_parser_agree() {
    let own = template::project_file(&Name::new("music").unwrap());
    let mut lines = String::new();
    let right = RIGHT.iter().map(|text| (*text, true)).chain([(own.as_str(), true)]);
    for (text, valid) in right.chain(WRONG.iter().map(|text| (*text, false))) {
        assert_eq!(parse(text).is_ok(), valid, "{text}: {:?}", parse(text).err());
        let doc = as_json(text).expect("every case is YAML");
        lines.push_str(&format!("{}\n", json!({ "name": text, "doc": doc, "valid": valid })));
    }
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned();
    let mut command = Command::new(repository.join("target/test-venv/bin/python"));
    command.arg(repository.join("tests/python/project_schema.py"));
    command.arg(repository.join("docs/schema/project.schema.json"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python of the test clients: `scripts/setup test` installs it");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
}
