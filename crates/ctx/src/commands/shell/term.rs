//! `ctx term`: programs in terminals that outlive the window, the connection and the daemon.

pub mod ls;
mod past;

use std::io::{IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ctx_api::http::{List, NewSessionTerminal, NewTerminal, Terminal, TerminalInput, TerminalScreen};
use ctx_session::Code;
use ctx_terminal::{INSIDE, Size, connect};

use crate::client::Api;
use crate::failure::Failure;
use crate::ids;
use crate::output;
use crate::root::Root;
use crate::sessions;
use crate::term::{As, Left, attach, size};

/// Run programs in terminals that keep running when you leave
///
/// A terminal goes on when you close the window, lose the connection or restart the daemon. Any program can be
/// hosted: an editor, a build, another agent. While attached, Ctrl-\ is the prefix: `d` detaches, Ctrl-\ types
/// it, `?` shows the keys. Everything that is shown is kept in a transcript.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx term run -- claude              host a program and attach; Ctrl-\\ d detaches
  ctx term run --name build --detach -- make -j8
  ctx term ls                         what runs, and what waits for you
  ctx term attach build               come back, from any window
  ctx term send build --key C-c       type into it from a script
  ctx term screen build               read its screen from a script
  ctx term export build --to asciicast -o build.cast

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error;
            an attached `run` exits with the program's own code")]
pub struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Run a program in a terminal of its own
    ///
    /// It has this directory and this environment, and the size of this terminal. With --detach it starts in the
    /// background, and its id is printed.
    Run(RunArgs),
    /// List terminals
    Ls(ls::Args),
    /// Attach to a terminal
    ///
    /// The client that attached or typed last has the keyboard, and the size follows it; others see what it does.
    Attach {
        /// Its name, its id, or a unique beginning or end of the id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Watch a terminal without typing
    Watch {
        /// Its name, its id, or a unique beginning or end of the id
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Type into a terminal
    Send {
        /// Its name, its id, or a unique beginning or end of the id
        #[arg(value_name = "ID")]
        id: String,
        /// Text, typed as it is
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
        /// Then press Enter
        #[arg(long)]
        enter: bool,
        /// Then press a key: Enter, Tab, Escape, Up, PageUp, F1, C-c (Ctrl), M-x (Alt), S-Tab (Shift), or a character; may be repeated
        #[arg(long = "key", value_name = "KEY")]
        keys: Vec<String>,
        /// Print the terminal as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a terminal's screen as text; its last one if it has ended
    Screen {
        /// Its name, its id, or a unique beginning or end of the id
        #[arg(value_name = "ID")]
        id: String,
        /// Print JSON, with the cursor and the size
        #[arg(long)]
        json: bool,
    },
    /// Show what a terminal has shown, in its own time
    Replay(past::ReplayArgs),
    /// Write a terminal's transcript
    Export(past::ExportArgs),
    /// End a terminal's program
    ///
    /// It gets a hang-up, as if its window were closed, and is killed if it does not end. The transcript stays.
    Close {
        /// Its name, its id, or a unique beginning or end of the id
        #[arg(value_name = "ID")]
        id: String,
        /// Print the closed terminal as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// A name to find it by
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// In this session: in its agent's cage, closed when the session ends
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// With --session: in no cage, as you, in the session's directory
    #[arg(long, requires = "session")]
    no_cage: bool,
    /// Do not attach; print the id
    #[arg(long)]
    detach: bool,
    /// With --detach: print the terminal as JSON
    #[arg(long, requires = "detach")]
    json: bool,
    /// Columns, if not those of this terminal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    cols: Option<u16>,
    /// Rows, if not those of this terminal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rows: Option<u16>,
    /// The program and its arguments; your shell if there are none
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.command {
        Sub::Run(args) => start(root, &api, args),
        Sub::Ls(args) => ls::run(root, &api, &args),
        Sub::Attach { id } => join(&api, &id, As::Writer),
        Sub::Watch { id } => join(&api, &id, As::Watcher),
        Sub::Send { id, text, enter, keys, json } => {
            let enter = enter.then(|| "Enter".to_owned());
            let input = TerminalInput { text, keys: enter.into_iter().chain(keys).collect() };
            let terminal = find(&api, &id)?;
            api.post_only(&format!("/terminals/{}/input", terminal.id), &input)?;
            if json { output::json(&terminal) } else { Ok(()) }
        }
        Sub::Screen { id, json } => {
            let screen: TerminalScreen = api.get(&format!("/terminals/{}/screen", find(&api, &id)?.id))?;
            if json {
                return output::json(&screen);
            }
            Ok(writeln!(std::io::stdout(), "{}", screen.text)?)
        }
        Sub::Replay(args) => past::replay(&find(&api, &args.id)?, &args),
        Sub::Export(args) => past::export(&find(&api, &args.id)?, &args),
        Sub::Close { id, json } => {
            let id = find(&api, &id)?.id.to_string();
            api.delete(&format!("/terminals/{id}"))?;
            if json { output::json(&find(&api, &id)?) } else { Ok(()) }
        }
    }
}

/// A terminal by its name or its id, or else by a part of the id.
fn find(api: &Api<'_>, id: &str) -> Result<Terminal, Failure> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !id.is_empty() && id.chars().all(is_word) {
        match api.get(&format!("/terminals/{id}")) {
            Err(Failure::Said { code: Code::Enoent, .. }) => {}
            found => return found,
        }
    }
    let listed: List<Terminal> = api.get("/terminals?all=true")?;
    let whose = ("terminal", "`ctx term ls --all` lists them");
    ids::one(listed.items, |terminal| terminal.id.to_string(), id, whose)
}

/// Whoever types needs a terminal to type at.
fn may_attach(hint: &str) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(Code::Einval, "there is no terminal here to attach to").hint(hint))
}

fn start(root: &Root, api: &Api<'_>, args: RunArgs) -> Result<(), Failure> {
    if !args.detach {
        may_attach("--detach starts the program in the background; `ctx term screen` and `send` use it")?;
    }
    let shell = || match &args.session {
        // Not every shell is in every cage.
        Some(_) => "/bin/sh".to_owned(),
        None => std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned()),
    };
    let command = if args.command.is_empty() { vec![shell()] } else { args.command };
    let here = size().unwrap_or(Size { cols: 80, rows: 24 });
    let (cols, rows) = (args.cols.unwrap_or(here.cols), args.rows.unwrap_or(here.rows));
    let opened: Terminal = match &args.session {
        Some(session) => {
            let (cols, rows, cage) = (Some(cols), Some(rows), args.no_cage.then_some(false));
            let new = NewSessionTerminal { command, name: args.name, cols, rows, cage };
            api.post_with(&format!("/sessions/{}/terminals", sessions::find_id(root, session)?), &new)?
        }
        None => start_own(api, command, args.name, args.detach, (cols, rows))?,
    };
    if args.json {
        return output::json(&opened);
    }
    if args.detach {
        return Ok(writeln!(std::io::stdout(), "{}", opened.id)?);
    }
    match reach(&opened) {
        Some(stream) => carry(&opened, stream, As::Writer),
        // A program that is done at once has ended before anyone can attach.
        None => past::show_ended(&find(api, &opened.id.to_string())?),
    }
}

