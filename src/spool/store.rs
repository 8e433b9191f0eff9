//! The store on disk: records by number, in one redb file, with a lock on its folder.
//!
//! What comes in: groups of records to keep and numbers to forget, in one transaction that is on
//! disk (fsync) when `commit` returns. If the process dies, what was committed is there at the next
//! start. After a failed write the file is opened anew, with what the system caches of it thrown
//! away first: pages whose write failed look written in the cache, but are not on the disk.

use std::fs::{File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};

/// Records by number.
const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records");
/// Records that cannot be read as messages, kept for a person to look at.
const DAMAGED: TableDefinition<u64, &[u8]> = TableDefinition::new("damaged");
/// Sums, by name.
const TOTALS: TableDefinition<&str, u64> = TableDefinition::new("totals");
/// Bytes of all records.
const BYTES: &str = "bytes";

const FILE: &str = "spool.redb";
const LOCK: &str = "lock";

/// What the engine may keep in memory.
const CACHE_BYTES: usize = 32 << 20;

/// Why a spool cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses the folder.
    #[error("{} is in use by another gateway: give each a spool.path of its own", .0.display())]
    InUse(PathBuf),
    /// The folder or the file.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is not what it was.
    #[error(
        "{} is damaged ({detail}). Messages that were acknowledged but are not in MongoDB yet may be in it; nothing was deleted. Restore the file, or move it away to start with an empty spool, which gives those messages up",
        path.display()
    )]
    Damaged { path: PathBuf, detail: String },
}

/// A record and its number.
pub type Numbered = (u64, Vec<u8>);

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub records: u64,
    pub bytes: u64,
}

/// See the module's head.
pub struct SpoolStore {
    folder: PathBuf,
    /// `None`: a write failed and it has not been opened again yet.
    database: RwLock<Option<Database>>,
    /// Something was set aside in the file, which a person must see before it goes.
    aside: AtomicBool,
    /// Held for the life of the process.
    _lock: File,
}

