//! Scenarios: a server, how it changes, and a job that is run against it; read from JSON.
//!
//! Invariant: a scenario that was read can be simulated to its end, whatever the controller
//! does within its bounds.

use std::io;
use std::path::{Path, PathBuf};

use batchgate_policy::controller::Config;
use serde_json::Value;

use super::fields::Fields;
use super::server::{Server, Shape};

/// One scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// The server at the start.
    pub server: Server,
    /// The server from a virtual time on, in seconds; in the order of time.
    pub changes: Vec<(f64, Server)>,
    /// What is run against it.
    pub job: Job,
}

/// A job: so many items, and how it is tuned.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Items to do.
    pub items: u32,
    /// Start and bounds; the constants are the defaults.
    pub config: Config,
}

impl Job {
    /// Most workers.
    pub fn max_workers(&self) -> u32 {
        self.config.max_workers.unwrap_or(self.config.workers)
    }

    /// Most items in a batch.
    pub fn max_batch_size(&self) -> u32 {
        self.config.max_batch_size.unwrap_or(self.config.batch_size)
    }
}

/// A scenario file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{}: {reason}", path.display())]
    NoScenarios {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A scenario is not what it should be.
    #[error("{}: scenario {name}: {reason}", path.display())]
    Scenario {
        /// The file.
        path: PathBuf,
        /// Its name, or its place in the file if it has none.
        name: String,
        /// The field, and what is wrong with it.
        reason: String,
    },
}

/// Levels and sizes beyond it are no scenario but a slip of the pen.
const MOST_WORKERS: u32 = 100_000;
const MOST_BATCH_SIZE: u32 = 10_000_000;
const MOST_ITEMS: u32 = 1_000_000_000;
const MOST_SECONDS: f64 = 1e6;

