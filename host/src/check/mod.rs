//! `batchgate check`: whether a plugin keeps the contract, tried on inputs that are unlike each other and
//! against a server that refuses in every way.
//!
//! Invariant: a case passes only if the plugin was called and did what the case asks for. What a plugin
//! says is compared with what the server saw. The cases about a server's answers are for plugins that
//! post to `api_url`; for others they do not apply, and the report says so.

mod cases;
mod expect;
mod table;

use crate::item::Item;
use crate::mock_api::{Behaviour, Options, Server, StartError};
use crate::slot::{CallInfo, CallReport, CallServices, Plugin, Slot};
use crate::wasm::{
    Component, ConfigValue, Job, LoadError, SandboxConfig, WasmPlugin, WasmSlot, World, own_program,
};
use cases::{Call, Case, Situation};
use expect::Seen;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::time::Instant;

/// What to check, and with what.
#[derive(Debug, Clone)]
pub struct Check {
    /// The component.
    pub component: PathBuf,
    /// The config key that takes the URL to post to.
    pub url_key: String,
    /// Further values of its config.
    pub config: Vec<(String, String)>,
    /// Where compiled code is kept. Each situation loads the component anew.
    pub cache_dir: PathBuf,
}

/// How a plugin did.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The component.
    pub component: PathBuf,
    /// The world that it was built for.
    pub world: &'static str,
    /// One a case, in order.
    pub cases: Vec<Outcome>,
}

/// How one case went.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The case's name.
    pub case: &'static str,
    /// What it asks for.
    pub expected: String,
    /// What came of it.
    pub got: String,
    /// How that is judged.
    pub verdict: Verdict,
}

/// How a case is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did what was asked for.
    Passed,
    /// It did not.
    Failed,
    /// The case is not for plugins of this kind.
    DoesNotApply,
}

