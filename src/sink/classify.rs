//! What an error of a write means: one table, from the driver's error to a verdict.
//!
//! Codes are those of the server's `error_codes.yml`. A verdict is about documents: refused for
//! what they are, certainly not written, or of unclear fate. An error that is in no row counts as
//! unclear when it concerns the whole command, and as a refusal when the server names the
//! document: a dead letter loses nothing and can be replayed, a wrong retry blocks the window.

use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::store::words;

/// Why an attempt failed; a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No usable server was found: nothing was sent.
    NoServer,
    /// The connection broke or was never had.
    Network,
    /// The primary changed or is going down.
    Failover,
    /// Written, but not confirmed by as many nodes as asked for.
    WriteConcern,
    /// The user may not write.
    Unauthorized,
    /// The server is short of something or too busy.
    Overload,
    /// None of the above.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 7] = [
        Cause::NoServer,
        Cause::Network,
        Cause::Failover,
        Cause::WriteConcern,
        Cause::Unauthorized,
        Cause::Overload,
        Cause::Other,
    ];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::NoServer => "no_server",
            Cause::Network => "network",
            Cause::Failover => "failover",
            Cause::WriteConcern => "write_concern",
            Cause::Unauthorized => "unauthorized",
            Cause::Overload => "overload",
            Cause::Other => "other",
        }
    }

    /// What somebody has to do about it, where only somebody can.
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Cause::Unauthorized => Some(
                "Check user and password in mongodb.uri, and grant the user readWrite on the database: db.grantRolesToUser",
            ),
            _ => None,
        }
    }
}

/// What is known about the documents of a failed write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// None was written: write again.
    NotWritten(Cause),
    /// Some may have been written: look first, then write what is missing.
    Unclear(Cause),
    /// The server judged document by document; those not named were written.
    ByDocument {
        /// The named documents.
        failed: Vec<DocumentError>,
        /// Whether the written ones still lack confirmation by as many nodes as asked for.
        unconfirmed: bool,
    },
    /// The command was refused because of a document in it, without saying which: divide.
    Divide(String),
}

/// One document's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    /// Position in the command.
    pub index: usize,
    /// What becomes of the document.
    pub fate: Fate,
    /// Refused because a document of that id is there.
    pub there: bool,
}

/// What becomes of a document that the server named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is written again, once it is known not to be there: a router names documents also where
    /// it did not hear what became of them.
    Again(Cause),
    /// It will never be taken: the server's words for the dead letter.
    Refused(String),
}

/// The server's code for an id that exists.
const DUPLICATE_KEY: i32 = 11000;

/// Whether the only complaint is that the documents exist, which an earlier attempt wrote.
pub fn all_there(error: &Error) -> bool {
    match classify(error) {
        Verdict::ByDocument {
            failed,
            unconfirmed: false,
        } => failed.iter().all(|failed| failed.there),
        _ => false,
    }
}

/// The name of what made `error`, whatever else it says.
pub fn cause(error: &Error) -> Cause {
    match classify(error) {
        Verdict::NotWritten(cause) | Verdict::Unclear(cause) => cause,
        Verdict::ByDocument { failed, .. } => first_cause(&failed),
        Verdict::Divide(_) => Cause::Other,
    }
}

/// That of the first document to be written again.
pub fn first_cause(failed: &[DocumentError]) -> Cause {
    let again = |failed: &DocumentError| match failed.fate {
        Fate::Again(cause) => Some(cause),
        Fate::Refused(_) => None,
    };
    failed.iter().find_map(again).unwrap_or(Cause::Other)
}

/// The verdict on `error`.
pub fn classify(error: &Error) -> Verdict {
    match error.kind.as_ref() {
        ErrorKind::InsertMany(insert) => {
            match (&insert.write_errors, &insert.write_concern_error) {
                (Some(errors), concern) if !errors.is_empty() => {
                    let failed = errors
                        .iter()
                        .map(|e| DocumentError {
                            index: e.index,
                            fate: match transient(e.code) {
                                Some(cause) => Fate::Again(cause),
                                None => Fate::Refused(format!(
                                    "MongoDB error {}: {}",
                                    e.code, e.message
                                )),
                            },
                            there: e.code == DUPLICATE_KEY,
                        })
                        .collect();
                    Verdict::ByDocument {
                        failed,
                        unconfirmed: concern.is_some(),
                    }
                }
                (_, Some(_)) => Verdict::Unclear(Cause::WriteConcern),
                _ => Verdict::Unclear(Cause::Other),
            }
        }
        // Of a write of one document, such as the probe.
        ErrorKind::Write(WriteFailure::WriteConcernError(_)) => {
            Verdict::Unclear(Cause::WriteConcern)
        }
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            Verdict::Unclear(transient(error.code).unwrap_or(Cause::Other))
        }
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => {
            Verdict::NotWritten(Cause::NoServer)
        }
        ErrorKind::Authentication { .. } => Verdict::NotWritten(Cause::Unauthorized),
        // The pool's error is also that of a call under way when the monitor gave the server up.
        ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } => {
            Verdict::Unclear(Cause::Network)
        }
        ErrorKind::Command(command) => by_command_code(command.code, &command.message),
        ErrorKind::BsonSerialization(_) | ErrorKind::InvalidArgument { .. } => {
            Verdict::Divide(words(error))
        }
        _ => Verdict::Unclear(Cause::Other),
    }
}

