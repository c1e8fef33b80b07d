//! `ctx export`: writes a conversation as JSON lines or Markdown.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use crate::failure::Failure;
use crate::render::export::{jsonl, markdown};
use crate::render::{Transcript, Wanted};
use crate::root::Root;
use crate::{output, sessions};

/// Export a conversation as JSON lines or Markdown
///
/// JSON lines carry every field of each message; Markdown is for reading. It needs no daemon. A file or a pipe
/// gets the text unchanged; on a terminal, control characters are replaced. docs/export.md describes the JSON
/// format, which is stable between versions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx export coder --to markdown -o talk.md
  ctx export coder/fix-tests --to jsonl | jq -r 'select(.role == \"user\")'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Output format
    #[arg(long, value_name = "FORM")]
    to: Form,
    /// Also export messages removed from context; JSON lines always contain them, marked
    #[arg(long)]
    all: bool,
    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Jsonl,
    Markdown,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = sessions::find(&reader, &args.session)?;
    let transcript = Transcript::open(&reader, &session)?;
    let wanted = if args.all { Wanted::All } else { Wanted::Counting };
    match &args.output {
        None if std::io::stdout().is_terminal() => {
            write(&transcript, args.to, wanted, &mut PlainLines { out: output::stdout(), line: Vec::new() })
        }
        None => write(&transcript, args.to, wanted, &mut output::stdout()),
        Some(path) => {
            let file = File::create(path).map_err(|error| Failure::io(path.display(), error))?;
            write(&transcript, args.to, wanted, &mut BufWriter::new(file))?;
            output::say(format_args!("wrote {}", path.display()));
            Ok(())
        }
    }
}

/// Takes out of each line what would steer a terminal.
struct PlainLines<W: Write> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Write for PlainLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.out.write_all(output::plain(&String::from_utf8_lossy(&line)).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.out.write_all(output::plain(&String::from_utf8_lossy(&line)).as_bytes())?;
        self.out.flush()
    }
}

fn write(
    transcript: &Transcript<'_>,
    form: Form,
    wanted: Wanted,
    out: &mut impl Write,
) -> Result<(), Failure> {
    match form {
        Form::Jsonl => jsonl(transcript, out)?,
        Form::Markdown => markdown(transcript, wanted, out)?,
    }
    out.flush()?;
    Ok(())
}
