//! Reads off a component's exports and imports which world it was built for, and what it lacks
//! if it fits none.

use super::bindings::types::{BatchError, Item};
use crate::report::log::escape_line;
use std::fmt;
use wasmtime::Engine;
use wasmtime::component::types::{Component, ComponentFunc, ComponentInstance, ComponentItem};

/// The package's version that this host offers.
const VERSION: &str = "0.1.0";
const PACKAGE: &str = "batchgate:batch/";

/// A world that the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// `batch-processor`.
    Batch,
    /// `describing-batch-processor`.
    DescribingBatch,
    /// `async-batch-processor`.
    AsyncBatch,
}

impl World {
    /// Its name in the WIT.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Batch => "batch-processor",
            Self::DescribingBatch => "describing-batch-processor",
            Self::AsyncBatch => "async-batch-processor",
        }
    }

    pub(super) fn is_async(self) -> bool {
        self == Self::AsyncBatch
    }

    /// Whether the bytes of a component may be of the async world, which needs another engine. An
    /// export's name stands in them as it is.
    pub(super) fn may_be_async(bytes: &[u8]) -> bool {
        let has = |name: &str| {
            memchr::memmem::find(bytes, format!("{PACKAGE}{name}@").as_bytes()).is_some()
        };
        has("async-processor") && !has("processor")
    }

    /// The full name of the async processor that a component exports.
    pub(super) fn async_processor(component: &Component, engine: &Engine) -> Option<String> {
        let full = format!("{PACKAGE}async-processor@");
        let mut names = component.exports(engine).map(|(name, _)| name);
        names
            .find(|name| name.starts_with(&full))
            .map(str::to_owned)
    }

    /// Finds the world.
    pub(super) fn of(component: &Component, engine: &Engine) -> Result<Self, Unfit> {
        let sync = find(component, engine, "processor")?;
        let asynchronous = find(component, engine, "async-processor")?;
        if sync.is_none() && asynchronous.is_none() {
            return Err(Unfit::NoProcessor {
                found: exports(component, engine),
            });
        }
        if let Some(processor) = sync {
            let function = function(engine, &processor, "processor", "process-batch")?;
            check::<(&[Item<'_>],), (Result<u64, BatchError>,)>(
                component,
                "processor",
                "process-batch",
                &function,
            )?;
            let Some(describer) = find(component, engine, "describer")? else {
                return Ok(Self::Batch);
            };
            let function = self::function(engine, &describer, "describer", "describe-batch")?;
            check::<(&[Item<'_>],), (String,)>(
                component,
                "describer",
                "describe-batch",
                &function,
            )?;
            return Ok(Self::DescribingBatch);
        }
        if let Some(processor) = asynchronous {
            let function = function(engine, &processor, "async-processor", "process-batch")?;
            check::<(&[Item<'_>],), (Result<u64, BatchError>,)>(
                component,
                "async-processor",
                "process-batch",
                &function,
            )?;
        }
        Ok(Self::AsyncBatch)
    }
}

/// Why a component fits no world.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It exports no processor.
    NoProcessor {
        /// What it exports.
        found: Vec<String>,
    },
    /// It exports one of another version.
    Version {
        /// The export.
        found: String,
    },
    /// An export is there and is something else.
    Export {
        /// The interface.
        interface: &'static str,
        /// What is wrong.
        problem: String,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcessor { found } => {
                write!(
                    f,
                    "exports no {PACKAGE}processor@{VERSION} (nor {PACKAGE}async-processor@{VERSION}); it exports "
                )?;
                match found.as_slice() {
                    [] => f.write_str("nothing"),
                    found => f.write_str(&super::text::cut(found.join(", "), 1000, 0)),
                }
            }
            Self::Version { found } => {
                write!(
                    f,
                    "exports {found}, and this host runs version {VERSION} of {PACKAGE}*; build it against that WIT"
                )
            }
            Self::Export { interface, problem } => {
                write!(f, "exports {PACKAGE}{interface}@{VERSION}, but {problem}")
            }
        }
    }
}

fn exports(component: &Component, engine: &Engine) -> Vec<String> {
    component
        .exports(engine)
        .map(|(name, _)| escape_line(name).into_owned())
        .collect()
}

/// The exported interface of this name, if there is one.
fn find(
    component: &Component,
    engine: &Engine,
    interface: &'static str,
) -> Result<Option<ComponentInstance>, Unfit> {
    let full = format!("{PACKAGE}{interface}");
    for (name, item) in component.exports(engine) {
        let Some((name_without, version)) = name.split_once('@') else {
            continue;
        };
        if name_without != full {
            continue;
        }
        // 0.1.1 may come to add to 0.1.0, and is then still what we run.
        if version != VERSION && !version.starts_with("0.1.") {
            return Err(Unfit::Version {
                found: escape_line(name).into_owned(),
            });
        }
        return match item.ty {
            ComponentItem::ComponentInstance(instance) => Ok(Some(instance)),
            other => Err(Unfit::Export {
                interface,
                problem: format!("it is {} and no interface", kind(&other)),
            }),
        };
    }
    Ok(None)
}

fn function(
    engine: &Engine,
    instance: &ComponentInstance,
    interface: &'static str,
    name: &str,
) -> Result<ComponentFunc, Unfit> {
    match instance.get_export(engine, name).map(|item| item.ty) {
        Some(ComponentItem::ComponentFunc(function)) => Ok(function),
        Some(other) => Err(Unfit::Export {
            interface,
            problem: format!("its {name} is {}", kind(&other)),
        }),
        None => Err(Unfit::Export {
            interface,
            problem: format!("without {name}"),
        }),
    }
}

fn check<Params, Return>(
    component: &Component,
    interface: &'static str,
    name: &str,
    function: &ComponentFunc,
) -> Result<(), Unfit>
where
    Params: wasmtime::component::ComponentNamedList + wasmtime::component::Lower,
    Return: wasmtime::component::ComponentNamedList + wasmtime::component::Lift,
{
    function
        .typecheck::<Params, Return>(&component.instance_type())
        .map_err(|error| Unfit::Export {
            interface,
            problem: format!(
                "its {name} has another type than this host's: {}",
                one_line(&error)
            ),
        })
}

/// An error with its causes in a line.
pub(super) fn one_line(error: &wasmtime::Error) -> String {
    let causes: Vec<_> = error.chain().map(|cause| cause.to_string()).collect();
    // Some are laid out over several lines.
    let words: Vec<_> = causes
        .iter()
        .map(|cause| cause.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    super::text::cut(escape_line(&words.join(": ")).into_owned(), 1000, 0)
}

fn kind(item: &ComponentItem) -> &'static str {
    match item {
        ComponentItem::ComponentFunc(_) | ComponentItem::CoreFunc(_) => "a function",
        ComponentItem::Module(_) => "a core module",
        ComponentItem::Component(_) => "a component",
        ComponentItem::ComponentInstance(_) => "an interface",
        ComponentItem::Type(_) => "a type",
        ComponentItem::Resource(_) => "a resource",
    }
}
