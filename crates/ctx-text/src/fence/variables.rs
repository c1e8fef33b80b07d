//! Variables by which a program runs code that its command does not name: a library that is loaded into it, a file that
//! it reads first, a program that it starts on the way. A list of programs says nothing while one of them is set.
//!
//! Variables that are set every day to harmless programs (`PAGER=cat`, `EDITOR=true`) are not here.

/// Names; one that ends in `*` stands for all that begin so.
const VARIABLES: &[&str] = &[
    // The loader and the C library.
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    // Shells.
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    // Interpreters.
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PERL5OPT",
    "PERL5DB",
    "RUBYOPT",
    "NODE_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    // Programs that other programs start.
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_PROXY_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "GIT_EXEC_PATH",
    "GIT_ASKPASS",
    "GIT_CONFIG*",
    "SSH_ASKPASS",
    "LESSOPEN",
    "LESSCLOSE",
    "RUSTC_WRAPPER",
];

/// Whether a variable of this name can bring code into programs.
pub(super) fn brings_code(name: &str) -> bool {
    VARIABLES.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *entry,
    })
}
