//! `[sandbox]`: what a component may use and reach.

use std::path::{Path, PathBuf};

use super::error::Problem;
use super::filled::Filled;
use super::kind::{ENTRY, FilePath, Many, Optional, Own, Switch};
use super::number::{COUNT, REPEATS, TIMER, Whole};
use super::origin::{Entry, Origin};
use super::size::Size;
use super::table::table;

table! {
    /// What a component may use and reach. Limits are for each instance unless they say
    /// otherwise. By default a component reaches no network, no file and no environment.
    Sandbox = "sandbox";
    /// Most memory of one instance, its tables included.
    memory: u64 = 256 << 20, MEMORY;
    /// Seconds for one call, waiting included, except waits on the rate limit.
    call_timeout: f64 = 120.0, TIMER;
    /// Seconds that one call may compute; waiting for the host or the network is free.
    cpu_timeout: f64 = 10.0, TIMER;
    /// Calls after which an instance is replaced by a new one.
    max_calls_per_instance: Option<u64> = None, Optional(Whole::range(1, 1 << 50));
    /// An instance with more memory than this after a call is replaced by a new one; none: half
    /// of `memory`, so that one that leaks is replaced before it fails.
    max_instance_memory: Option<u64> = None, Optional(MEMORY);
    /// Calls in flight on one instance, for components of the async world.
    calls_per_instance: u32 = 1, COUNT;
    /// Stack of a call.
    max_stack: u64 = 1 << 20, Size::range(64 << 10, 64 << 20);
    /// Entries of one table.
    max_table_elements: u32 = 100_000, COUNT;
    /// Tables of one instance.
    max_tables: u32 = 100, COUNT;
    /// Core modules that make up one instance.
    max_instances: u32 = 100, COUNT;
    /// Handles to resources that are open at a time.
    max_resources: u32 = 1_000, COUNT;
    /// Size of a component file.
    max_component_bytes: u64 = 128 << 20, Size::range(1 << 10, 1 << 30);
    /// Memory that compiling a component may take; it has a process of its own.
    max_compile_memory: u64 = 2 << 30, Size::range(64 << 20, 64 << 30);
    /// Seconds that compiling a component may take; it has a process of its own.
    max_compile_time: f64 = 120.0, TIMER;
    /// Length of an error's text; the rest is cut off.
    max_error_bytes: u64 = 16 << 10, Size::range(64, 16 << 20);
    /// Entries of a partial answer; a longer one counts as a trap.
    max_partial_items: u32 = 100_000, COUNT;
    /// Length of a line that a component writes to the log; the rest is cut off.
    max_log_line: u64 = 8 << 10, Size::range(64, 1 << 20);
    /// Lines a second that a component writes to the log, all its instances together; the
    /// surplus is counted and said.
    max_log_lines_per_sec: u32 = 100, REPEATS;
    /// Headers of one HTTP request or response, together.
    max_header_bytes: u64 = 16 << 10, Size::range(1 << 10, 16 << 20);
    /// Random bytes in one request for them.
    max_random_bytes: u64 = 1 << 20, Size::range(64, 64 << 20);
    /// Where HTTP requests may go, such as `"https://api.example.com"`; nowhere unless listed.
    allow_hosts: Vec<Entry> = Vec::new(), Many(ENTRY);
    /// Further root certificates to trust, in PEM form.
    ca_file: Option<PathBuf> = None, Optional(FilePath);
    /// Seconds to reach a server, its TLS handshake included.
    connect_timeout: f64 = 10.0, TIMER;
    /// Seconds after which a connection that nobody uses is closed.
    idle_timeout: f64 = 60.0, TIMER;
    /// Connections to one host at a time, by all instances together.
    max_connections_per_host: u32 = 10_000, COUNT;
    /// Folders that a component sees, as `"HOST::GUEST"`, or `"HOST::GUEST::rw"` to let it
    /// write; `GUEST` is the absolute path that the component uses.
    dirs: Vec<Dir> = Vec::new(), Many(DIR);
    /// Names of the host's environment variables that a component sees.
    env: Vec<Entry> = Vec::new(), Many(VARIABLE);
    /// Whether a component may open sockets of its own: to the addresses and networks in
    /// `allow_hosts`, and to look up any name.
    sockets: bool = false, Switch;
}

/// From a page of WebAssembly memory to all that 32 bits address.
const MEMORY: Size = Size::range(64 << 10, 4 << 30);

/// A folder that a component sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dir {
    /// The folder on the host.
    pub host: PathBuf,
    /// Its absolute path inside the component.
    pub guest: String,
    /// Whether the component may write there.
    pub writable: bool,
    /// Where it was written.
    pub origin: Origin,
}

const DIR: Own<Dir> = Own {
    expects: "text such as \"data::/data\" or \"data::/data::rw\"",
    placeholder: "HOST::GUEST[::rw]",
    parse: |raw| {
        let text = raw.text().filter(|text| !text.contains('\0'))?;
        let (text, writable) = match text.strip_suffix("::rw") {
            Some(folders) => (folders, true),
            None => (text, false),
        };
        let (host, guest) = text.rsplit_once("::")?;
        let valid = !host.is_empty() && guest.starts_with('/');
        valid.then(|| Dir {
            host: raw.origin.resolve(Path::new(host)),
            guest: guest.to_owned(),
            writable,
            origin: raw.origin.clone(),
        })
    },
    show: |dir| {
        let suffix = if dir.writable { "::rw" } else { "" };
        format!(
            "{:?}",
            format!("{}::{}{suffix}", dir.host.display(), dir.guest)
        )
    },
};

const VARIABLE: Own<Entry> = Own {
    expects: "the name of an environment variable",
    placeholder: "NAME",
    parse: |raw| {
        let text = raw.text().filter(|text| is_variable_name(text))?;
        Some(Entry {
            text: text.to_owned(),
            origin: raw.origin.clone(),
        })
    },
    show: ENTRY.show,
};

/// What the operating system allows in a name; anything else cannot be looked up.
pub(super) fn is_variable_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}

impl Sandbox {
    pub(super) fn check(&self, filled: &Filled, problems: &mut Vec<Problem>) {
        for (n, dir) in self.dirs.iter().enumerate() {
            if self.dirs[..n]
                .iter()
                .any(|earlier| earlier.guest == dir.guest)
            {
                let message = format!(
                    "{:?} is given twice; give each folder a path of its own",
                    dir.guest
                );
                problems.push(filled.problem("sandbox", &["dirs"], message));
            }
        }
    }
}
