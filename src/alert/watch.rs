//! Reads the change stream of the feed ahead of whoever evaluates it. Events keep their order; the
//! channel is short, so a slow evaluation slows the reading down and the server keeps the rest.

use tokio::sync::mpsc;

use crate::store::{FeedEvent, FeedStreamError, From, Place, Store};

/// Events read ahead: each may hold a mebibyte as it is sent, and some of it in memory.
const AHEAD: usize = 16;

/// What the stream brings.
#[derive(Debug)]
pub(super) enum News {
    /// A document of the feed.
    Event(Box<FeedEvent>),
    /// Nothing for now; the place has moved on.
    Quiet(Place),
    /// It does not go on.
    Ended(FeedStreamError),
}

/// Opens the stream and reads it until whoever listens has gone.
///
/// # Errors
/// Where it cannot be opened.
pub(super) async fn watch(
    store: &Store,
    from: From,
) -> Result<mpsc::Receiver<News>, FeedStreamError> {
    let store = store.clone();
    // In a task of its own: a driver call is never dropped half way.
    let opening = tokio::spawn(async move { store.follow_feed(from).await });
    let mut stream = opening
        .await
        .map_err(|error| FeedStreamError::Passing(error.to_string()))??;
    let (send, receive) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        loop {
            let news = match stream.next().await {
                Ok(Some(event)) => News::Event(Box::new(event)),
                Ok(None) => match stream.place() {
                    Some(place) => News::Quiet(place),
                    None => continue,
                },
                Err(error) => News::Ended(error),
            };
            let last = matches!(news, News::Ended(_));
            if send.send(news).await.is_err() || last {
                return;
            }
        }
    });
    Ok(receive)
}
