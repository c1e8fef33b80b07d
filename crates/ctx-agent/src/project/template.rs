//! The files that `ctx project init` writes: a valid project file with comments about the other keys, and a prompt.

use ctx_session::Name;

/// The primary's prompt, beside the project file.
pub const PROMPT_FILE: &str = ".ctx/prompts/primary.md";

/// The text of the project file.
pub fn project_file(project: &Name) -> String {
    // A name of digits alone would be read as a number.
    format!(
        "\
# A ctx project. `ctx project check` validates this file, `ctx project add` registers it.
# A session keeps the file as it was at its start; `ctx restart SESSION` uses the new one.
version: 1
project: \"{project}\"

primary:
  # name: {project}                  # the agent's name; default: the project's name
  model: main                        # provider:model, or an alias under model/
  prompt: prompts/primary.md         # relative to .ctx/ or to the project's directory
  tools: [fs.read, fs.list, todo]    # leave it out to allow all tools
  # compaction: {{upper: 0.85, lower: 0.60, strategy: summarize}}   # or drop, delegate, checkpoint
  # max_steps: 64                    # model calls per run

# Agents that a run may start for a part of its work.
# subagents:
#   tester: {{model: \"debug:script\", terminal: true, cage: {{net: none, memory: 512M, walltime: 10m}}}}
#   codex: {{acp: [codex-acp], cage: {{net: host}}}}

# allow|ask|deny TOOL [PATTERN]; the first matching rule applies.
policy:
  - allow fs.read
  - allow fs.list

# MCP servers; their tools are called SERVER.TOOL.
# mcp:
#   github: {{command: [github-mcp]}}

# limits: {{running_per_project: 4}}   # sessions of this project that run at once
"
    )
}

/// The text of the prompt.
pub fn prompt(project: &Name) -> String {
    format!(
        "\
You are the agent of the project {project} and work on its files together with the operator.
Look first, and read a file before you change it. After a change, run the tests and read what they say.
When something is unclear or cannot be undone, ask with checkpoint. At the end say plainly what you did and how you checked it.
"
    )
}
