//! `ctx model`: sets up providers of models, lists models, tries one.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ctx_agent::model::adopt;
use ctx_agent::model::provider::setup::Kind;
use ctx_agent::model::registry::ModelId;
use ctx_api::http::{List, ModelNamed, Tried, TryModel};
use ctx_session::{Code, Name};
use serde_json::json;

use crate::client::{self, Api, hand_over};
use crate::config::{self, Environment, FileArg};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};

/// The alias that a model is looked for behind when none is named.
const MAIN: &str = "main";

/// Set up, list and test models
///
/// The keys in OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY, and a server in OLLAMA_HOST, are found in your shell
/// without any set-up. Everything else is a section `[models.NAME]` of the config file, which `add` writes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx model ls
  ctx model test anthropic:claude-sonnet-4-5
  ctx model add                               asks for everything
  ctx model add local --kind openai-chat --base-url http://127.0.0.1:8080/v1 --default qwen3
  ctx model add openai --key-command 'pass show openai'

exit codes: 0 success, 1 failed, 2 bad input, 13 key refused, 69 no daemon or provider, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Add a provider to the config file and test it
    Add(Add),
    /// Remove a provider from the config file; a key that `add` stored is removed with it
    Rm {
        /// What the provider is called
        #[arg(value_name = "PROVIDER")]
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List models with their window, their price, and where the key comes from
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a model the default: point `model/main` at it
    Use {
        /// provider:model
        #[arg(value_name = "MODEL")]
        model: String,
        /// Print the model as JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask a model for a short answer
    Test {
        /// provider:model, or an alias
        #[arg(value_name = "MODEL", default_value = MAIN)]
        model: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// What the provider is called; the first half of its models' names
    #[arg(value_name = "PROVIDER")]
    name: Option<String>,
    /// Wire format: openai, openai-chat, anthropic, gemini or ollama [default: that of the name]
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Address of the API
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Environment variable that has the key
    #[arg(long, value_name = "NAME", conflicts_with_all = ["key_file", "key_command"])]
    key_env: Option<String>,
    /// File with the key, of mode 0600
    #[arg(long, value_name = "FILE", conflicts_with = "key_command")]
    key_file: Option<PathBuf>,
    /// Command that prints the key
    #[arg(long, value_name = "COMMAND")]
    key_command: Option<String>,
    /// The model that `main` means when this is the first provider
    #[arg(long, value_name = "MODEL")]
    default: Option<String>,
    /// Write the config file without testing
    #[arg(long)]
    no_test: bool,
    /// Print the test's answer as JSON; without a test, what was written
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: impl FnOnce() -> Result<Root, Failure>) -> Result<(), Failure> {
    match args.what {
        What::Add(add) => add_provider(add, root),
        What::Rm { name, json } => remove_provider(&name, json),
        What::Ls { json } => list(&root()?, json),
        What::Use { model, json } => use_model(&root()?, &model, json),
        What::Test { model, json } => test(&root()?, model, json),
    }
}

fn list(root: &Root, json: bool) -> Result<(), Failure> {
    let handed = hand_over(root)?;
    let models: List<ModelNamed> = Api::new(root).get("/models")?;
    if json {
        return output::json_lines(&models.items);
    }
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let price = |price: Option<f64>| price.map_or_else(|| "-".to_owned(), |price| format!("{price:.2}"));
    let row = |model: ModelNamed| {
        let name = if model.is_main { format!("{} (main)", model.name) } else { model.name };
        let key = model.key.unwrap_or_else(|| "-".to_owned());
        let cells = [
            name,
            number(model.window),
            number(model.output),
            price(model.input_usd),
            price(model.output_usd),
            key,
        ];
        cells.map(|text| Cell::new(output::one_line(&text))).into()
    };
    let rows: Vec<Vec<Cell>> = models.items.into_iter().map(row).collect();
    let head = ["MODEL", "WINDOW", "OUTPUT", "$/M IN", "$/M OUT", "KEY"];
    let mut out = output::stdout();
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    if let Some(problem) = handed.problem {
        output::say(output::plain(&problem));
    }
    Ok(())
}

fn use_model(root: &Root, model: &str, json: bool) -> Result<(), Failure> {
    hand_over(root)?;
    let unknown = || {
        let known =
            Api::new(root).get::<List<ModelNamed>>("/models").map_or_else(|_| Vec::new(), |list| list.items);
        Failure::new(Code::Enoent, format!("no model {}", output::one_line(model)))
            .did_you_mean(model, known.iter().map(|known| &known.name))
            .hint("`ctx model ls` lists the models; `ctx model test PROVIDER:MODEL` brings in another")
    };
    let (provider, id) = model.split_once([':', '/']).ok_or_else(unknown)?;
    let name = |text: &str| Name::new(text).map_err(|_| unknown());
    let id = ModelId { provider: name(provider)?, model: name(&id.replace(['/', ':'], "-"))? };
    if !root.path.join(format!("model/{id}.d")).is_dir() {
        return Err(unknown());
    }
    adopt::link_main(&root.path, &id).map_err(|error| Failure::io("model/main", error))?;
    if json {
        let models: List<ModelNamed> = Api::new(root).get("/models")?;
        return output::json_lines(models.items.iter().filter(|model| model.is_main));
    }
    output::say(format_args!("main is {}:{} now", id.provider, id.model));
    Ok(())
}

fn test(root: &Root, model: String, json: bool) -> Result<(), Failure> {
    let handed = hand_over(root)?;
    if model == MAIN
        && let Some(failure) = client::no_main(&handed)
    {
        return Err(failure);
    }
    let tried: Tried = Api::new(root).post_with("/models/test", &TryModel { model })?;
    if json {
        return output::json(&tried);
    }
    let mut out = output::stdout();
    writeln!(out, "{} answered in {} ms: {}", tried.model, tried.took_ms, output::one_line(&tried.text))?;
    out.flush()?;
    Ok(())
}

fn add_provider(mut add: Add, root: impl FnOnce() -> Result<Root, Failure>) -> Result<(), Failure> {
    let asks = std::io::stdin().is_terminal();
    if add.name.is_none() && asks {
        add.name = Some(ask("provider (openai, anthropic, gemini, ollama, or a name of your own): ")?);
    }
    let name = add.name.take().filter(|name| !name.is_empty()).ok_or_else(|| {
        Failure::new(Code::Einval, "which provider? give its name, such as `ctx model add openai`")
    })?;
    if let Err(rule) = Name::new(&name) {
        return Err(Failure::new(
            Code::Einval,
            format!("`{}` is not a provider's name: {rule}", output::plain(&name)),
        ));
    }
    if name == "debug" {
        return Err(Failure::new(
            Code::Einval,
            "`debug` is the provider of the built-in models; choose another name",
        ));
    }
    let is_address = |url: &String| url.starts_with("http://") || url.starts_with("https://");
    if let Some(url) = add.base_url.as_ref().filter(|url| !is_address(url)) {
        let message = format!("`{}` is no address; write it as http://HOST:PORT/v1", output::plain(url));
        return Err(Failure::new(Code::Einval, message));
    }
    let kind_name = add.kind.clone().unwrap_or_else(|| name.clone());
    let Some(kind) = Kind::from_name(&kind_name) else {
        let kinds = Kind::ALL.map(Kind::as_str).join(", ");
        return Err(Failure::new(
            Code::Einval,
            format!("`{}` is not a kind; those are {kinds}", output::plain(&kind_name)),
        )
        .hint("a server that speaks OpenAI's API: `--kind openai-chat --base-url http://HOST:PORT/v1`"));
    };
    let path = own_config()?;
    let loaded = config::load(&FileArg::of_environment(), &Environment::of_process())?;
    if loaded.config.models.contains_key(&name) {
        return Err(Failure::new(Code::Eexist, format!("[models.{name}] is in {} already", path.display()))
            .hint(format!("edit it there, or remove it with `ctx model rm {name}`")));
    }
    let has_key = add.key_env.is_some() || add.key_file.is_some() || add.key_command.is_some();
    if !has_key && kind != Kind::Ollama && asks {
        let key = ask_hidden("key (not shown; empty: the server needs none): ")?;
        if !key.is_empty() {
            add.key_file = Some(keep_key(&path, &name, &key)?);
        }
    }
    if add.default.is_none() && asks {
        add.default = Some(ask("default model (empty: ctx chooses): ")?).filter(|text| !text.is_empty());
    }
    write_section(&path, &section(&name, &add))?;
    output::say(format_args!("wrote [models.{name}] to {}", path.display()));
    let written = || if add.json { output::json(&json!({ "provider": name, "file": path })) } else { Ok(()) };
    if add.no_test {
        return written();
    }
    let root = root()?;
    let handed = hand_over(&root)?;
    let shown = handed.providers.into_iter().find(|provider| provider.name == name);
    match shown.and_then(|provider| provider.default) {
        Some(default) => test(&root, format!("{name}:{default}"), add.json),
        None => {
            output::say(format_args!("no model is named yet; try one with `ctx model test {name}:MODEL`"));
            written()
        }
    }
}

fn remove_provider(name: &str, json: bool) -> Result<(), Failure> {
    let path = own_config()?;
    let failed = |error| Failure::io(path.display(), error);
    let text = std::fs::read_to_string(&path).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(String::new()),
        _ => Err(failed(error)),
    })?;
    let Some(rest) = without_section(&text, name) else {
        let message = format!("there is no [models.{}] in {}", output::one_line(name), path.display());
        return Err(Failure::new(Code::Enoent, message).hint("`ctx model ls` shows where keys come from"));
    };
    replace(&path, &rest)?;
    if let Some(dir) = path.parent() {
        // One that is elsewhere is the user's own.
        let _ = std::fs::remove_file(dir.join("keys").join(name));
    }
    if json {
        return output::json(&json!({ "provider": name, "file": path }));
    }
    output::say(format_args!("removed [models.{name}] from {}", path.display()));
    Ok(())
}

