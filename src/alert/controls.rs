//! What operators say while the gateway runs: rules from the file and from `alert_rules`, silences,
//! requests. Read at the start, again whenever one of the collections changes, and now and then in
//! case a change was missed. Every gateway follows the rules, because its writers ask them which
//! readings belong in the feed; the leader also hears of the rest.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::metrics::AlertMetrics;
use super::rules::{RuleProblem, RuleSet, Rules};
use crate::config::{AlertsConfig, Config, ReceiverConfig, RuleConfig};
use crate::runtime::Backoff;
use crate::store::{Control, DriverResult, SilenceRecord, Store, words};

/// How old what is known may get without a look.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What operators say, as far as it is known.
#[derive(Clone)]
pub struct Controls(Arc<Shared>);

struct Shared {
    store: Store,
    rules: Rules,
    metrics: Arc<AlertMetrics>,
    /// Those of the file; replaced on reload.
    file: Mutex<Vec<RuleConfig>>,
    reloaded: Notify,
    in_force: watch::Sender<Arc<RuleSet>>,
    silences: watch::Sender<Vec<SilenceRecord>>,
    requests: watch::Sender<u64>,
    told: watch::Sender<Arc<(AlertsConfig, Vec<ReceiverConfig>)>>,
    /// Those of the configuration, and those that were in it before: they may be owed an end.
    receivers: Mutex<BTreeMap<String, ReceiverConfig>>,
    complaints: Mutex<Vec<String>>,
}

/// Where the leader hears of changes.
pub(super) struct Listening {
    rules: watch::Receiver<Arc<RuleSet>>,
    silences: watch::Receiver<Vec<SilenceRecord>>,
    requests: watch::Receiver<u64>,
    told: watch::Receiver<Arc<(AlertsConfig, Vec<ReceiverConfig>)>>,
}

/// What changed.
#[derive(Debug)]
pub(super) enum Said {
    /// Other rules are in force.
    Rules(Arc<RuleSet>),
    /// Other silences are.
    Silences(Vec<SilenceRecord>),
    /// Something is asked.
    Requests,
    /// Others are told, or in another way.
    Told(Arc<(AlertsConfig, Vec<ReceiverConfig>)>),
}

impl Listening {
    /// Makes all of it count as new.
    pub fn mark_changed(&mut self) {
        self.rules.mark_changed();
        self.silences.mark_changed();
        self.requests.mark_changed();
        self.told.mark_changed();
    }

    /// What changes next.
    pub async fn changed(&mut self) -> Said {
        // The sender lives as long as the process; an end of it would never say anything.
        tokio::select! {
            // What changed and is not taken here is told by the next call.
            Ok(()) = self.rules.changed() => Said::Rules(self.rules.borrow_and_update().clone()),
            Ok(()) = self.silences.changed() => {
                Said::Silences(self.silences.borrow_and_update().clone())
            }
            Ok(()) = self.requests.changed() => Said::Requests,
            Ok(()) = self.told.changed() => Said::Told(self.told.borrow_and_update().clone()),
            else => std::future::pending().await,
        }
    }
}

impl Controls {
    /// With the file's rules in force.
    pub fn new(store: &Store, rules: &Rules, config: &Config, metrics: &Arc<AlertMetrics>) -> Self {
        let controls = Self(Arc::new(Shared {
            store: store.clone(),
            rules: rules.clone(),
            metrics: Arc::clone(metrics),
            file: Mutex::new(config.rules.clone()),
            reloaded: Notify::new(),
            in_force: watch::Sender::new(rules.current()),
            silences: watch::Sender::new(Vec::new()),
            requests: watch::Sender::new(0),
            told: watch::Sender::new(Arc::new((config.alerts.clone(), config.receivers.clone()))),
            receivers: Mutex::new(by_name(&config.receivers).collect()),
            complaints: Mutex::default(),
        }));
        controls.put_in_force(Vec::new());
        controls
    }

    /// Puts the file's rules and receivers of a reload in force; rules of the database stay.
    pub fn reload(&self, config: &Config) {
        lock(&self.0.file).clone_from(&config.rules);
        lock(&self.0.receivers).extend(by_name(&config.receivers));
        let told = Arc::new((config.alerts.clone(), config.receivers.clone()));
        self.0.told.send_if_modified(|known| {
            let changed = *known != told;
            *known = told;
            changed
        });
        self.0.reloaded.notify_one();
    }

    /// Who is told, and how, as it stands now.
    pub(super) fn told(&self) -> Arc<(AlertsConfig, Vec<ReceiverConfig>)> {
        self.0.told.borrow().clone()
    }

    /// Everybody who is told or was since the start.
    pub(super) fn receivers(&self) -> BTreeMap<String, ReceiverConfig> {
        lock(&self.0.receivers).clone()
    }

