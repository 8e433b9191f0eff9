//! Whether an earlier process of this gateway still writes. One that was killed leaves inserts behind
//! that the server has received and goes on with, after a stall of its own for a long time: whoever
//! looked up what is stored before they are done would store it a second time.

use futures_util::TryStreamExt;
use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;

use super::Store;

/// Bytes of an application's name that the server keeps.
const MOST_NAME: usize = 128;

/// The name a process has at the server: that of its gateway, and one of its own.
#[derive(Debug, Clone)]
pub(super) struct Author {
    gateway: String,
    process: String,
}

impl Author {
    /// For a process of the gateway `client_id`, in an application that may have a name already.
    pub(super) fn new(application: Option<&str>, client_id: &str) -> Self {
        let own = ObjectId::new().to_hex();
        let mut gateway = format!("{} {client_id}", application.unwrap_or("tidegate"));
        let mut most = (MOST_NAME - own.len() - 1).min(gateway.len());
        while !gateway.is_char_boundary(most) {
            most -= 1;
        }
        gateway.truncate(most);
        let process = format!("{gateway} {own}");
        Self { gateway, process }
    }

    /// As the server is told.
    pub(super) fn name(&self) -> &str {
        &self.process
    }
}

impl Store {
    /// Whether the server is at an insert of an earlier process.
    ///
    /// # Errors
    /// The driver's; also where the user may not ask.
    pub async fn predecessor_writes(&self) -> mongodb::error::Result<bool> {
        let Author { gateway, process } = &self.author;
        // A name of as many words that begins alike; its last word is the process.
        let begins = format!("^{} [0-9a-f]{{24}}$", regex::escape(gateway));
        let pipeline = [
            // One's own operations, which takes no privilege.
            doc! { "$currentOp": {} },
            doc! { "$match": {
                "appName": { "$regex": begins, "$ne": process },
                "command.insert": { "$exists": true },
            } },
            doc! { "$limit": 1 },
        ];
        let admin = self.client().database("admin");
        let mut found = admin.aggregate(pipeline).await?;
        Ok(found.try_next().await?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_of_its_own_that_fits() {
        let (one, other) = (Author::new(None, "g"), Author::new(None, "g"));
        assert_eq!(one.gateway, "tidegate g");
        assert_ne!(one.name(), other.name());
        let long = Author::new(Some("application"), &"ü".repeat(100));
        assert!(long.name().len() <= MOST_NAME && long.name().len() > MOST_NAME - 3);
    }
}