impl SpoolStore {
    /// Opens the store of `folder`, making both where missing.
    ///
    /// # Errors
    /// What somebody has to mend first.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(folder.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
        let store = Self {
            folder: folder.to_owned(),
            database: RwLock::new(None),
            aside: AtomicBool::new(false),
            _lock: lock,
        };
        store.reopen()?;
        let aside = store.with(|database| {
            let table = database.begin_read()?.open_table(DAMAGED)?;
            Ok(table.len()? > 0)
        })?;
        store.aside.store(aside, Ordering::Relaxed);
        Ok(store)
    }

    /// Whether there is anything at `folder` that an earlier run may have left.
    pub fn exists(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    /// Opens the file anew.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn reopen(&self) -> Result<(), StoreError> {
        let mut database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *database = None;
        let path = self.file();
        // Only what is on the disk counts.
        if let Ok(file) = File::open(&path) {
            // A file system that knows no such advice has no cache to mislead us either (tmpfs).
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
        // The engine checks less than it relies on in a damaged file.
        let opened = catch_unwind(AssertUnwindSafe(|| open_file(&path)));
        let opened = opened.unwrap_or_else(|_| {
            Err(redb::Error::Corrupted(
                "the engine gave up on it".to_owned(),
            ))
        });
        // A file that was just made must be found again after a crash.
        let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
        folder.map_err(|source| self.failed(source.into()))?;
        *database = Some(opened.map_err(|error| self.failed(error))?);
        Ok(())
    }

    /// Gives the file's space back, where nothing is in it that is needed.
    ///
    /// # Errors
    /// Why the new one cannot be made; there is none then.
    pub fn start_over(&self) -> Result<(), StoreError> {
        if !self.aside.load(Ordering::Relaxed) {
            let mut database = self
                .database
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            *database = None;
            std::fs::remove_file(self.file()).map_err(|source| self.failed(source.into()))?;
        }
        self.reopen()
    }

    /// Keeps `records`, forgets those of `gone`, sets `damaged` ones aside; on disk when it returns.
    ///
    /// # Errors
    /// Nothing, some or all of it may have happened; the store must be opened anew.
    pub fn commit(
        &self,
        records: &[Numbered],
        gone: &[u64],
        damaged: &[Numbered],
    ) -> Result<Totals, StoreError> {
        self.with(|database| {
            let transaction = begin(database)?;
            let totals = {
                let mut table = transaction.open_table(RECORDS)?;
                let mut totals = transaction.open_table(TOTALS)?;
                let mut bytes = totals.get(BYTES)?.map_or(0, |bytes| bytes.value());
                let less = |old: Option<redb::AccessGuard<'_, &'static [u8]>>| {
                    old.map_or(0, |old| old.value().len() as u64)
                };
                for (number, record) in records {
                    // There already if a write that was thought to have failed had not.
                    bytes -= less(table.insert(number, record.as_slice())?);
                    bytes += record.len() as u64;
                }
                for number in gone {
                    bytes -= less(table.remove(number)?);
                }
                totals.insert(BYTES, bytes)?;
                if !damaged.is_empty() {
                    self.aside.store(true, Ordering::Relaxed);
                    let mut aside = transaction.open_table(DAMAGED)?;
                    for (number, record) in damaged {
                        aside.insert(number, record.as_slice())?;
                    }
                }
                Totals {
                    records: table.len()?,
                    bytes,
                }
            };
            transaction.commit()?;
            Ok(totals)
        })
    }

    /// Records from number `from` on, below `end`, oldest first: at most `most`, and no more than
    /// `bytes` of them unless the first alone is larger.
    ///
    /// # Errors
    /// The engine's.
    pub fn read(
        &self,
        from: u64,
        end: u64,
        most: usize,
        bytes: usize,
    ) -> Result<Vec<Numbered>, StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(RECORDS)?;
            let (mut records, mut held) = (Vec::new(), 0);
            for entry in table.range(from..end)?.take(most) {
                let (number, record) = entry?;
                held += record.value().len();
                if held > bytes && !records.is_empty() {
                    break;
                }
                records.push((number.value(), record.value().to_vec()));
            }
            Ok(records)
        })
    }

    /// How much there is, and the number that no record has reached yet.
    ///
    /// # Errors
    /// The engine's.
    pub fn totals(&self) -> Result<(Totals, u64), StoreError> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let table = transaction.open_table(RECORDS)?;
            let bytes = transaction.open_table(TOTALS)?.get(BYTES)?;
            let totals = Totals {
                records: table.len()?,
                bytes: bytes.map_or(0, |bytes| bytes.value()),
            };
            let next = table.last()?.map_or(0, |(number, _)| number.value() + 1);
            Ok((totals, next))
        })
    }

    /// Bytes of the file that could be given back, were nothing in it.
    pub fn grown(&self) -> u64 {
        match self.aside.load(Ordering::Relaxed) {
            true => 0,
            false => self.file_bytes(),
        }
    }

    /// Bytes the file takes on disk.
    pub fn file_bytes(&self) -> u64 {
        std::fs::metadata(self.file()).map_or(0, |file| {
            use std::os::unix::fs::MetadataExt;
            file.blocks() * 512
        })
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let database: RwLockReadGuard<'_, _> =
            self.database.read().unwrap_or_else(PoisonError::into_inner);
        match database.as_ref() {
            Some(database) => act(database).map_err(|error| self.failed(error)),
            None => Err(self.failed(redb::Error::DatabaseClosed)),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    fn failed(&self, error: redb::Error) -> StoreError {
        let path = self.file();
        match error {
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse(self.folder.clone()),
            redb::Error::Io(source) => StoreError::Io { path, source },
            redb::Error::Corrupted(_)
            | redb::Error::UpgradeRequired(_)
            | redb::Error::RepairAborted
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TypeDefinitionChanged { .. } => StoreError::Damaged {
                path,
                detail: error.to_string(),
            },
            other => StoreError::Io {
                path,
                source: io::Error::other(other.to_string()),
            },
        }
    }
}

fn open_file(path: &Path) -> Result<Database, redb::Error> {
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create(path)?;
    let transaction = begin(&database)?;
    transaction.open_table(RECORDS)?;
    transaction.open_table(DAMAGED)?;
    transaction.open_table(TOTALS)?;
    transaction.commit()?;
    Ok(database)
}

/// In two phases, at the price of a second fsync: what the file then says was committed is known to
/// be whole, and damage to it is an error at the next start. In one phase the engine would take
/// damage for a commit that was cut off, and go back to the one before, silently.
fn begin(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}
