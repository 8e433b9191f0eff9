//! One client per process, with a pool that fits the writers.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ReadConcern, ReadPreference, SelectionCriteria};

use super::predecessor::Author;
use crate::config::MongodbConfig;
use crate::config::secret::value_or_file;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection string cannot be read.
    #[error("mongodb.uri_file: {0}")]
    Secret(String),
    /// The name of a `mongodb+srv` address cannot be looked up now.
    #[error("mongodb.uri: {0}")]
    NameServer(String),
    /// The connection string is not one.
    #[error("mongodb.uri: {0}")]
    Uri(String),
}

/// Builds the client; connects lazily, so an unreachable server is no error here. Only the name of
/// a `mongodb+srv` address is looked up at once.
///
/// # Errors
/// Where the connection string cannot be read or makes no sense. The string itself, which may
/// hold a password, stays out of the message.
pub(super) async fn connect(
    config: &MongodbConfig,
    writers: usize,
    client_id: &str,
) -> Result<(Client, Author), ConnectError> {
    let file = value_or_file(&None, &config.uri_file).map_err(ConnectError::Secret)?;
    let uri = file.as_ref().unwrap_or(&config.uri).expose();
    let mut options = ClientOptions::parse(uri).await.map_err(|error| {
        let message = redact(&error.to_string(), uri);
        match error.kind.as_ref() {
            ErrorKind::DnsResolve { .. } | ErrorKind::Io(_) => ConnectError::NameServer(message),
            _ => ConnectError::Uri(message),
        }
    })?;
    let author = Author::new(options.app_name.as_deref(), client_id);
    options.app_name = Some(author.name().to_owned());
    options.server_selection_timeout = Some(config.server_selection_timeout.0);
    options.connect_timeout = Some(config.connect_timeout.0);
    // Each writer may have writes to the series, the feed and the dead letters under way; beside
    // them there are probes, queries, change streams and what alerts and their delivery write.
    let wanted = u32::try_from(writers * 3 + 16).unwrap_or(u32::MAX);
    options.max_pool_size = Some(options.max_pool_size.unwrap_or(0).max(wanted));
    options.min_pool_size.get_or_insert(1);
    // Look-ups before a repeated insert must see what the primary has.
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    options.read_concern = Some(ReadConcern::local());
    options.retry_writes = Some(true);
    // A server that said it is going down is looked at again after as long.
    options.heartbeat_freq = options.heartbeat_freq.or(Some(Duration::from_secs(2)));
    let client = Client::with_options(options)
        .map_err(|error| ConnectError::Uri(redact(&error.to_string(), uri)))?;
    Ok((client, author))
}

/// Cuts the user information of `uri` out of `text`.
fn redact(text: &str, uri: &str) -> String {
    let Some((_, rest)) = uri.split_once("://") else {
        return text.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((user_info, _)) if !user_info.is_empty() => {
            let password = user_info
                .split_once(':')
                .map_or("", |(_, password)| password);
            let text = text.replace(user_info, "***");
            if password.is_empty() {
                text
            } else {
                text.replace(password, "***")
            }
        }
        _ => text.to_owned(),
    }
}

/// What the server says about itself.
///
/// # Errors
/// Where it cannot be reached.
pub(super) async fn hello(client: &Client) -> mongodb::error::Result<mongodb::bson::Document> {
    client
        .database("admin")
        .run_command(doc! { "hello": 1 })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_cut_out_of_errors() {
        let uri = "mongodb://u:p%40ss@h:1/?bad";
        assert_eq!(
            redact("bad option in mongodb://u:p%40ss@h:1/", uri),
            "bad option in mongodb://***@h:1/"
        );
        assert_eq!(redact("password p%40ss", uri), "password ***");
        assert_eq!(redact("plain", "mongodb://h"), "plain");
    }
}