/// The check itself could not go on: the plugin is unusable, or a server did not start.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The component cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An instance of it does not start.
    #[error("{0}")]
    Start(String),
    /// The stand-in server does not start.
    #[error("the stand-in server: {0}")]
    Server(#[from] StartError),
    /// No port that nobody listens on.
    #[error("no free port on the loopback interface: {0}")]
    Port(#[from] std::io::Error),
}

impl Report {
    /// How many cases were judged so.
    pub fn count(&self, verdict: Verdict) -> usize {
        let judged = |outcome: &&Outcome| outcome.verdict == verdict;
        self.cases.iter().filter(judged).count()
    }

    /// The report as a table, and what it comes to in the last line.
    pub fn text(&self) -> String {
        table::text(self)
    }
}

/// Runs all cases.
pub async fn check(check: &Check) -> Result<Report, CheckError> {
    let mut bench = Bench::of(check, &Situation::default()).await?;
    let world = bench.world;
    let mut outcomes = Vec::new();
    for case in cases::of_inputs() {
        let seen = bench.run(&case.calls).await?;
        outcomes.push(judge(&case, &seen));
    }
    outcomes.extend(bench.description(world).await);
    // Whoever never asked the server for anything does not post to `api_url`.
    let posts = bench.requests() > 0;
    for case in cases::of_answers() {
        outcomes.push(if posts {
            let seen = Bench::of(check, &case.situation)
                .await?
                .run(&case.calls)
                .await?;
            judge(&case, &seen)
        } else {
            Outcome {
                case: case.name,
                expected: case.expect.to_string(),
                got: format!("it sends nothing to its {}", check.url_key),
                verdict: Verdict::DoesNotApply,
            }
        });
    }
    Ok(Report {
        component: check.component.clone(),
        world: world.as_str(),
        cases: outcomes,
    })
}

fn judge(case: &Case, seen: &Seen) -> Outcome {
    let verdict = if case.expect.holds(seen) {
        Verdict::Passed
    } else {
        Verdict::Failed
    };
    Outcome {
        case: case.name,
        expected: case.expect.to_string(),
        got: seen.to_string(),
        verdict,
    }
}

/// A plugin in one situation: its server, and an instance that is replaced when it is dead.
struct Bench {
    plugin: WasmPlugin,
    slot: Option<WasmSlot>,
    server: Option<Server>,
    world: World,
    /// Indexes are given out once, as in a run.
    next_index: u64,
}

impl Bench {
    async fn of(check: &Check, situation: &Situation) -> Result<Self, CheckError> {
        let (server, origin) = match &situation.server {
            Some(behaviour) => {
                let server = Server::start(options(behaviour.clone())).await?;
                let origin = server.base_url.trim_end_matches('/').to_owned();
                (Some(server), origin)
            }
            None => (None, nobody()?),
        };
        let url = situation.has_url.then(|| ConfigValue {
            key: check.url_key.clone(),
            value: format!("{origin}/items"),
            secret: false,
        });
        let further = check.config.iter().map(|(key, value)| ConfigValue {
            key: key.clone(),
            value: value.clone(),
            secret: false,
        });
        let sandbox = SandboxConfig {
            allow_hosts: if situation.is_allowed {
                vec![origin]
            } else {
                Vec::new()
            },
            config: further.chain(url).collect(),
            call_timeout: Duration::from_secs(30),
            cache_dir: Some(check.cache_dir.clone()),
            compiler: own_program(),
            ..SandboxConfig::default()
        };
        let component = Component::load(&check.component, &sandbox)?;
        let world = component.world();
        let plugin = WasmPlugin::new(
            Arc::new(component),
            Job {
                label: "check".into(),
                run_id: "check".into(),
                key_salt: String::new(),
                services: Arc::new(Alone),
            },
        );
        let mut bench = Self {
            plugin,
            slot: None,
            server,
            world,
            next_index: 0,
        };
        bench.slot().await?;
        Ok(bench)
    }

    async fn slot(&mut self) -> Result<&mut WasmSlot, CheckError> {
        let slot = match self.slot.take() {
            Some(slot) if !slot.is_dead() => slot,
            _ => self.plugin.start_slot(0).await.map_err(CheckError::Start)?,
        };
        Ok(self.slot.insert(slot))
    }

    /// Makes the calls one after the other, until one does not answer. The last one is seen.
    async fn run(&mut self, calls: &[Call]) -> Result<Seen, CheckError> {
        let mut seen = Seen::default();
        for call in calls {
            let items = self.items(call);
            let before = self.stored();
            let report = self.call(&items).await?;
            let stored = self.stored();
            // Only what this call stored: keys may come again in another one.
            let grown = |key: &str| {
                let times = |all: &BTreeMap<String, u32>| all.get(key).copied().unwrap_or(0);
                times(&stored).saturating_sub(times(&before))
            };
            let times = stored.keys().map(|key| grown(key)).sum();
            let missing = items.iter().filter(|item| grown(&item.key()) == 0).count();
            seen.push(&items, report, times, missing);
            if seen.is_lost() {
                break;
            }
        }
        Ok(seen)
    }

    async fn call(&mut self, items: &[Item]) -> Result<CallReport, CheckError> {
        let info = CallInfo {
            label: "check".into(),
            run_id: "check".into(),
            call_number: 1,
            workers: 1,
            batch_size: u32::try_from(items.len()).unwrap_or(u32::MAX),
        };
        Ok(self.slot().await?.call(items, info).await)
    }

    fn items(&mut self, call: &Call) -> Vec<Item> {
        let first = self.next_index;
        self.next_index += call.items.len() as u64;
        (first..)
            .zip(&call.items)
            .map(|(index, item)| item.with(index))
            .collect()
    }

    /// How often the server stored each key.
    fn stored(&self) -> BTreeMap<String, u32> {
        let keys = self.server.iter().flat_map(Server::keys);
        keys.map(|entry| (entry.key.into_string(), entry.times))
            .collect()
    }

    fn requests(&self) -> u64 {
        self.server
            .as_ref()
            .map_or(0, |server| server.stats().requests)
    }

    /// Of a plugin that describes its batches: whether it describes one.
    async fn description(&mut self, world: World) -> Option<Outcome> {
        if world != World::DescribingBatch {
            return None;
        }
        let items = self.items(&cases::to_describe());
        let described = match self.slot().await {
            Ok(slot) => slot.describe(&items).await,
            Err(_) => None,
        };
        Some(Outcome {
            case: "describe a batch",
            expected: "a text, within a second".to_owned(),
            verdict: match described {
                Some(_) => Verdict::Passed,
                None => Verdict::Failed,
            },
            got: described.unwrap_or_else(|| "no text: it trapped, or took too long".to_owned()),
        })
    }
}

fn options(behaviour: Behaviour) -> Options {
    Options {
        behaviour,
        ..Options::default()
    }
}

/// An address on which nobody listens.
fn nobody() -> std::io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(format!("http://{}", listener.local_addr()?))
}

/// A job of one call at a time, whose limiter never waits.
struct Alone;

impl CallServices for Alone {
    fn report_breach(&self, _: Instant, retry_after: Option<Duration>) -> Duration {
        retry_after.unwrap_or(Duration::from_secs(60))
    }

    fn record_bytes(&self, _: u64) {}

    fn is_backing_off(&self) -> bool {
        false
    }

    async fn http_request(&self) {}
}