    /// The rules in force.
    pub(super) fn rules(&self) -> Arc<RuleSet> {
        self.0.rules.current()
    }

    /// The silences as last read.
    pub(super) fn silences(&self) -> Vec<SilenceRecord> {
        self.0.silences.borrow().clone()
    }

    pub(super) fn listen(&self) -> Listening {
        Listening {
            rules: self.0.in_force.subscribe(),
            silences: self.0.silences.subscribe(),
            requests: self.0.requests.subscribe(),
            told: self.0.told.subscribe(),
        }
    }

    /// Reads everything once.
    ///
    /// # Errors
    /// The driver's.
    pub async fn look(&self) -> DriverResult<()> {
        for control in [Control::Rules, Control::Silences, Control::Requests] {
            self.read(control).await?;
        }
        Ok(())
    }

    /// Follows the collections for ever.
    pub async fn follow(self) -> Result<(), Infallible> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut troubled = false;
        loop {
            match self.follow_once(&mut backoff).await {
                Ok(()) => troubled = false,
                Err(error) if !std::mem::replace(&mut troubled, true) => {
                    tracing::warn!(
                        error = words(&error),
                        "Rules and silences cannot be followed; those known stay in force"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    async fn follow_once(&self, backoff: &mut Backoff) -> DriverResult<()> {
        // First the stream, then the look: what changes in between is seen twice, not never.
        let mut changes = self.0.store.watch_controls().await?;
        self.look().await?;
        backoff.reset();
        loop {
            let next = tokio::select! {
                // The notification is kept; the stream's future only waits, and is polled again.
                () = self.0.reloaded.notified() => {
                    self.read(Control::Rules).await?;
                    continue;
                }
                next = timeout(LOOK_EVERY, changes.next()) => next,
            };
            match next {
                Ok(Ok(Some(control))) => self.read(control).await?,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => self.look().await?,
            }
        }
    }

    async fn read(&self, control: Control) -> DriverResult<()> {
        match control {
            Control::Rules => {
                let kept = self.0.store.kept_rules().await?;
                self.put_in_force(kept);
            }
            Control::Silences => {
                let silences = self.0.store.kept_silences().await?;
                self.0.silences.send_if_modified(|known| {
                    let changed = *known != silences;
                    *known = silences;
                    changed
                });
            }
            Control::Requests => self.0.requests.send_modify(|count| *count += 1),
        }
        Ok(())
    }

    fn put_in_force(&self, kept: Vec<Result<RuleConfig, (String, String)>>) {
        let before = self.0.rules.current();
        let (configs, unreadable) = together(lock(&self.0.file).clone(), kept, &before);
        let (rules, problems) = RuleSet::compile_over(&before, &configs);
        self.0
            .metrics
            .rules(rules.len(), problems.len() + unreadable.len());
        self.complain(problems.iter().map(complaint).chain(unreadable).collect());
        if same(&before, &rules) && !self.0.in_force.borrow().is_empty() {
            return;
        }
        let rules = Arc::new(rules);
        self.0.rules.replace(Arc::clone(&rules));
        if !rules.is_empty() || !before.is_empty() {
            tracing::info!(rules = rules.len(), "Rules in force");
        }
        self.0.in_force.send_replace(rules);
    }

    /// Says what is wrong once, not at every look.
    fn complain(&self, complaints: Vec<String>) {
        let mut before = lock(&self.0.complaints);
        for complaint in complaints.iter().filter(|new| !before.contains(new)) {
            tracing::error!(problem = %complaint, "A rule is not in force, or its former version still is");
        }
        *before = complaints;
    }
}

fn by_name(receivers: &[ReceiverConfig]) -> impl Iterator<Item = (String, ReceiverConfig)> {
    let named = receivers.iter();
    named.map(|receiver| (receiver.name.clone(), receiver.clone()))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Lists are sound whatever a panicking holder was doing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn complaint(problem: &RuleProblem) -> String {
    format!(
        "rule {:?}: {}: {}",
        problem.rule, problem.key, problem.message
    )
}

fn same(a: &RuleSet, b: &RuleSet) -> bool {
    a.len() == b.len()
        && a.rules()
            .iter()
            .zip(b.rules())
            .all(|(a, b)| a.config == b.config)
}

/// The rules of file and database; where one of the database cannot be read, what it was before.
fn together(
    file: Vec<RuleConfig>,
    kept: Vec<Result<RuleConfig, (String, String)>>,
    before: &RuleSet,
) -> (Vec<RuleConfig>, Vec<String>) {
    let mut all = file;
    let mut unreadable = Vec::new();
    for rule in kept {
        match rule {
            Ok(rule) => all.push(rule),
            Err((id, why)) => {
                all.extend(before.get(&id).map(|old| old.config.clone()));
                unreadable.push(format!("rule {id:?} of the database: {why}"));
            }
        }
    }
    (all, unreadable)
}
