//! `ctx config`: prints the settings with their origin, and writes a file to start with.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use ctx_session::Code;
use serde_json::json;

use crate::config::{self, Environment, FileArg};
use crate::failure::Failure;
use crate::output;

/// Show or create the configuration
///
/// One file is read: the one named with --config, else $XDG_CONFIG_HOME/ctx/config.toml, else
/// /etc/ctx/config.toml. Environment variables override it: every key has one, such as
/// CTX_LIMITS_RUNNING_PER_PROJECT. Without a subcommand, `show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx config                      every key, its value and its origin
  ctx config show --json | jq '.settings[] | select(.origin != \"default\")'
  ctx config init                 write a file with every key, commented out
  ctx config path                 print the path of the file in use

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print every key with its value and origin
    Show,
    /// Write a config file with every key, commented out
    Init {
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
        /// File to write [default: the file that is read]
        #[arg(value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Print the path of the config file, even if it does not exist yet
    Path,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let environment = Environment::of_process();
    match args.what.unwrap_or(What::Show) {
        What::Show => show(&args.file, &environment, args.json),
        What::Init { force, to } => {
            let to = match to {
                Some(to) => to,
                None => first_place(&args.file, &environment)?,
            };
            init(&to, force, args.json)
        }
        What::Path => path(&args.file, &environment, args.json),
    }
}

fn show(file: &FileArg, environment: &Environment, json: bool) -> Result<(), Failure> {
    let loaded = config::load(file, environment)?;
    let mut out = output::stdout();
    if json {
        let settings: Vec<_> = loaded
            .settings
            .iter()
            .map(|setting| {
                json!({
                    "key": setting.key.path(), "value": setting.value,
                    "origin": setting.origin.to_string(), "variable": setting.key.variable(),
                })
            })
            .collect();
        writeln!(out, "{}", json!({ "file": loaded.file, "settings": settings }))?;
    } else {
        let paint = output::Paint::for_stdout();
        let wide = |text: &dyn Fn(&config::Setting) -> String| {
            loaded.settings.iter().map(|setting| text(setting).len()).max().unwrap_or(0)
        };
        let value = |setting: &config::Setting| match &setting.value {
            serde_json::Value::Null => "-".to_owned(),
            value => value.to_string(),
        };
        let (keys, values) = (wide(&|setting| setting.key.path()), wide(&value));
        for setting in &loaded.settings {
            let origin = setting.origin.to_string();
            let origin = if origin == "default" { paint.dim(&origin) } else { paint.green(&origin) };
            writeln!(out, "{:keys$}  {:values$}  {origin}", setting.key.path(), value(setting))?;
        }
    }
    out.flush()?;
    Ok(())
}

fn first_place(file: &FileArg, environment: &Environment) -> Result<PathBuf, Failure> {
    config::places(file, environment).into_iter().next().ok_or_else(|| {
        Failure::new(Code::Einval, "cannot tell where the config file is: set HOME or pass --config")
    })
}

fn init(path: &Path, force: bool, as_json: bool) -> Result<(), Failure> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|error| Failure::io(dir.display(), error))?;
    }
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let written = options.open(path).and_then(|mut file| file.write_all(config::template().as_bytes()));
    match written {
        Ok(()) if as_json => output::json(&json!({ "file": path })),
        Ok(()) => {
            output::say(format_args!("wrote {}", path.display()));
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Failure::new(Code::Eexist, format!("{} already exists", path.display()))
                .hint("--force overwrites it"))
        }
        Err(error) => Err(Failure::io(path.display(), error)),
    }
}

fn path(file: &FileArg, environment: &Environment, as_json: bool) -> Result<(), Failure> {
    let places = config::places(file, environment);
    let found = places.iter().find(|path| path.exists());
    let shown = match found {
        Some(path) => path.clone(),
        None => first_place(file, environment)?,
    };
    if as_json {
        return output::json(&json!({ "file": shown, "exists": found.is_some() }));
    }
    if found.is_none() {
        output::say("does not exist yet; `ctx config init` writes it");
    }
    writeln!(std::io::stdout(), "{}", shown.display())?;
    Ok(())
}
