//! Compiles a component, in a process of its own where that can be had.
//!
//! A component can be written so that compiling it takes any amount of memory and time. The
//! process that does it has limits on both, and its end is not the host's.

use super::engine::{Settings, engine};
use super::sandbox::SandboxConfig;
use super::size::size;
use super::world::one_line;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How much of what the process says is kept.
const MAX_SAID: u64 = 64 << 10;

/// Compiling that takes longer is spoken of.
const SAID_AFTER: Duration = Duration::from_secs(2);

/// What the process may take.
pub(super) struct Limits {
    memory: u64,
    time: Duration,
}

impl Limits {
    pub(super) fn of(sandbox: &SandboxConfig) -> Self {
        Self {
            memory: sandbox.max_compile_memory,
            time: sandbox.max_compile_time,
        }
    }

    /// The process ends itself after so many CPU seconds, should nobody be left to end it.
    fn cpu_seconds(&self) -> u64 {
        let threads =
            std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
        self.time
            .as_secs()
            .saturating_add(1)
            .saturating_mul(threads)
    }
}

/// Compiles here and now. The error is what is wrong with the component.
pub(super) fn compile(bytes: &[u8], settings: Settings) -> Result<Vec<u8>, String> {
    let engine = engine(settings).map_err(|error| one_line(&error))?;
    let compiled = engine.precompile_component(bytes);
    compiled.map_err(|error| {
        format!(
            "is not a component that this host can run: {}",
            one_line(&error)
        )
    })
}

/// This very program as one that compiles. For the program alone: another's has no such command.
pub(crate) fn own_program() -> Option<PathBuf> {
    // The file that runs, even if another has taken its place since.
    if cfg!(target_os = "linux") {
        return Some("/proc/self/exe".into());
    }
    std::env::current_exe().ok()
}

/// Compiles in a process: `program compile`, which ends up in [`compile_for_parent`].
pub(super) fn compile_apart(
    program: &Path,
    path: &Path,
    bytes: &[u8],
    settings: Settings,
    limits: &Limits,
) -> Result<Vec<u8>, String> {
    let problem =
        |problem: io::Error| format!("cannot be compiled: {}: {problem}", program.display());
    let mut command = Command::new(program);
    command
        .arg("compile")
        .args(settings.arguments())
        .arg(limits.memory.to_string())
        .arg(limits.cpu_seconds().to_string());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(problem)?;
    let (input, mut output, errors) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut artifact = Vec::new();
    let late = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        let (child, late) = (&mut child, &late);
        scope.spawn(move || {
            let going_on = |time| end.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            let short = SAID_AFTER.min(limits.time);
            if !going_on(short) {
                return;
            }
            let whole = size(bytes.len() as u64);
            tracing::info!(
                "compiling {}, {whole}, which takes a while the first time",
                path.display()
            );
            if going_on(limits.time.saturating_sub(short)) {
                late.store(true, Relaxed);
                // Its output ends with it, and so does the wait below.
                let _ = child.kill();
            }
        });
        scope.spawn(move || {
            // A process that reads no further says why by its end.
            let _ = input.map(|mut input| input.write_all(bytes));
        });
        let said = scope.spawn(move || {
            let mut said = Vec::new();
            if let Some(mut errors) = errors {
                let _ = errors.by_ref().take(MAX_SAID).read_to_end(&mut said);
                let _ = io::copy(&mut errors, &mut io::sink());
            }
            String::from_utf8_lossy(&said).into_owned()
        });
        let read = output
            .as_mut()
            .map_or(Ok(0), |output| output.read_to_end(&mut artifact));
        let said = said.join().unwrap_or_default();
        drop(ended);
        read.map(|_| said)
    });
    let status = child.wait().map_err(problem)?;
    let said = said.map_err(problem)?;
    if status.success() {
        return Ok(artifact);
    }
    Err(match said.lines().find(|line| !line.trim().is_empty()) {
        _ if OUT_OF_MEMORY.iter().any(|sign| said.contains(sign)) => {
            format!(
                "cannot be compiled in {} of memory (max_compile_memory)",
                size(limits.memory)
            )
        }
        _ if late.load(Relaxed) || is_out_of_time(&status) => {
            format!(
                "cannot be compiled in {} s (max_compile_time)",
                limits.time.as_secs_f64()
            )
        }
        Some(line) => line.to_owned(),
        None => format!("cannot be compiled: the process for it ended without a word ({status})"),
    })
}

/// What a process says whose memory is at an end: when it allocates, maps or starts a thread.
const OUT_OF_MEMORY: [&str; 3] = [
    "memory allocation of",
    "Cannot allocate memory",
    "Resource temporarily unavailable",
];

#[cfg(unix)]
fn is_out_of_time(status: &std::process::ExitStatus) -> bool {
    let signal = std::os::unix::process::ExitStatusExt::signal(status);
    signal == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(not(unix))]
fn is_out_of_time(_: &std::process::ExitStatus) -> bool {
    false
}

/// The other end: reads a component from `input`, and writes the compiled code to `output`. The
/// process is limited from here on. The error is a line.
pub(crate) fn compile_for_parent(
    arguments: &[String],
    mut input: impl Read,
    mut output: impl Write,
) -> Result<(), String> {
    let [settings @ .., max_memory, max_cpu_seconds] = arguments else {
        return Err(WRONG_ARGUMENTS.to_owned());
    };
    let settings = Settings::from_arguments(settings).ok_or(WRONG_ARGUMENTS)?;
    let max_memory = max_memory.parse().map_err(|_| WRONG_ARGUMENTS)?;
    let max_cpu_seconds = max_cpu_seconds.parse().map_err(|_| WRONG_ARGUMENTS)?;
    limit(max_memory, max_cpu_seconds)
        .map_err(|problem| format!("the process cannot be limited: {problem}"))?;
    let mut bytes = Vec::new();
    input
        .read_to_end(&mut bytes)
        .map_err(|problem| format!("the component cannot be read: {problem}"))?;
    let artifact = compile(&bytes, settings)?;
    let written = output.write_all(&artifact).and_then(|()| output.flush());
    written.map_err(|problem| format!("the code cannot be handed over: {problem}"))
}

const WRONG_ARGUMENTS: &str = "compile is for the host's own use";

#[cfg(unix)]
fn limit(max_memory: u64, max_cpu_seconds: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    for (resource, most) in [
        (Resource::Data, max_memory),
        (Resource::Cpu, max_cpu_seconds),
        (Resource::Core, 0),
    ] {
        // Whoever started us may allow less.
        let hard = getrlimit(resource).maximum;
        let most = hard.map_or(most, |hard| hard.min(most));
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: hard,
            },
        )?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn limit(_: u64, _: u64) -> io::Result<()> {
    Ok(())
}
