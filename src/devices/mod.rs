//! The registry of devices, held in memory: looked up for each batch, kept up to date by a change
//! stream, told when devices were heard from.
//!
//! An entry that an operator edits takes effect within moments. If the process dies here, at most
//! the last `lastSeen` are missing, and devices not entered yet are entered when they are heard
//! from again.

mod follow;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::sync::{Notify, broadcast};

use crate::config::DevicesConfig;
use crate::model::{Device, DeviceId, Reading, Timestamp};
use crate::runtime::Tasks;
use crate::store::{DeviceChange, DriverResult, Seen, Store};
use crate::telemetry::Registry;

/// Changes that a listener may be behind before it has to look at everything again.
const BEHIND: usize = 4_096;

/// A handle to the registry.
#[derive(Clone)]
pub struct Devices(Arc<Shared>);

struct Shared {
    config: DevicesConfig,
    known: RwLock<HashMap<DeviceId, Arc<Device>>>,
    seen: Mutex<Sightings>,
    /// A device was heard from that has no entry.
    unknown: Notify,
    changes: broadcast::Sender<DeviceChange>,
    count: prometheus::IntGauge,
}

/// Who was heard from since it was last written.
#[derive(Default)]
struct Sightings {
    seen: HashMap<DeviceId, Seen>,
}

/// What is known, for the length of a batch.
pub struct View<'a>(RwLockReadGuard<'a, HashMap<DeviceId, Arc<Device>>>);

impl View<'_> {
    /// The entry of a device.
    pub fn get(&self, device: &DeviceId) -> Option<&Arc<Device>> {
        self.0.get(device)
    }

    /// All entries.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.0.values()
    }
}

impl Devices {
    /// An empty registry; filled by [`Devices::run`].
    pub fn new(config: &DevicesConfig, metrics: &Registry) -> Self {
        Self(Arc::new(Shared {
            config: config.clone(),
            known: RwLock::default(),
            seen: Mutex::default(),
            unknown: Notify::new(),
            changes: broadcast::channel(BEHIND).0,
            count: metrics.gauge("tidegate_devices_known", "Devices in the registry"),
        }))
    }

    /// Reads the registry once, before the first reading asks for it; to be called before
    /// [`Devices::run`].
    ///
    /// # Errors
    /// The driver's.
    pub async fn look(&self, store: &Store) -> DriverResult<()> {
        self.replace(store.all_devices().await?);
        Ok(())
    }

    /// Starts following the collection and writing `lastSeen`.
    pub fn run(&self, store: &Store, tasks: &Tasks) {
        let follow = follow::follow(self.clone(), store.clone());
        tasks.spawn_service("devices", follow);
        let write = follow::write_seen(self.clone(), store.clone(), tasks.stopping());
        tasks.spawn("devices seen", write);
    }

    /// What is known now.
    pub fn view(&self) -> View<'_> {
        // A map of entries is sound whatever a panicking holder was doing.
        View(self.0.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether readings get what is known of their devices.
    pub fn enriches(&self) -> bool {
        self.0.config.enrich
    }

    /// Gives readings what is known of their devices, where that is wanted.
    pub fn enrich<'a>(&self, readings: impl IntoIterator<Item = &'a mut Reading>) {
        if !self.enriches() {
            return;
        }
        let known = self.view();
        for reading in readings {
            if let Some(device) = known.get(&reading.device) {
                device.enrich(reading);
            }
        }
    }

    /// Hears of changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<DeviceChange> {
        self.0.changes.subscribe()
    }

    /// These devices were heard from, and written.
    pub fn seen(&self, batch: impl IntoIterator<Item = Seen>) {
        let mut unknown = false;
        {
            let known = self.view();
            let mut sightings = self.sightings();
            for new in batch {
                unknown |= self.0.config.register && known.get(&new.device).is_none();
                sightings.note(new);
            }
        }
        if unknown {
            self.0.unknown.notify_one();
        }
    }

    fn sightings(&self) -> std::sync::MutexGuard<'_, Sightings> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, change: DeviceChange) {
        {
            let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
            match &change {
                DeviceChange::Put(device) => {
                    known.insert(device.id.clone(), Arc::new(device.clone()));
                }
                DeviceChange::Gone(id) => {
                    known.remove(id);
                    // What is still to be written of it would enter it again.
                    self.sightings().seen.remove(id);
                }
            }
            self.0
                .count
                .set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        }
        // Nobody listens where no rules are evaluated.
        let _ = self.0.changes.send(change);
    }

    /// Puts `all` in the place of what was known, telling what is different.
    fn replace(&self, all: Vec<Device>) {
        let new: HashMap<_, _> = all.into_iter().map(|d| (d.id.clone(), d)).collect();
        let changes: Vec<_> = {
            let known = self.view();
            let gone = known.all().filter(|old| !new.contains_key(&old.id));
            let gone = gone.map(|old| DeviceChange::Gone(old.id.clone()));
            let put = new
                .values()
                .filter(|device| known.get(&device.id).is_none_or(|old| !same(old, device)));
            gone.chain(put.map(|device| DeviceChange::Put(device.clone())))
                .collect()
        };
        for change in changes {
            self.apply(change);
        }
    }

    fn last_seen_every(&self) -> Duration {
        self.0.config.last_seen_every.0
    }
}

/// Whether two entries differ in no more than when the device was heard from.
fn same(a: &Device, b: &Device) -> bool {
    let last_seen = b.last_seen;
    *b == Device {
        last_seen,
        ..a.clone()
    }
}

impl Sightings {
    fn note(&mut self, new: Seen) {
        match self.seen.get_mut(&new.device) {
            Some(seen) => {
                seen.first = seen.first.min(new.first);
                seen.last = seen.last.max(new.last);
            }
            None => {
                self.seen.insert(new.device.clone(), new);
            }
        }
    }

    /// Takes those that are due: all, or those without an entry.
    fn take(&mut self, due: impl Fn(&DeviceId) -> bool) -> Vec<Seen> {
        self.seen
            .extract_if(|device, _| due(device))
            .map(|(_, seen)| seen)
            .collect()
    }
}

/// The sightings of one batch, device by device; readings of one device stand side by side.
pub fn sightings<'a>(
    readings: impl Iterator<Item = (&'a DeviceId, &'a Option<Arc<str>>, Timestamp)>,
) -> Vec<Seen> {
    let mut batch: Vec<Seen> = Vec::new();
    for (device, kind, received) in readings {
        match batch.last_mut() {
            Some(last) if last.device == *device => {
                last.first = last.first.min(received);
                last.last = last.last.max(received);
            }
            _ => batch.push(Seen {
                device: device.clone(),
                kind: kind.clone(),
                first: received,
                last: received,
            }),
        }
    }
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sightings_are_one_for_each_device_and_grow() {
        let (a, b) = (DeviceId::new("a").unwrap(), DeviceId::new("b").unwrap());
        let at = Timestamp::from_millis;
        let batch =
            sightings([(&a, &None, at(5)), (&a, &None, at(3)), (&b, &None, at(9))].into_iter());
        assert_eq!(batch.len(), 2);
        assert_eq!((batch[0].first, batch[0].last), (at(3), at(5)));
        let mut all = Sightings::default();
        for seen in batch.clone().into_iter().chain(batch) {
            all.note(seen);
        }
        assert_eq!(all.take(|device| *device == b).len(), 1);
        assert_eq!(all.take(|_| true)[0].device, a);
        assert!(all.take(|_| true).is_empty());
    }
}