/// A terminal in this directory and with this environment.
fn start_own(
    api: &Api<'_>,
    command: Vec<String>,
    name: Option<String>,
    detach: bool,
    (cols, rows): (u16, u16),
) -> Result<Terminal, Failure> {
    let cwd = std::env::current_dir().map_err(|error| Failure::io("this directory", error))?;
    // What is no text cannot be passed on as JSON; hardly anything depends on such a variable.
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut env: std::collections::BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
    if detach {
        // Nobody sees it in this terminal.
        env.remove(INSIDE);
        env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
    }
    let new = NewTerminal {
        command,
        name,
        cwd: Some(utf8(cwd)?),
        env: Some(env),
        cols: Some(cols),
        rows: Some(rows),
    };
    api.post_with("/terminals", &new)
}

fn utf8(path: PathBuf) -> Result<String, Failure> {
    let path = path.into_os_string().into_string();
    path.map_err(|path| Failure::new(Code::Einval, format!("the path {path:?} is not text")))
}

/// A connection to a terminal's holder; None: it has ended.
fn reach(terminal: &Terminal) -> Option<UnixStream> {
    connect(Path::new(&terminal.socket)).ok().filter(|_| terminal.state != "closed")
}

fn join(api: &Api<'_>, id: &str, who: As) -> Result<(), Failure> {
    let terminal = find(api, id)?;
    match reach(&terminal) {
        Some(stream) => {
            if who == As::Writer {
                may_attach("`ctx term screen` and `send` use it from scripts")?;
            }
            carry(&terminal, stream, who)
        }
        None => {
            let now = find(api, &terminal.id.to_string())?;
            ended(&name(&now), now.exit_code, now.reason.as_deref())
        }
    }
}

fn name(terminal: &Terminal) -> String {
    terminal.name.clone().unwrap_or_else(|| terminal.id.to_string())
}

/// Attaches, and says how it ended.
fn carry(terminal: &Terminal, stream: UnixStream, who: As) -> Result<(), Failure> {
    let name = name(terminal);
    // What is shown in a terminal is shown by all those that it is in.
    let id = terminal.id.to_string();
    if std::env::var(INSIDE).is_ok_and(|inside| inside.split(':').any(|outer| outer == id)) {
        let message = format!(
            "the terminal `{name}` shows this one: what it shows would be shown in it again, for ever"
        );
        return Err(Failure::new(Code::Einval, message));
    }
    let left = attach(stream, who).map_err(|error| Failure::io(&name, error))?;
    let mut stdout = std::io::stdout();
    match left {
        Left::Ended(end) => {
            if end.screen.cursor.col > 0 {
                let _ = writeln!(stdout);
            }
            match (who, end.exit_code) {
                (As::Writer, Some(code)) if code != 0 => {
                    Err(Failure::Told { exit: u8::try_from(code & 0xff).unwrap_or(1) })
                }
                _ => Ok(()),
            }
        }
        Left::Detached => {
            let _ = write!(stdout, "\x1b[999;1H\r\n");
            output::say(format_args!("detached; ctx term attach {name}"));
            Ok(())
        }
        Left::Lost => ended(&name, None, Some("holder_lost")),
        Left::Signalled => Err(Failure::Told { exit: 1 }),
    }
}

fn ended(name: &str, exit_code: Option<i32>, reason: Option<&str>) -> Result<(), Failure> {
    let how = match (exit_code, reason) {
        (_, Some("holder_lost")) => "its holder was killed".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, _) => "its end is not known".to_owned(),
    };
    Err(Failure::new(Code::Eshutdown, format!("the terminal `{name}` has ended: {how}"))
        .hint(format!("`ctx term screen {name}` shows its last screen, `ctx term replay {name}` all of it")))
}
