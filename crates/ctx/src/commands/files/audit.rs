//! `ctx audit`: prints events of the audit log.

use std::io::Write;
use std::time::Duration;

use ctx_api::http::{self, List};
use ctx_journal::LogPath;
use ctx_session::{Code, Name, Timestamp};
use ctx_views::audit::{AuditEvent, AuditLine, AuditQuery, AuditReader, EventName, RecordOf};
use serde_json::{Value, json};

use crate::client::{Api, Query};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{index, sessions, words};

/// Where the audit log is beneath the root.
pub const AUDIT: &str = ".state/audit.jsonl";
/// How often a followed log is looked at.
const PAUSE: Duration = Duration::from_millis(250);
/// Lines that are read at once.
const PAGE: usize = 1000;

/// Print who did what, and when
///
/// Prints the audit log, newest line first. It needs no daemon if you are the user who runs the daemon. Other
/// users get, through the daemon, their own actions and those on their own sessions. docs/audit.md lists the
/// events.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx audit
  ctx audit --session coder/default --since 1d
  ctx audit --event run.cancelled --event session.ended --json
  ctx audit -f                    keep printing new events

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// Only events of this session and what it did to its issue: agent/name, an id or the beginning or end of an id
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Only events of this name (repeatable)
    #[arg(long = "event", value_name = "EVENT", value_parser = event_name)]
    events: Vec<EventName>,
    /// Only actions of this user, by uid
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// Only events since this time: a date, or an age such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only events before this time
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// At most N lines; 0 for no limit
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print the newest line last, and keep printing new ones
    #[arg(short, long, conflicts_with = "until")]
    follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

fn event_name(text: &str) -> Result<EventName, String> {
    EventName::AUDITED.iter().copied().find(|name| name.as_str() == text).ok_or_else(|| {
        let names: Vec<&str> = EventName::AUDITED.iter().map(|name| name.as_str()).collect();
        format!("the events are {}", names.join(", "))
    })
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    // Says what is to be done where there is no root at all.
    root.reader()?;
    let source = Source::open(root)?;
    let now = words::now();
    let query = AuditQuery {
        user: args.user,
        session: args.session.as_deref().map(|word| sessions::find_id(root, word)).transpose()?,
        events: args.events.clone(),
        since: args.since.map(|moment| moment.seen_from(now)),
        until: args.until.map(|moment| moment.seen_from(now)),
        before: None,
        limit: if args.limit == 0 { usize::MAX } else { args.limit },
    };
    // The log has every line a number; its end, looked at first, tells where to go on.
    let end =
        source.newest(&AuditQuery { limit: 1, ..AuditQuery::default() })?.first().map(|line| line.number);
    let mut lines = source.newest(&query)?;
    if !args.follow {
        return print(&args, &lines);
    }
    let mut seen = lines.first().map(|line| line.number).max(end);
    loop {
        lines.reverse();
        print(&args, &lines)?;
        output::pause(PAUSE)?;
        lines = source.newest(&AuditQuery { limit: PAGE, ..query.clone() })?;
        lines.retain(|line| seen.is_none_or(|seen| line.number > seen));
        seen = lines.first().map(|line| line.number).or(seen);
    }
}

/// Where the lines come from.
enum Source<'a> {
    File(AuditReader),
    /// The log is someone else's: the daemon reads of it what is the caller's.
    Daemon(Api<'a>),
}

impl Source<'_> {
    fn open(root: &Root) -> Result<Source<'_>, Failure> {
        let path = root.path.join(AUDIT);
        if std::fs::File::open(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
        {
            return Ok(Source::Daemon(index::ask_daemon(root, &path)?));
        }
        let log = LogPath::new(AUDIT).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        Ok(Source::File(AuditReader::new(root.journal()?, log)))
    }

    fn newest(&self, query: &AuditQuery) -> Result<Vec<AuditLine>, Failure> {
        match self {
            Source::File(reader) => {
                let newest = reader.newest(query);
                Ok(newest.map_err(|error| Failure::new(error.code(), error.to_string()))?.0)
            }
            Source::Daemon(api) => newest_by(api, query),
        }
    }
}

