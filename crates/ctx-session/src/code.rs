//! The one error table: every code with its errno name, HTTP status and exit code.
//!
//! Clients act on codes, people read messages. Doors translate a [`Code`]; none invents its own.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A stable error code, used alike at every door and in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Code {
    Einval,
    Ekeyrejected,
    Eacces,
    Enoent,
    Ebusy,
    Eexist,
    Eshutdown,
    Emsgsize,
    Ebadmsg,
    Eagain,
    Eio,
    Ehostdown,
    Etimedout,
    Enospc,
    // Only as the error of a failed run:
    Eintr,
    Eoverflow,
    Epipe,
    Enodata,
    Enomem,
    Enoexec,
    Edquot,
    Eproto,
    Eperm,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct CodeRow {
    pub code: Code,
    pub name: &'static str,
    pub http: u16,
    pub exit: u8,
    pub meaning: &'static str,
}

const fn row(code: Code, name: &'static str, http: u16, exit: u8, meaning: &'static str) -> CodeRow {
    CodeRow { code, name, http, exit, meaning }
}

/// The table, in the order of the design's pages.
pub const CODES: &[CodeRow] = &[
    row(Code::Einval, "EINVAL", 400, 2, "bad input"),
    row(Code::Ekeyrejected, "EKEYREJECTED", 401, 13, "no or wrong token"),
    row(Code::Eacces, "EACCES", 403, 13, "not allowed"),
    row(Code::Enoent, "ENOENT", 404, 1, "not there, or not yours"),
    row(Code::Ebusy, "EBUSY", 409, 1, "running, no slot, attached elsewhere, issue taken"),
    row(Code::Eexist, "EEXIST", 409, 1, "name taken"),
    row(Code::Eshutdown, "ESHUTDOWN", 409, 1, "session has ended or failed"),
    row(Code::Emsgsize, "EMSGSIZE", 413, 2, "too large"),
    row(Code::Ebadmsg, "EBADMSG", 422, 2, "a project or control file does not validate"),
    row(Code::Eagain, "EAGAIN", 429, 1, "rate limit, ours or a provider's"),
    row(Code::Eio, "EIO", 500, 70, "internal error"),
    row(Code::Ehostdown, "EHOSTDOWN", 503, 69, "daemon, provider, ssh host or container cannot be reached"),
    row(Code::Etimedout, "ETIMEDOUT", 504, 1, "a limit of time"),
    row(Code::Enospc, "ENOSPC", 507, 1, "disk full"),
    row(Code::Eintr, "EINTR", 500, 1, "the daemon stopped during the run"),
    row(Code::Eoverflow, "EOVERFLOW", 500, 1, "the context did not fit the model"),
    row(Code::Epipe, "EPIPE", 500, 1, "the model's stream broke off"),
    row(Code::Enodata, "ENODATA", 500, 1, "the model's answer was empty"),
    row(Code::Enomem, "ENOMEM", 500, 1, "a memory limit"),
    row(Code::Enoexec, "ENOEXEC", 500, 1, "a cage or agent did not start"),
    row(Code::Edquot, "EDQUOT", 500, 1, "no quota left at the provider, or a spend limit"),
    row(Code::Eproto, "EPROTO", 500, 1, "the answer is not the provider's protocol"),
    row(Code::Eperm, "EPERM", 500, 1, "the model refused"),
];

impl Code {
    fn row(self) -> &'static CodeRow {
        // A test holds that every code has a row, and EIO's stands for one that would not.
        const INTERNAL: CodeRow = row(Code::Eio, "EIO", 500, 70, "internal error");
        CODES.iter().find(|row| row.code == self).unwrap_or(&INTERNAL)
    }

    /// The errno name: what clients compare.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The HTTP status.
    pub fn http(self) -> u16 {
        self.row().http
    }

    /// The exit code of a command that ends with this error.
    pub fn exit(self) -> u8 {
        self.row().exit
    }

    /// The code with this errno name.
    pub fn from_name(name: &str) -> Option<Code> {
        CODES.iter().find(|row| row.name == name).map(|row| row.code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A command that was not carried out, and why: policy, not failure. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// Which field of the request is to blame, where one is: always for bad input.
    pub field: Option<Cow<'static, str>>,
    /// Where in which file, when a project's files are to blame.
    pub problems: Vec<Problem>,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        // Bad input is [`Refusal::invalid`]; what comes here with that code from elsewhere is the request as a whole.
        let field = (code == Code::Einval).then_some(Cow::Borrowed("request"));
        Refusal { code, message: message.into(), field, problems: Vec::new() }
    }

    /// Bad input in a named field.
    pub fn invalid(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Refusal::new(Code::Einval, message).blaming(field)
    }

    /// The same, with the field that is to blame.
    #[must_use]
    pub fn blaming(self, field: impl Into<Cow<'static, str>>) -> Self {
        Refusal { field: Some(field.into()), ..self }
    }
}

/// Something in a file of a project that cannot stay as it is, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Relative to the project's directory.
    pub file: String,
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_row_and_serialises_as_its_name() {
        for row in CODES {
            assert_eq!(row.code.name(), row.name);
            assert_eq!(serde_json::to_string(&row.code).unwrap(), format!("\"{}\"", row.name));
            assert_eq!(Code::from_name(row.name), Some(row.code));
            assert!((400..600).contains(&row.http) && row.exit > 0);
        }
    }

    #[test]
    fn bad_input_always_names_a_field() {
        assert_eq!(Refusal::new(Code::Einval, "no").field.as_deref(), Some("request"));
        assert_eq!(Refusal::invalid("name", "no").field.as_deref(), Some("name"));
        assert_eq!(Refusal::new(Code::Ebusy, "no").field, None);
    }

    #[test]
    fn exit_codes_are_those_of_the_object_abi() {
        for row in CODES {
            assert!([1, 2, 13, 69, 70].contains(&row.exit), "{}", row.name);
        }
    }
}