/// The text without a provider's section, up to the next one. None: there is no such section.
fn without_section(text: &str, name: &str) -> Option<String> {
    let begins = |line: &&str| line.trim() == format!("[models.{name}]");
    text.lines().find(begins)?;
    let mut inside = false;
    let rest = text.lines().filter(|line| {
        inside = begins(line) || (inside && !line.trim_start().starts_with('['));
        !inside
    });
    Some(rest.map(|line| format!("{line}\n")).collect())
}

/// The section as it is written.
fn section(name: &str, add: &Add) -> String {
    let mut text = format!("\n[models.{name}]\n");
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("{key} = {}\n", serde_json::Value::from(value)));
        }
    };
    line("kind", add.kind.clone());
    line("base_url", add.base_url.clone());
    line("key_env", add.key_env.clone());
    line("key_file", add.key_file.as_ref().map(|path| path.display().to_string()));
    line("key_command", add.key_command.clone());
    line("default", add.default.clone());
    text
}

pub(super) fn own_config() -> Result<PathBuf, Failure> {
    let file =
        FileArg { file: std::env::var_os("CTX_CONFIG").filter(|path| !path.is_empty()).map(Into::into) };
    let places = config::places(&file, &Environment::of_process());
    places.into_iter().next().ok_or_else(|| Failure::new(Code::Enoent, "there is no place for a config file"))
}