impl Scenario {
    /// Reads a file: a list of scenarios, at least one.
    pub fn load(path: &Path) -> Result<Vec<Self>, ScenarioError> {
        let read = || {
            let mut text = Vec::new();
            io::Read::read_to_end(&mut crate::regular::open(path)?, &mut text)?;
            Ok(text)
        };
        let text = read().map_err(|source| ScenarioError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    /// Reads what a file holds; the path is for messages.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Vec<Self>, ScenarioError> {
        let no_scenarios = |reason| ScenarioError::NoScenarios {
            path: path.to_owned(),
            reason,
        };
        let values: Vec<Value> = serde_json::from_slice(text)
            .map_err(|error| no_scenarios(format!("is not a JSON list of scenarios: {error}")))?;
        if values.is_empty() {
            return Err(no_scenarios("has no scenario in it".to_owned()));
        }
        let mut scenarios: Vec<Self> = Vec::with_capacity(values.len());
        for (number, value) in (1..).zip(values) {
            let name = match value.get("name") {
                Some(Value::String(name)) => format!("{name:?}"),
                _ => format!("number {number}"),
            };
            let refused = |reason| ScenarioError::Scenario {
                path: path.to_owned(),
                name: name.clone(),
                reason,
            };
            let scenario = read(value).map_err(refused)?;
            if scenarios.iter().any(|other| other.name == scenario.name) {
                return Err(refused("name: another scenario has it too".to_owned()));
            }
            scenarios.push(scenario);
        }
        Ok(scenarios)
    }
}

fn read(value: Value) -> Result<Scenario, String> {
    let mut fields = Fields::new("", value)?;
    let name = fields.text("name")?;
    let name = fields.needed("name", name)?;
    let server = fields.value("server");
    let server = read_server(fields.needed("server", server)?)?;
    let job = fields.value("job");
    let job = read_job(fields.needed("job", job)?)?;
    let mut changes: Vec<(f64, Server)> = Vec::new();
    match fields.value("changes") {
        None => {}
        Some(Value::Array(values)) => {
            for (number, value) in values.into_iter().enumerate() {
                let path = format!("changes[{number}]");
                let (before, last) = match changes.last() {
                    Some((at, server)) => (*at, server),
                    None => (0.0, &server),
                };
                let change = read_change(&path, value, last)?;
                if change.0 < before {
                    return Err(format!("{path}.at: must not be before the change above it"));
                }
                changes.push(change);
            }
        }
        Some(_) => return Err("changes: must be a list".to_owned()),
    }
    fields.finish()?;

    // Otherwise no controller could ever get a batch through.
    let servers = std::iter::once(&server).chain(changes.iter().map(|(_, server)| server));
    for server in servers {
        if server.rejects(job.config.min_batch_size) {
            return Err(format!(
                "job.min_batch_size: {} is above a max_batch of the server",
                job.config.min_batch_size
            ));
        }
    }
    Ok(Scenario {
        name,
        server,
        changes,
        job,
    })
}

fn read_server(value: Value) -> Result<Server, String> {
    let mut fields = Fields::new("server", value)?;
    let unset = Server {
        shape: Shape::Knee,
        knee: f64::NAN,
        slope: 0.0,
        overhead: 0.0,
        per_item: 0.0,
        sigma: 0.0,
        straggler_p: 0.0,
        straggler_x: 1.0,
        max_batch: None,
        reject_seconds: 0.0,
    };
    for key in ["shape", "knee"] {
        fields.required(key)?;
    }
    let server = read_server_fields(&mut fields, &unset)?;
    fields.finish()?;
    check_server("server", &server)?;
    Ok(server)
}

fn read_change(path: &str, value: Value, before: &Server) -> Result<(f64, Server), String> {
    let mut fields = Fields::new(path, value)?;
    let at = fields.number("at", 0.0..=MOST_SECONDS)?;
    let at = fields.needed("at", at)?;
    let server = read_server_fields(&mut fields, before)?;
    fields.finish()?;
    check_server(path, &server)?;
    Ok((at, server))
}

/// The fields of a server; what is not there stays as it was before.
fn read_server_fields(fields: &mut Fields, before: &Server) -> Result<Server, String> {
    let shape = match fields.text("shape")?.as_deref() {
        None => before.shape,
        Some("knee") => Shape::Knee,
        Some("plateau") => Shape::Plateau,
        Some("concave") => Shape::Concave,
        Some(other) => {
            return Err(format!(
                "{}: must be knee, plateau or concave, not {other:?}",
                fields.path("shape")
            ));
        }
    };
    Ok(Server {
        shape,
        knee: fields.number("knee", 0.001..=1e6)?.unwrap_or(before.knee),
        slope: fields.number("slope", 0.0..=1e6)?.unwrap_or(before.slope),
        overhead: fields
            .number("overhead", 0.0..=MOST_SECONDS)?
            .unwrap_or(before.overhead),
        per_item: fields
            .number("per_item", 0.0..=MOST_SECONDS)?
            .unwrap_or(before.per_item),
        sigma: fields.number("sigma", 0.0..=5.0)?.unwrap_or(before.sigma),
        straggler_p: fields
            .number("straggler_p", 0.0..=1.0)?
            .unwrap_or(before.straggler_p),
        straggler_x: fields
            .number("straggler_x", 0.001..=1e6)?
            .unwrap_or(before.straggler_x),
        max_batch: fields
            .count("max_batch", MOST_BATCH_SIZE)?
            .or(before.max_batch),
        reject_seconds: fields
            .number("reject_seconds", 0.0..=MOST_SECONDS)?
            .unwrap_or(before.reject_seconds),
    })
}

fn check_server(path: &str, server: &Server) -> Result<(), String> {
    // Time must pass, or no rate is defined.
    if server.overhead + server.per_item < 1e-9 {
        return Err(format!(
            "{path}.per_item: overhead and per_item together must be at least 0.000000001 s"
        ));
    }
    Ok(())
}

fn read_job(value: Value) -> Result<Job, String> {
    let mut fields = Fields::new("job", value)?;
    let items = fields.count("items", MOST_ITEMS)?;
    let items = fields.needed("items", items)?;
    let workers = fields.count("workers", MOST_WORKERS)?;
    let batch_size = fields.count("batch_size", MOST_BATCH_SIZE)?;
    let defaults = Config::default();
    let config = Config {
        workers: fields.needed("workers", workers)?,
        max_workers: fields.count("max_workers", MOST_WORKERS)?,
        min_workers: fields
            .count("min_workers", MOST_WORKERS)?
            .unwrap_or(defaults.min_workers),
        batch_size: fields.needed("batch_size", batch_size)?,
        max_batch_size: fields.count("max_batch_size", MOST_BATCH_SIZE)?,
        min_batch_size: fields
            .count("min_batch_size", MOST_BATCH_SIZE)?
            .unwrap_or(defaults.min_batch_size),
        batch_step: fields.count("batch_step", MOST_BATCH_SIZE)?,
        max_batch_seconds: fields.number("max_batch_seconds", 1e-9..=MOST_SECONDS)?,
        ..defaults
    };
    fields.finish()?;
    let job = Job { items, config };
    for (key, minimum, maximum) in [
        ("min_workers", job.config.min_workers, job.max_workers()),
        (
            "min_batch_size",
            job.config.min_batch_size,
            job.max_batch_size(),
        ),
    ] {
        if minimum > maximum {
            return Err(format!(
                "job.{key}: {minimum} is above the maximum, {maximum}"
            ));
        }
    }
    Ok(job)
}