/// The verdict on an error of the whole command.
fn by_command_code(code: i32, message: &str) -> Verdict {
    match code {
        // Unauthorized, AuthenticationFailed, AtlasError for access.
        13 | 18 | 8000 => Verdict::NotWritten(Cause::Unauthorized),
        // BSONObjectTooLarge, InvalidBSON, FailedToParse, TypeMismatch, BadValue,
        // DocumentValidationFailure: about what was sent.
        10334 | 22 | 9 | 14 | 2 | 121 => {
            Verdict::Divide(format!("MongoDB error {code}: {message}"))
        }
        _ => Verdict::Unclear(transient(code).unwrap_or(Cause::Other)),
    }
}

/// The cause, if the code says that the same write may succeed later.
fn transient(code: i32) -> Option<Cause> {
    match code {
        // HostUnreachable, HostNotFound, NetworkTimeout, SocketException,
        // NetworkInterfaceExceededTimeLimit.
        6 | 7 | 89 | 9001 | 202 => Some(Cause::Network),
        // ShutdownInProgress, PrimarySteppedDown, NotWritablePrimary, InterruptedAtShutdown,
        // InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary,
        // and for routers StaleShardVersion, StaleEpoch, StaleConfig, StaleDbVersion,
        // ShardCannotRefreshDueToLocksHeld, FailedToSatisfyReadPreference, NoProgressMade.
        91 | 189 | 10107 | 11600 | 11602 | 13435 | 13436 | 63 | 150 | 13388 | 249 | 334 | 133
        | 82 => Some(Cause::Failover),
        // WriteConcernFailed, UnsatisfiableWriteConcern, UnknownReplWriteConcern.
        64 | 100 | 79 => Some(Cause::WriteConcern),
        // ExceededTimeLimit, MaxTimeMSExpired, LockTimeout, LockBusy, WriteConflict,
        // OutOfDiskSpace, Interrupted, TemporarilyUnavailable, MovePrimaryInProgress,
        // ExceededMemoryLimit.
        262 | 50 | 24 | 46 | 112 | 14031 | 11601 | 365 | 312 | 146 => Some(Cause::Overload),
        // Unauthorized.
        13 => Some(Cause::Unauthorized),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{doc, from_document};
    use mongodb::error::InsertManyError;

    use super::*;

    /// Every code that is in a row, by what it says of an insert that it ended.
    const ROWS: [(Cause, &[i32]); 5] = [
        (Cause::Network, &[6, 7, 89, 9001, 202]),
        (
            Cause::Failover,
            &[
                91, 189, 10107, 11600, 11602, 13435, 13436, 63, 150, 13388, 249, 334, 133, 82,
            ],
        ),
        (Cause::WriteConcern, &[64, 100, 79]),
        (
            Cause::Overload,
            &[262, 50, 24, 46, 112, 14031, 11601, 365, 312, 146],
        ),
        (Cause::Other, &[1, 8, 11000, 424_242]),
    ];

    #[test]
    fn a_command_that_failed_may_have_been_carried_out_unless_its_code_says_otherwise() {
        for (cause, codes) in ROWS {
            for code in codes {
                assert_eq!(
                    by_command_code(*code, "m"),
                    Verdict::Unclear(cause),
                    "{code}"
                );
            }
        }
        for code in [13, 18, 8000] {
            let expected = Verdict::NotWritten(Cause::Unauthorized);
            assert_eq!(by_command_code(code, "m"), expected, "{code}");
        }
        for code in [10334, 22, 9, 14, 2, 121] {
            let expected = Verdict::Divide(format!("MongoDB error {code}: m"));
            assert_eq!(by_command_code(code, "m"), expected, "{code}");
        }
    }

    /// An error of the driver's as it makes it of an answer that names the first document.
    fn of_document(code: i32, confirmed: bool) -> Error {
        let mut answer = doc! {
            "writeErrors": [{ "index": 0, "code": code, "errmsg": "m" }],
            "writeConcernError": null,
        };
        if !confirmed {
            let concern = doc! { "code": 64, "errmsg": "timed out" };
            answer.insert("writeConcernError", concern);
        }
        let error: InsertManyError = from_document(answer).unwrap();
        ErrorKind::InsertMany(error).into()
    }

    #[test]
    fn a_document_is_refused_unless_the_code_is_known_to_pass() {
        let passing = [(Cause::Unauthorized, &[13][..])];
        let rows = ROWS.into_iter().chain(passing);
        for (cause, code) in rows.flat_map(|(cause, codes)| codes.iter().map(move |c| (cause, *c)))
        {
            for confirmed in [true, false] {
                let fate = match cause {
                    Cause::Other => Fate::Refused(format!("MongoDB error {code}: m")),
                    _ => Fate::Again(cause),
                };
                let failed = vec![DocumentError {
                    index: 0,
                    fate,
                    there: code == DUPLICATE_KEY,
                }];
                let error = of_document(code, confirmed);
                let expected = Verdict::ByDocument {
                    failed,
                    unconfirmed: !confirmed,
                };
                assert_eq!(classify(&error), expected, "{code}");
                assert_eq!(super::cause(&error), cause, "{code}");
            }
        }
        for code in [121, 2, 18, 8000] {
            let error = of_document(code, true);
            assert!(
                matches!(classify(&error), Verdict::ByDocument { failed, .. }
                    if matches!(failed[0].fate, Fate::Refused(_))),
                "{code}"
            );
        }
        assert!(all_there(&of_document(DUPLICATE_KEY, true)));
        assert!(!all_there(&of_document(DUPLICATE_KEY, false)));
        assert!(!all_there(&of_document(112, true)));
    }

    #[test]
    fn io_may_have_reached_the_server() {
        let error = Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(classify(&error), Verdict::Unclear(Cause::Network));
    }
}