fn newest_by(api: &Api<'_>, query: &AuditQuery) -> Result<Vec<AuditLine>, Failure> {
    let names: Vec<&str> = query.events.iter().map(|name| name.as_str()).collect();
    let mut lines: Vec<AuditLine> = Vec::new();
    let mut cursor = query.before.map(|before| before.to_string());
    loop {
        let asked = Query::new("/audit")
            .with_some("session", query.session)
            .with_some("event", (!names.is_empty()).then(|| names.join(",")))
            .with_some("user", query.user)
            .with_some("since", query.since.map(Timestamp::as_millis))
            .with_some("until", query.until.map(Timestamp::as_millis))
            .with("limit", query.limit.saturating_sub(lines.len()).min(PAGE))
            .with_some("cursor", cursor.as_ref());
        let page: List<http::AuditEvent> = api.get(asked.as_str())?;
        for event in page.items {
            lines.push(line_of(event)?);
        }
        cursor = page.next;
        if cursor.is_none() || lines.len() >= query.limit {
            return Ok(lines);
        }
    }
}

fn line_of(told: http::AuditEvent) -> Result<AuditLine, Failure> {
    let other = |what: String| {
        Failure::new(Code::Eio, what)
            .hint("the daemon may have another version; compare `ctx status` with `ctx --version`")
    };
    let record = match (told.session_id, told.session_seq, &told.project_id, told.project_seq) {
        (Some(session), Some(session_seq), _, _) => RecordOf::Session { session, session_seq },
        (_, _, Some(project), Some(project_seq)) => RecordOf::Project {
            project: Name::new(project)
                .map_err(|rule| other(format!("`{project}` is not a project's name: {rule}")))?,
            project_seq,
        },
        _ if told.event == EventName::RootTakenOver.as_str() => {
            RecordOf::Root { layout: told.data.get("layout").and_then(Value::as_u64).unwrap_or_default() }
        }
        _ => return Err(other(format!("line {} of the audit log names no record", told.number))),
    };
    let event = AuditEvent {
        event: event_name(&told.event).map_err(|_| other(format!("unknown event `{}`", told.event)))?,
        user: told.user_id,
        record,
        data: told.data,
    };
    Ok(AuditLine { number: told.number, time: Timestamp::from_millis(told.time), event })
}

fn print(args: &Args, lines: &[AuditLine]) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    let mut out = output::stdout();
    for line in lines {
        if args.json {
            writeln!(out, "{}", as_json(line))?;
        } else {
            writeln!(out, "{}", readable(line, paint))?;
        }
    }
    out.flush()?;
    Ok(())
}

fn as_json(line: &AuditLine) -> Value {
    let mut shown = json!({
        "number": line.number, "time": line.time, "event": line.event.event.as_str(), "user": line.event.user,
        "data": line.event.data,
    });
    // Serialising a name and a number cannot fail.
    let record = serde_json::to_value(&line.event.record).unwrap_or_default();
    if let (Some(shown), Value::Object(record)) = (shown.as_object_mut(), record) {
        shown.extend(record);
    }
    shown
}

fn readable(line: &AuditLine, paint: Paint) -> String {
    let event = &line.event;
    let mut text = format!(
        "{}  {:<26}  uid {:<5}  {}",
        paint.dim(&words::date_time(line.time)),
        paint.bold(event.event.as_str()),
        event.user,
        paint.dim(&match &event.record {
            RecordOf::Session { session, session_seq } => format!("{session}#{session_seq}"),
            RecordOf::Project { project, project_seq } => format!("{project}#{project_seq}"),
            RecordOf::Root { layout } => format!("layout {layout}"),
        }),
    );
    // Who and where stand before it.
    let is_told = |key: &str| match &event.record {
        RecordOf::Session { .. } => matches!(key, "session_id" | "user_id"),
        RecordOf::Project { .. } => matches!(key, "project_id" | "user_id"),
        RecordOf::Root { .. } => matches!(key, "layout" | "user_id"),
    };
    for (key, value) in event.data.as_object().into_iter().flatten() {
        if !is_told(key) && !value.is_null() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!("  {key}={}", words::shorten(&value, 80)));
        }
    }
    output::unturned(&text)
}
