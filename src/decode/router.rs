//! Topic to stream: the first one in file order whose filters match.
//!
//! Also the other side of that: which filters to subscribe to. Overlapping subscriptions make a
//! broker deliver a message twice, so the smallest set is taken that covers all streams, and where
//! two filters overlap in part the operator is asked for a wider one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::compile;
use super::stream::Stream;
use crate::config::streams::{Action, StreamConfig, Unrouted};
use crate::model::{Filter, Level};

/// Everything needed to decode: immutable, shared by all connections.
#[derive(Debug)]
pub struct Router {
    streams: Vec<Arc<Stream>>,
    /// By the first level of a topic: the streams that may take it, in file order.
    by_first: HashMap<Box<str>, Vec<usize>>,
    /// Those that may take any other topic.
    others: Vec<usize>,
    filters: Vec<Filter>,
    unrouted: Unrouted,
}

/// Up to so many streams it is faster to ask each of them.
const FEW_STREAMS: usize = 8;

/// Something wrong with a stream's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamProblem {
    /// Position in the file, from 0.
    pub stream: usize,
    /// The key within the stream, such as `time.zone`.
    pub key: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for StreamProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "streams[{}].{}: {}", self.stream, self.key, self.message)
    }
}

impl Router {
    /// Compiles all streams, or returns everything that is wrong with them.
    pub fn build(streams: &[StreamConfig], unrouted: Unrouted) -> Result<Self, Vec<StreamProblem>> {
        let mut problems = Vec::new();
        let compiled: Vec<Arc<Stream>> = streams
            .iter()
            .enumerate()
            .map(|(n, config)| Arc::new(compile::compile(n, config, &mut problems)))
            .collect();
        for (n, config) in streams.iter().enumerate() {
            let first = streams[..n].iter().position(|s| s.name == config.name);
            if let Some(first) = first.filter(|_| !config.name.is_empty()) {
                problems.push(StreamProblem {
                    stream: n,
                    key: "name".into(),
                    message: format!(
                        "`{}` is also the name of streams[{first}]; names are unique",
                        config.name
                    ),
                });
            }
        }
        let filters = cover(&compiled, &mut problems);
        match problems.is_empty() {
            true => {
                let (by_first, others) = index(&compiled);
                Ok(Self {
                    streams: compiled,
                    by_first,
                    others,
                    filters,
                    unrouted,
                })
            }
            false => Err(problems),
        }
    }

    /// The stream that takes a topic.
    pub fn route(&self, topic: &str) -> Option<&Arc<Stream>> {
        let first = topic.split('/').next().unwrap_or_default();
        let candidates = self.by_first.get(first).unwrap_or(&self.others);
        let mut streams = candidates.iter().map(|n| &self.streams[*n]);
        streams.find(|s| s.claims(topic))
    }

    /// The filters to subscribe to, with their `$share/<group>/`. Streams that ignore are not
    /// subscribed to, unless their filter is the wider one that overlapping streams need.
    pub fn filters(&self) -> Vec<String> {
        self.filters.iter().map(Filter::to_string).collect()
    }

    /// The streams in file order.
    pub fn streams(&self) -> &[Arc<Stream>] {
        &self.streams
    }

    /// The same streams with another fate for messages that none of them claims.
    pub fn with_unrouted(self, unrouted: Unrouted) -> Self {
        Self { unrouted, ..self }
    }

    /// What becomes of messages that no stream claims.
    pub fn unrouted(&self) -> Unrouted {
        self.unrouted
    }
}

