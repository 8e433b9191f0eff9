//! The registry and the shapes of its families. Each part of the program registers a struct of
//! its own; labels come from closed sets, and every series exists at zero from the start.

use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

/// Bucket bounds shared by histograms of one kind.
pub mod buckets {
    /// Seconds, 1 ms to 60 s.
    pub const SECONDS: &[f64] = &[
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ];
    /// Counts, 1 to 10,000.
    pub const COUNTS: &[f64] = &[
        1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0,
    ];
    /// Readings a device contributes to a batch.
    pub const PER_DEVICE: &[f64] = &[1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0];
}

/// The library's process collector cannot be cloned; ours can.
#[derive(Clone)]
struct ProcessFamily(Arc<ProcessCollector>);

impl Collector for ProcessFamily {
    fn desc(&self) -> Vec<&prometheus::core::Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.0.collect()
    }
}

/// Where families are registered and gathered from.
#[derive(Clone, Default)]
pub struct Registry(prometheus::Registry);

impl Registry {
    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help).expect("the name is a literal in the source"))
    }

    /// A counter by one label, with a series at zero for each of `values`.
    pub fn counters(&self, name: &str, help: &str, label: &str, values: &[&str]) -> IntCounterVec {
        let family = IntCounterVec::new(Opts::new(name, help), &[label])
            .expect("the name is a literal in the source");
        for value in values {
            family.with_label_values(&[value]);
        }
        self.add(family)
    }

    /// A counter by two labels, with a series at zero for each pair of `values`.
    pub fn counters_by_two(
        &self,
        name: &str,
        help: &str,
        labels: [&str; 2],
        values: (&[&str], &[&str]),
    ) -> IntCounterVec {
        let family = IntCounterVec::new(Opts::new(name, help), &labels)
            .expect("the name is a literal in the source");
        for (first, second) in pairs(values) {
            family.with_label_values(&[first, second]);
        }
        self.add(family)
    }

    /// A gauge by two labels, with a series at zero for each pair of `values`.
    pub fn gauges_by_two(
        &self,
        name: &str,
        help: &str,
        labels: [&str; 2],
        values: (&[&str], &[&str]),
    ) -> IntGaugeVec {
        let family = IntGaugeVec::new(Opts::new(name, help), &labels)
            .expect("the name is a literal in the source");
        for (first, second) in pairs(values) {
            family.with_label_values(&[first, second]);
        }
        self.add(family)
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help).expect("the name is a literal in the source"))
    }

    /// A gauge by one label, with a series at zero for each of `values`.
    pub fn gauges(&self, name: &str, help: &str, label: &str, values: &[&str]) -> IntGaugeVec {
        let family = IntGaugeVec::new(Opts::new(name, help), &[label])
            .expect("the name is a literal in the source");
        for value in values {
            family.with_label_values(&[value]);
        }
        self.add(family)
    }

    /// A histogram.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(
            Histogram::with_opts(options).expect("name and buckets are literals in the source"),
        )
    }

    /// Adds a family made elsewhere.
    pub fn add<C: Collector + Clone + 'static>(&self, collector: C) -> C {
        self.0
            .register(Box::new(collector.clone()))
            .expect("each family is registered once per registry");
        collector
    }

    /// Adds what the operating system knows of the process, and the program's version.
    pub fn process(&self) {
        self.add(ProcessFamily(Arc::new(ProcessCollector::for_self())));
        let options = Opts::new("tidegate_build_info", "Always 1; the version is the label")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        let info = IntGauge::with_opts(options).expect("name and label are literals in the source");
        self.add(info).set(1);
    }

    /// All families in the Prometheus text format.
    pub fn text(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.0.gather())
            .unwrap_or_default()
    }
}

fn pairs<'a>(values: (&'a [&'a str], &'a [&'a str])) -> impl Iterator<Item = (&'a str, &'a str)> {
    let (first, second) = values;
    first
        .iter()
        .flat_map(|one| second.iter().map(|other| (*one, *other)))
}
