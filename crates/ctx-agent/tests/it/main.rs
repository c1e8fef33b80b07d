//! Tests of ctx-agent from outside: control files, views, models, tools and whole runs on real directories.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod cages;
mod changes;
mod control;
mod cwd;
mod fresh;
mod models;
mod preparing;
mod project;
mod properties;
mod refusals;
mod remote;
mod runs;
mod script;
mod secrets;
mod steering;
mod support;
mod tools;
mod ways_out;
mod wire_formats;
