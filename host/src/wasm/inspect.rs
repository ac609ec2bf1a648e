//! Says what a component is: its world, what it asks for, and what its job would have to allow.

use super::component::{Component, LoadError};
use super::sandbox::SandboxConfig;
use super::size::{seconds, size};
use super::state::MAX_ANSWER_BYTES;
use crate::report::log::escape_line;
use serde::Serialize;
use std::path::Path;
use wasmtime::component::types::ComponentItem;

/// What a component is.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// The world it was built for.
    pub world: &'static str,
    /// The interfaces and functions that it exports.
    pub exports: Vec<String>,
    /// The interfaces and functions that it imports.
    pub imports: Vec<String>,
    /// The settings without which some of its imports do nothing.
    pub needs: Vec<&'static str>,
}

/// A setting that an import may need.
struct Need {
    setting: &'static str,
    /// How the names of such imports begin.
    imports: &'static [&'static str],
    /// What the import does where the job says nothing.
    without: &'static str,
}

const NEEDS: [Need; 5] = [
    Need {
        setting: "allow_hosts",
        imports: &["wasi:http/outgoing-handler@", "wasi:http/client@"],
        without: "every request is denied",
    },
    Need {
        setting: "config",
        imports: &["wasi:config/store"],
        without: "no key has a value",
    },
    Need {
        setting: "dirs",
        imports: &["wasi:filesystem/preopens"],
        without: "there are no files",
    },
    Need {
        setting: "env",
        imports: &["wasi:cli/environment"],
        without: "there are no variables",
    },
    Need {
        setting: "sockets",
        imports: &["wasi:sockets/"],
        without: "every connection is denied",
    },
];

impl Inspection {
    /// Loads a component to look at it. Runs none of its code.
    pub fn of(path: &Path, sandbox: &SandboxConfig) -> Result<Self, LoadError> {
        let component = Component::load(path, sandbox)?;
        let ty = component.component_type();
        let names = |(name, item): (&str, ComponentItem)| match item {
            // Types give names to what interfaces use, and ask for nothing.
            ComponentItem::Type(_) => None,
            _ => Some(escape_line(name).into_owned()),
        };
        let engine = &component.engine;
        let exports = ty
            .exports(engine)
            .filter_map(|(name, item)| names((name, item.ty)))
            .collect();
        let imports: Vec<String> = ty
            .imports(engine)
            .filter_map(|(name, item)| names((name, item.ty)))
            .collect();
        let needed = |need: &&Need| {
            let named = |name: &&str| imports.iter().any(|import| import.starts_with(name));
            need.imports.iter().any(named)
        };
        let needs = NEEDS
            .iter()
            .filter(needed)
            .map(|need| need.setting)
            .collect();
        Ok(Self {
            world: component.world().as_str(),
            exports,
            imports,
            needs,
        })
    }

    /// The same for people, with the limits that the component would run under.
    pub fn text(&self, sandbox: &SandboxConfig) -> String {
        let mut lines = vec![format!("world    {}", self.world)];
        list(&mut lines, "exports", self.exports.iter().cloned());
        list(&mut lines, "imports", self.imports.iter().cloned());
        let needs = NEEDS
            .iter()
            .filter(|need| self.needs.contains(&need.setting));
        list(
            &mut lines,
            "needs",
            needs.map(|need| format!("{:<12} without it {}", need.setting, need.without)),
        );
        list(
            &mut lines,
            "limits",
            limits(sandbox)
                .into_iter()
                .map(|(key, value)| format!("{key:<24} {value}")),
        );
        lines.join("\n")
    }
}

/// Appends a list under a heading that stands in its first line.
fn list(lines: &mut Vec<String>, heading: &str, items: impl Iterator<Item = String>) {
    let mut heading = heading;
    for item in items {
        lines.push(format!("{heading:<8} {item}"));
        heading = "";
    }
    if !heading.is_empty() {
        lines.push(format!("{heading:<8} (none)"));
    }
}

/// The limits by their keys.
fn limits(sandbox: &SandboxConfig) -> Vec<(&'static str, String)> {
    let count = |number: u64| number.to_string();
    vec![
        ("memory", size(sandbox.memory)),
        ("call_timeout", seconds(sandbox.call_timeout)),
        ("cpu_timeout", seconds(sandbox.cpu_timeout)),
        ("max_stack", size(sandbox.max_stack as u64)),
        (
            "max_table_elements",
            count(sandbox.max_table_elements as u64),
        ),
        ("max_tables", count(sandbox.max_tables as u64)),
        ("max_instances", count(sandbox.max_instances as u64)),
        ("max_resources", count(sandbox.max_resources as u64)),
        (
            "max_calls_per_instance",
            sandbox
                .max_calls_per_instance
                .map_or_else(|| "none".to_owned(), count),
        ),
        (
            "calls_per_instance",
            count(sandbox.calls_per_instance.into()),
        ),
        ("max_instance_memory", size(sandbox.recycle_above())),
        ("max_component_bytes", size(sandbox.max_component_bytes)),
        ("max_compile_memory", size(sandbox.max_compile_memory)),
        ("max_compile_time", seconds(sandbox.max_compile_time)),
        ("max_error_bytes", size(sandbox.max_error_bytes as u64)),
        ("max_partial_items", count(sandbox.max_partial_items as u64)),
        ("max_log_line", size(sandbox.max_log_line as u64)),
        (
            "max_log_lines_per_sec",
            count(sandbox.max_log_lines_per_sec.into()),
        ),
        ("max_header_bytes", size(sandbox.max_header_bytes as u64)),
        ("max_random_bytes", size(sandbox.max_random_bytes)),
        ("connect_timeout", seconds(sandbox.connect_timeout)),
        ("idle_timeout", seconds(sandbox.idle_timeout)),
        (
            "max_connections_per_host",
            count(sandbox.max_connections_per_host as u64),
        ),
        ("an answer in all", size(MAX_ANSWER_BYTES as u64)),
    ]
}
