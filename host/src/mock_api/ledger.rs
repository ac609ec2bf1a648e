//! The server's memory of what happened: a compact record a request, and each key with the times
//! it was stored.
//!
//! Invariant: the log is in order of arrival, and its locks are held for a bounded time whatever the
//! size of a batch or of the memory.

use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Rows that are touched under one hold of a lock.
const STRIDE: usize = 1000;

/// What `/stats` answers. Only `POST /items` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests that arrived.
    pub requests: u64,
    /// The most that were in flight at once.
    pub max_in_flight: u32,
    /// Items stored, each time counted.
    pub stored: u64,
    /// Keys stored at least once.
    pub distinct: u64,
    /// Items stored whose key had been stored before: `stored` - `distinct`.
    pub duplicates: u64,
    /// Requests refused for their rate, with whichever status, and other answers of 429.
    pub rejected_429: u64,
    /// Requests answered with 413.
    pub rejected_413: u64,
}

/// One line of `/log`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LogEntry {
    /// When the request's head arrived, in seconds since the server's start.
    pub t: f64,
    /// Items in its batch; 0 if it could not be read.
    pub items: u32,
    /// Requests in flight at its arrival, itself included.
    pub in_flight: u32,
    /// Status of the answer; 0 if there was none, or none yet.
    pub status: u16,
    /// Milliseconds from arrival to answer; 0 as long as there was neither an answer nor an end.
    pub ms: f64,
}

/// One line of `/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyEntry {
    /// The item's key.
    pub key: Box<str>,
    /// How often it was stored.
    pub times: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ledger {
    traffic: Mutex<Traffic>,
    store: Mutex<Store>,
}

#[derive(Debug, Default)]
struct Traffic {
    records: Vec<Record>,
    in_flight: u32,
    max_in_flight: u32,
    rejected_429: u64,
    rejected_413: u64,
}

/// 24 bytes, since there may be millions.
#[derive(Debug, Clone, Copy)]
struct Record {
    arrived_us: u64,
    took_us: u32,
    items: u32,
    in_flight: u32,
    status: u16,
}

#[derive(Debug, Default)]
struct Store {
    rows: Vec<(Arc<str>, u32)>,
    row_of: HashMap<Arc<str>, usize>,
    stored: u64,
}

/// A request in flight. Dropping it ends the request without an answer.
#[derive(Debug)]
pub struct Arrival {
    ledger: Arc<Ledger>,
    record: usize,
    /// When it arrived, since the server's start.
    pub at: Duration,
    /// Requests in flight at its arrival, itself included.
    pub active: u32,
    items: u32,
    /// The answer's status, and whether it refuses for the rate.
    answer: Option<(u16, bool)>,
    ended_at: Duration,
}

impl Ledger {
    /// Takes note of a request that arrived at `at`.
    pub fn arrive(self: &Arc<Self>, at: Duration) -> Arrival {
        let mut traffic = lock(&self.traffic);
        traffic.in_flight = traffic.in_flight.saturating_add(1);
        traffic.max_in_flight = traffic.max_in_flight.max(traffic.in_flight);
        let active = traffic.in_flight;
        traffic.records.push(Record {
            arrived_us: at.as_micros() as u64,
            took_us: 0,
            items: 0,
            in_flight: active,
            status: 0,
        });
        Arrival {
            ledger: self.clone(),
            record: traffic.records.len() - 1,
            at,
            active,
            items: 0,
            answer: None,
            ended_at: at,
        }
    }

    /// Stores the items of a batch.
    pub fn store(&self, keys: Vec<Arc<str>>) {
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            let mut store = lock(&self.store);
            for key in keys.by_ref().take(STRIDE) {
                store.add(key);
            }
        }
    }

    /// What `/stats` answers.
    pub fn stats(&self) -> Stats {
        // One lock after the other, never both.
        let stats = {
            let traffic = lock(&self.traffic);
            Stats {
                requests: traffic.records.len() as u64,
                max_in_flight: traffic.max_in_flight,
                stored: 0,
                distinct: 0,
                duplicates: 0,
                rejected_429: traffic.rejected_429,
                rejected_413: traffic.rejected_413,
            }
        };
        let store = lock(&self.store);
        let distinct = store.rows.len() as u64;
        Stats {
            stored: store.stored,
            distinct,
            duplicates: store.stored - distinct,
            ..stats
        }
    }

    /// Requests that arrived so far.
    pub fn requests(&self) -> usize {
        lock(&self.traffic).records.len()
    }

    /// Keys stored so far.
    pub fn distinct(&self) -> usize {
        lock(&self.store).rows.len()
    }

    /// Some requests from `from` on, in order of arrival; those before `until`.
    pub fn log(&self, from: usize, until: usize) -> Vec<LogEntry> {
        let records = stride(&lock(&self.traffic).records, from, until).to_vec();
        records.into_iter().map(LogEntry::from).collect()
    }

    /// Some keys from `from` on, in order of their first storing; those before `until`.
    pub fn keys(&self, from: usize, until: usize) -> Vec<KeyEntry> {
        let store = lock(&self.store);
        let entry = |(key, times): &(Arc<str>, u32)| KeyEntry {
            key: (**key).into(),
            times: *times,
        };
        stride(&store.rows, from, until).iter().map(entry).collect()
    }
}