/// Adds a section at the end of the file, which is replaced as a whole.
pub(super) fn write_section(path: &Path, section: &str) -> Result<(), Failure> {
    let failed = |error| Failure::io(path.display(), error);
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let gap = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    replace(path, &format!("{old}{gap}{section}"))
}

fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::io(path.display(), error);
    let aside = path.with_extension("toml.new");
    std::fs::write(&aside, text).map_err(failed)?;
    std::fs::rename(&aside, path).map_err(failed)
}

/// Stores a key where its owner alone reads it.
fn keep_key(config: &Path, name: &str, key: &str) -> Result<PathBuf, Failure> {
    let dir = config.parent().unwrap_or(Path::new(".")).join("keys");
    let failed = |error| Failure::io(dir.join(name).display(), error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
    let path = dir.join(name);
    let _ = std::fs::remove_file(&path);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(format!("{key}\n").as_bytes()).map_err(failed)?;
    Ok(path)
}

fn ask(question: &str) -> Result<String, Failure> {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question}");
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|error| Failure::io("stdin", error))?;
    Ok(answer.trim().to_owned())
}

/// The same, without showing what is typed.
fn ask_hidden(question: &str) -> Result<String, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).map_err(|error| Failure::io("stdin", error.into()))?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &quiet).map_err(|error| Failure::io("stdin", error.into()))?;
    let answer = ask(question);
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &before);
    let _ = writeln!(std::io::stderr());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_removed_and_the_rest_stays_as_it_is() {
        let text = "autostart = false\n\n[models.a]\nkind = \"openai\"\n\n# b\n[models.b]\nkind = \"gemini\"\n[limits]\nx = 1\n";
        let rest = without_section(text, "b").unwrap();
        assert_eq!(rest, "autostart = false\n\n[models.a]\nkind = \"openai\"\n\n# b\n[limits]\nx = 1\n");
        assert_eq!(without_section(text, "limits"), None);
    }
}
