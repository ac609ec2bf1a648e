//! Loads a component: reads it, compiles it, and makes sure that it fits a world and asks for
//! nothing that the host does not have.
//!
//! Invariant: loading runs no code of the guest.

use super::bindings;
use super::cache::{self, Cache, CacheError};
use super::compile::{Limits, compile, compile_apart};
use super::engine::{Settings, engine, tick};
use super::http::{AllowError, AllowList, CaError, ClientPlan};
use super::linker::linker;
use super::sandbox::SandboxConfig;
use super::size::size;
use super::state::State;
use super::text;
use super::world::{Unfit, World, one_line};
use crate::regular;
use crate::report::log::escape_line;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use thiserror::Error;
use wasmtime::component::{Component as Code, ComponentExportIndex, InstancePre};
use wasmtime::{Engine, component};

/// A component that is ready to make instances, with what its job allows it.
pub struct Component {
    pub(super) path: PathBuf,
    pub(super) engine: Engine,
    pub(super) sandbox: Arc<SandboxConfig>,
    pub(super) client: ClientPlan,
    pub(super) env: Vec<(String, String)>,
    pub(super) exports: Exports,
    world: World,
    digest: String,
    pub(super) settings: Settings,
    code: Code,
}

/// How an instance's exports are found.
#[derive(Clone)]
pub(super) enum Exports {
    Sync(SyncExports),
    Async(AsyncExports),
}

/// How the exports of a component of the sync world are found.
#[derive(Clone)]
pub(super) struct SyncExports {
    pub(super) pre: InstancePre<State>,
    pub(super) processor: bindings::processor::GuestIndices,
    pub(super) describer: Option<bindings::describer::GuestIndices>,
    /// Whether the component asks for `call-info`, whose idempotency key costs every call.
    pub(super) asks_call: bool,
}

/// How the export of a component of the async world is found.
#[derive(Clone)]
pub(super) struct AsyncExports {
    pub(super) pre: InstancePre<State>,
    pub(super) process: ComponentExportIndex,
    /// See [`SyncExports`].
    pub(super) asks_call: bool,
}