impl Arrival {
    /// Counts the server's requests, from 1.
    pub fn number(&self) -> u64 {
        self.record as u64 + 1
    }

    /// The batch was read.
    pub fn has_items(&mut self, items: usize) {
        self.items = u32::try_from(items).unwrap_or(u32::MAX);
        lock(&self.ledger.traffic).records[self.record].items = self.items;
    }

    /// Ends the request with an answer at `now`.
    pub fn answered(mut self, now: Duration, status: u16, refused_for_rate: bool) {
        self.answer = Some((status, refused_for_rate));
        self.ended_at = now;
    }

    /// Ends the request at `now`, on purpose without an answer.
    pub fn unanswered(mut self, now: Duration) {
        self.ended_at = now;
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let took = self.ended_at.saturating_sub(self.at).as_micros();
        let mut traffic = lock(&self.ledger.traffic);
        traffic.in_flight -= 1;
        let record = &mut traffic.records[self.record];
        record.took_us = u32::try_from(took).unwrap_or(u32::MAX);
        if let Some((status, refused_for_rate)) = self.answer {
            record.status = status;
            traffic.rejected_429 += u64::from(refused_for_rate || status == 429);
            traffic.rejected_413 += u64::from(status == 413);
        }
    }
}

impl Store {
    fn add(&mut self, key: Arc<str>) {
        self.stored += 1;
        match self.row_of.get(&key) {
            Some(row) => self.rows[*row].1 = self.rows[*row].1.saturating_add(1),
            None => {
                self.row_of.insert(key.clone(), self.rows.len());
                self.rows.push((key, 1));
            }
        }
    }
}

impl From<Record> for LogEntry {
    fn from(record: Record) -> Self {
        Self {
            t: record.arrived_us as f64 / 1e6,
            items: record.items,
            in_flight: record.in_flight,
            status: record.status,
            ms: f64::from(record.took_us) / 1e3,
        }
    }
}

fn stride<T>(rows: &[T], from: usize, until: usize) -> &[T] {
    let until = until.min(rows.len()).min(from.saturating_add(STRIDE));
    rows.get(from..until).unwrap_or_default()
}

/// A panic elsewhere must not end the server's memory: every change here is made whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn requests_are_logged_in_order_of_arrival_from_their_arrival_on() {
        let ledger = Arc::new(Ledger::default());
        let mut first = ledger.arrive(ms(1));
        first.has_items(50);
        let second = ledger.arrive(ms(2));
        let third = ledger.arrive(ms(3));
        assert_eq!((first.number(), second.number(), third.active), (1, 2, 3));
        second.answered(ms(7), 503, true);
        drop(third);
        let fourth = ledger.arrive(ms(9));
        assert_eq!(fourth.active, 2, "two have ended");
        first.answered(ms(101), 200, false);
        fourth.answered(ms(9), 413, false);

        let rows: Vec<_> = ledger
            .log(0, 9)
            .iter()
            .map(|e| ((e.t * 1e3) as u32, e.items, e.in_flight, e.status, e.ms))
            .collect();
        let expected = [
            (1, 50, 1, 200, 100.0),
            (2, 0, 2, 503, 5.0),
            (3, 0, 3, 0, 0.0),
            (9, 0, 2, 413, 0.0),
        ];
        assert_eq!(rows, expected);
        let stats = ledger.stats();
        assert_eq!((stats.requests, stats.max_in_flight), (4, 3));
        assert_eq!((stats.rejected_429, stats.rejected_413), (1, 1));
    }

    #[test]
    fn keys_are_counted_each_time() {
        let ledger = Ledger::default();
        let keys = |n: usize| (0..n).map(|k| Arc::from(k.to_string())).collect::<Vec<_>>();
        ledger.store(keys(STRIDE + 5));
        ledger.store(keys(2));
        let stats = ledger.stats();
        let counts = (stats.stored, stats.distinct, stats.duplicates);
        assert_eq!(counts, (STRIDE as u64 + 7, STRIDE as u64 + 5, 2));
        let page = ledger.keys(0, usize::MAX);
        assert_eq!(page.len(), STRIDE, "a page at a time");
        assert_eq!((&*page[1].key, page[1].times, page[2].times), ("1", 2, 1));
        assert_eq!(ledger.keys(STRIDE, STRIDE + 3).len(), 3);
        assert!(ledger.keys(STRIDE + 5, usize::MAX).is_empty());
        assert!(ledger.keys(usize::MAX, usize::MAX).is_empty());
    }
}