/// Which streams to ask by the first level of a topic, and for all other first levels.
fn index(streams: &[Arc<Stream>]) -> (HashMap<Box<str>, Vec<usize>>, Vec<usize>) {
    if streams.len() <= FEW_STREAMS {
        return (HashMap::new(), (0..streams.len()).collect());
    }
    let first = |filter: &Filter| match filter.levels.first() {
        Some(Level::Literal(text)) => Some(text.clone()),
        _ => None,
    };
    let all = streams.iter().flat_map(|s| &s.filters);
    let mut by_first: HashMap<Box<str>, Vec<usize>> = all
        .filter_map(first)
        .map(|text| (text, Vec::new()))
        .collect();
    let mut others = Vec::new();
    for (n, stream) in streams.iter().enumerate() {
        let firsts: Vec<_> = stream.filters.iter().map(first).collect();
        let wild = firsts.contains(&None);
        if wild {
            others.push(n);
        }
        for (text, candidates) in &mut by_first {
            if wild || firsts.iter().flatten().any(|f| f == text) {
                candidates.push(n);
            }
        }
    }
    (by_first, others)
}

/// A filter and where it stands.
#[derive(Clone, Copy)]
struct Source<'s> {
    stream: usize,
    position: usize,
    filter: &'s Filter,
}

/// The smallest covering set; filters that overlap in part are problems.
fn cover(streams: &[Arc<Stream>], problems: &mut Vec<StreamProblem>) -> Vec<Filter> {
    let all = |action: Action| -> Vec<Source<'_>> {
        let streams = streams.iter().filter(|s| s.config.action == action);
        let sources = streams.flat_map(|s| {
            let filters = s.filters.iter().enumerate();
            filters.map(|(position, filter)| Source {
                stream: s.index,
                position,
                filter,
            })
        });
        sources.collect()
    };
    let ignoring = all(Action::Ignore);
    let mut chosen: Vec<Source<'_>> = Vec::new();
    for source in all(Action::Store) {
        add(&mut chosen, source);
    }
    while let Some((a, b)) = first_overlap(&chosen) {
        let wider = ignoring.iter().find(|w| {
            w.filter.group == a.filter.group
                && w.filter.covers(a.filter)
                && w.filter.covers(b.filter)
        });
        match wider.filter(|_| a.filter.group == b.filter.group) {
            Some(wider) => add(&mut chosen, *wider),
            None => {
                problems.push(overlap_problem(streams, a, b));
                chosen.retain(|s| !std::ptr::eq(s.filter, b.filter));
            }
        }
    }
    chosen.into_iter().map(|s| s.filter.clone()).collect()
}

/// Adds a filter unless it is covered, and drops those it covers.
fn add<'s>(chosen: &mut Vec<Source<'s>>, new: Source<'s>) {
    let same = |s: &Source<'_>| s.filter.group == new.filter.group;
    if chosen
        .iter()
        .any(|s| same(s) && s.filter.covers(new.filter))
    {
        return;
    }
    chosen.retain(|s| !(same(s) && new.filter.covers(s.filter)));
    chosen.push(new);
}

fn first_overlap<'s>(chosen: &[Source<'s>]) -> Option<(Source<'s>, Source<'s>)> {
    chosen.iter().enumerate().find_map(|(n, b)| {
        let a = chosen[..n].iter().find(|a| a.filter.overlaps(b.filter))?;
        Some((*a, *b))
    })
}

fn overlap_problem(streams: &[Arc<Stream>], a: Source<'_>, b: Source<'_>) -> StreamProblem {
    let name = streams.get(a.stream).map_or("", |s| s.name());
    let (first, second) = (a.filter, b.filter);
    let message = match first.group == second.group {
        true => format!(
            "`{second}` and `{first}` of stream `{name}` overlap, and neither covers the other: the \
             broker would deliver some messages twice; subscribe to one wider filter that covers \
             both, such as `{}` in a last stream (with `action = \"ignore\"` if the rest is not wanted)",
            first.join(second)
        ),
        false => format!(
            "`{second}` and `{first}` of stream `{name}` overlap but differ in their `$share` group: \
             messages would be delivered twice; put both in one group"
        ),
    };
    StreamProblem {
        stream: b.stream,
        key: format!("topics[{}]", b.position),
        message,
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