/// A component cannot be used. The text is one line that says what to do.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("component {}: {problem}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// The file is larger than is allowed.
    #[error("component {}: has {} bytes, more than {} (max_component_bytes)", path.display(), bytes, size(*limit))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The file is no component.
    #[error("component {}: {problem}", path.display())]
    NotComponent {
        /// The file.
        path: PathBuf,
        /// What it is.
        problem: String,
    },
    /// The component fits no world.
    #[error("component {}: {unfit}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why.
        unfit: Unfit,
    },
    /// The component imports what the host does not offer.
    #[error("component {}: imports {import}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// The import, and what the host offers instead.
        import: String,
    },
    /// `allow_hosts` cannot be read.
    #[error(transparent)]
    Allow(#[from] AllowError),
    /// `ca_file` cannot be used.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// A variable of `env` is not there.
    #[error("env: the environment variable {0:?} {1}")]
    Env(String, &'static str),
    /// A folder of `dirs` is not there.
    #[error("dirs: {}: {problem}", path.display())]
    Dir {
        /// The folder.
        path: PathBuf,
        /// Why.
        problem: io::Error,
    },
    /// The engine cannot be set up so.
    #[error("sandbox: {0}")]
    Engine(String),
}

impl Component {
    /// Loads a component, binary or text (`.wat`).
    pub fn load(path: &Path, sandbox: &SandboxConfig) -> Result<Self, LoadError> {
        let allow = Arc::new(AllowList::parse(&sandbox.allow_hosts)?);
        let client = ClientPlan::new(allow, sandbox)?;
        let env = environment(&sandbox.env)?;
        for dir in &sandbox.dirs {
            let readable = std::fs::read_dir(&dir.host).map(drop);
            readable.map_err(|problem| LoadError::Dir {
                path: dir.host.clone(),
                problem,
            })?;
        }

        let bytes = read(path, sandbox.max_component_bytes)?;
        check_kind(path, &bytes)?;
        let settings = Settings::new(sandbox, bytes.len(), World::may_be_async(&bytes));
        let engine = engine(settings)
            .and_then(|engine| tick(&engine).map(|()| engine))
            .map_err(|error| LoadError::Engine(one_line(&error)))?;
        let digest = hex(&Sha256::digest(&bytes));
        let code = code(path, &engine, settings, sandbox, &digest, &bytes)?;
        let world =
            World::of(&code.component_type(), &engine).map_err(|unfit| LoadError::Unfit {
                path: path.to_owned(),
                unfit,
            })?;
        let exports = exports(path, &engine, &code, world)?;
        Ok(Self {
            path: path.to_owned(),
            engine,
            sandbox: Arc::new(sandbox.clone()),
            client,
            env,
            exports,
            world,
            digest,
            settings,
            code,
        })
    }

    /// The world that it was built for.
    pub fn world(&self) -> World {
        self.world
    }

    /// The SHA-256 of the file, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    pub(super) fn component_type(&self) -> component::types::Component {
        self.code.component_type()
    }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let error = |problem| LoadError::Read {
        path: path.to_owned(),
        problem,
    };
    let file = regular::open(path).map_err(error)?;
    let metadata = file.metadata().map_err(error)?;
    let too_large = |bytes| LoadError::TooLarge {
        path: path.to_owned(),
        bytes,
        limit,
    };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    // The file may grow.
    let mut bytes = Vec::new();
    io::Read::read_to_end(
        &mut io::Read::take(file, limit.saturating_add(1)),
        &mut bytes,
    )
    .map_err(error)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

/// Says what a file is that is no component.
fn check_kind(path: &Path, bytes: &[u8]) -> Result<(), LoadError> {
    let not_component = |problem: String| LoadError::NotComponent {
        path: path.to_owned(),
        problem,
    };
    let problem = match bytes {
        [] => "is empty",
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => {
            "is a core WebAssembly module, not a component; build it for a component target (wasm32-wasip2), \
             or wrap it with `wasm-tools component new`"
        }
        [0, b'a', b's', b'm', ..] => return Ok(()),
        bytes => match std::str::from_utf8(bytes).map(str::trim_start) {
            Ok(text) if text.starts_with("(module") => {
                "is a core WebAssembly module in text form, not a component"
            }
            Ok(text) if text.starts_with('(') || text.starts_with(";;") => {
                if bytes.len() > MAX_TEXT {
                    return Err(not_component(format!(
                        "is text of {} bytes, and text is read up to {}; make it binary first: \
                         wasm-tools parse FILE.wat -o FILE.wasm",
                        bytes.len(),
                        size(MAX_TEXT as u64)
                    )));
                }
                return Ok(());
            }
            _ => "is not WebAssembly: neither a binary component nor the text of one",
        },
    };
    Err(not_component(problem.to_owned()))
}

/// Reading text can take time that grows with the square of its length.
const MAX_TEXT: usize = 1 << 20;

/// The component's code: compiled at a former start, or now.
fn code(
    path: &Path,
    engine: &Engine,
    settings: Settings,
    sandbox: &SandboxConfig,
    digest: &str,
    bytes: &[u8],
) -> Result<Code, LoadError> {
    let mut cache = sandbox.cache_dir.as_deref().map(Cache::new);
    match cache.as_ref().map(|cache| cache.load(engine, digest)) {
        Some(Ok(Some(code))) => return Ok(code),
        Some(Ok(None)) | None => {}
        Some(Err(error)) => {
            say_cache(&error);
            // It would only fail again.
            cache = None;
        }
    }
    let unfit = |problem: String| LoadError::NotComponent {
        path: path.to_owned(),
        problem,
    };
    // Jobs that start together often have the same component.
    let turn = turn_to_compile(digest);
    let _turn = cache
        .is_some()
        .then(|| turn.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(Ok(Some(code))) = cache.as_ref().map(|cache| cache.load(engine, digest)) {
        return Ok(code);
    }
    let artifact = match &sandbox.compiler {
        Some(program) => compile_apart(program, path, bytes, settings, &Limits::of(sandbox)),
        None => compile(bytes, settings),
    };
    let artifact = artifact.map_err(unfit)?;
    if let Some(cache) = &cache {
        // Taken from there, it need not be in memory as a whole.
        let stored = cache
            .store(engine, digest, &artifact)
            .and_then(|()| cache.load(engine, digest));
        match stored {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => {}
            Err(error) => say_cache(&error),
        }
    }
    cache::deserialize(engine, &artifact).map_err(|error| unfit(one_line(&error)))
}

/// Held while a component of that digest is compiled. Others do not wait for it: a hostile one takes as long as it may.
fn turn_to_compile(digest: &str) -> Arc<Mutex<()>> {
    static TURNS: LazyLock<Mutex<HashMap<String, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    Arc::clone(turns.entry(digest.to_owned()).or_default())
}

/// A cache that does not work only costs time.
fn say_cache(error: &CacheError) {
    tracing::warn!(target: "batchgate::cache", "compiled code is not cached: {error}");
}

fn exports(path: &Path, engine: &Engine, code: &Code, world: World) -> Result<Exports, LoadError> {
    let own = |error: wasmtime::Error| LoadError::Engine(one_line(&error));
    let linker = linker(engine, world).map_err(own)?;
    let component = code.component_type();
    let pre = linker
        .instantiate_pre(code)
        .map_err(|error| LoadError::Import {
            path: path.to_owned(),
            import: unknown_import(engine, &component, world, &error),
        })?;
    let asks_call = component
        .imports(engine)
        .any(|(name, _)| name.starts_with("batchgate:batch/call@"));
    if world.is_async() {
        let process = World::async_processor(&component, engine)
            .and_then(|name| code.get_export_index(None, &name))
            .and_then(|processor| code.get_export_index(Some(&processor), "process-batch"))
            .ok_or_else(|| LoadError::Engine("the async processor is gone".to_owned()))?;
        return Ok(Exports::Async(AsyncExports {
            pre,
            process,
            asks_call,
        }));
    }
    let processor = bindings::processor::GuestIndices::new(&pre).map_err(own)?;
    let describer = match world {
        World::DescribingBatch => Some(bindings::describer::GuestIndices::new(&pre).map_err(own)?),
        World::Batch | World::AsyncBatch => None,
    };
    Ok(Exports::Sync(SyncExports {
        pre,
        processor,
        describer,
        asks_call,
    }))
}

/// Which import an error of the linker is about, and what is wrong with it.
fn unknown_import(
    engine: &Engine,
    component: &component::types::Component,
    world: World,
    error: &wasmtime::Error,
) -> String {
    let text = error.to_string();
    let Some((name, _)) = component
        .imports(engine)
        .find(|(name, _)| text.contains(&format!("`{name}`")))
    else {
        return one_line(error);
    };
    let details: Vec<_> = error
        .chain()
        .skip(1)
        .map(|cause| cause.to_string())
        .collect();
    let details = if details.is_empty() {
        String::new()
    } else {
        format!(" ({})", details.join(": "))
    };
    let wasi = if world.is_async() {
        "WASI 0.2 and 0.3"
    } else {
        "WASI 0.2"
    };
    let line = format!(
        "{name}, which this host does not offer{details}; it offers batchgate:batch@0.1.0, {wasi} and \
         wasi:config/store@0.2.0-rc.1"
    );
    text::cut(escape_line(&line).into_owned(), 1000, 0)
}

fn environment(names: &[String]) -> Result<Vec<(String, String)>, LoadError> {
    let value = |name: &String| match std::env::var(name) {
        Ok(value) => Ok((name.clone(), value)),
        Err(std::env::VarError::NotPresent) => Err(LoadError::Env(name.clone(), "is not set")),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(LoadError::Env(name.clone(), "is not valid UTF-8"))
        }
    };
    names.iter().map(value).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
