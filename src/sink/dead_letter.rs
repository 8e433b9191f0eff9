//! Writes dead letters, however long it takes. Their ids are unique, so a repeated write that
//! finds them there has succeeded.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::RawDocumentBuf;

use super::batch::Letter;
use super::call::answer;
use super::classify::{all_there, cause};
use super::insert::Context;
use crate::store::words;

/// Bytes of payload in one command: far below the server's 48 MB, whatever the documents' count.
const MAX_COMMAND_BYTES: usize = 16 * 1024 * 1024;

/// How long the server may take to confirm.
const LIMIT: Duration = Duration::from_secs(30);

/// Stores all letters, settling each.
pub async fn write_letters(letters: Vec<Letter>, context: &mut Context<'_>) {
    let mut rest = Letter::fold(letters).into_iter().peekable();
    while rest.peek().is_some() {
        let mut some = Vec::new();
        let mut bytes = 0;
        while let Some(letter) =
            rest.next_if(|l| some.is_empty() || bytes + l.letter.payload.len() < MAX_COMMAND_BYTES)
        {
            bytes += letter.letter.payload.len();
            some.push(letter);
        }
        write_some(some, context).await;
    }
}

async fn write_some(letters: Vec<Letter>, context: &mut Context<'_>) {
    let documents: Arc<[RawDocumentBuf]> = letters.iter().map(|l| l.letter.encode()).collect();
    let collection = context.store.dead_letters_raw();
    let place = collection.name().to_owned();
    loop {
        let (collection, sent) = (collection.clone(), Arc::clone(&documents));
        let call = async move { collection.insert_many(sent.iter()).ordered(false).await };
        match answer(context.health, &place, LIMIT, call).await {
            Ok(_) => break,
            Err(error) if all_there(&error) => break,
            Err(error) => {
                context.pause(&place, cause(&error), &words(&error)).await;
            }
        }
    }
    context.succeeded(&place);
    for letter in letters {
        let written = &context.metrics.dead_letters;
        written.with_label_values(&[letter.reason.code()]).inc();
        letter.settle();
    }
}
