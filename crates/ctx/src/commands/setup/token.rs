//! `ctx token`: tokens for the HTTP API. A secret is printed once, alone, and nowhere else.

use std::io::Write;

use ctx_api::http::{List, NewToken, Token, TokenMade};
use ctx_session::Timestamp;

use crate::client::Api;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};
use crate::words;

/// Create, list and revoke tokens for the HTTP API
///
/// A token stands for you: whoever has it can do over HTTP what you can do here. Only its hash is stored. A token
/// is valid until it expires or is revoked. Sign-ins by `ctx open` are listed as `browser` and expire after a
/// week.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  TOKEN=$(ctx token new --label laptop)
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:7300/api/v1/status
  ctx token new --label ci --expires 30d
  ctx token list
  ctx token revoke 01K9ZZ3F0Q6M8B5V4X2C7D1E0R

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create a token and print it
    New {
        /// Label, shown in the list
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// Expiry: a duration (12h, 30d, 4w) or a date in UTC [default: never]
        #[arg(long, value_name = "WHEN", value_parser = end)]
        expires: Option<Moment>,
        /// Create it for another user; only the daemon's owner may do this
        #[arg(long, value_name = "UID")]
        uid: Option<u32>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without their secrets
    #[command(alias = "ls")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, by the id that `ctx token list` shows
    Revoke {
        /// The token's id
        #[arg(value_name = "ID")]
        id: String,
        /// Print the revoked token as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        What::New { label, expires, uid, json } => {
            let expires_at = expires.map(|end| end.ahead_of(words::now()).as_millis());
            let made: TokenMade = api.post_with("/tokens", &NewToken { label, uid, expires_at })?;
            if json {
                return output::json(&made);
            }
            let mut out = output::stdout();
            writeln!(out, "{}", made.token)?;
            out.flush()?;
        }
        What::List { json } => list(api.get("/tokens")?, json)?,
        What::Revoke { id, json } => {
            // Only an id goes into a path: whatever else was typed is not sent anywhere.
            let id: ctx_session::Ulid = id.parse().map_err(|_| {
                Failure::new(ctx_session::Code::Einval, "this is not the id of a token")
                    .hint("`ctx token list` shows the ids; do not pass the token itself")
            })?;
            let before: Option<List<Token>> = if json { Some(api.get("/tokens")?) } else { None };
            api.delete(&format!("/tokens/{id}"))?;
            let id = id.to_string();
            output::json_lines(before.iter().flat_map(|list| &list.items).filter(|token| token.id == id))?;
        }
    }
    Ok(())
}

fn list(tokens: List<Token>, json: bool) -> Result<(), Failure> {
    if json {
        return tokens.items.iter().try_for_each(output::json);
    }
    let when = |millis: u64| words::date_time(Timestamp::from_millis(millis));
    let row = |token: Token| {
        let expires = token.expires_at.map_or_else(|| "never".to_owned(), when);
        let label = output::one_line(&token.label.unwrap_or_default());
        [token.id, token.uid.to_string(), when(token.created_at), expires, label].map(Cell::new).into()
    };
    let rows: Vec<Vec<Cell>> = tokens.items.into_iter().map(row).collect();
    let mut out = output::stdout();
    let head = ["ID", "UID", "CREATED", "EXPIRES", "LABEL"];
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// When a token ends, as it is typed.
fn end(text: &str) -> Result<Moment, String> {
    let wrong = |_| "write a duration (12h, 30d, 4w) or a date (2026-11-15, 2026-11-15 06:00)".to_owned();
    text.parse().map_err(wrong)
}
