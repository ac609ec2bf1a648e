//! The wasmtime engine of a job, and the one ticker that keeps its guests interruptible.

use super::sandbox::SandboxConfig;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::time::Duration;
use wasmtime::{Config, Engine, EngineWeak};

/// How long a guest runs before it gives the thread back and is charged. Calls beside a guest that never
/// waits are delayed by so much each time they need a thread.
pub(super) const TICK: Duration = Duration::from_millis(2);

/// Stack beyond the guest's own that a call needs for the host functions it enters.
const HOST_STACK: usize = 1 << 20;

/// What decides how code is compiled, and so what code an engine can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    /// Stack of a call, in bytes.
    max_stack: usize,
    /// Whether an instance's first memory is mapped rather than copied.
    mapped: bool,
    /// For components of the async world: it costs every call, so the sync world does without.
    concurrent: bool,
}

/// Components up to this size have their instances' first memory copied rather than mapped: a few
/// pages more for each, and two memory mappings less.
const COPIED: usize = 1 << 20;

impl Settings {
    /// For a component of so many bytes.
    pub(super) fn new(sandbox: &SandboxConfig, component: usize, concurrent: bool) -> Self {
        Self {
            max_stack: sandbox.max_stack,
            mapped: component > COPIED,
            concurrent,
        }
    }

    /// As another process is told them.
    pub(super) fn arguments(self) -> [String; 3] {
        [
            self.max_stack.to_string(),
            self.mapped.to_string(),
            self.concurrent.to_string(),
        ]
    }

    /// As told by [`Settings::arguments`].
    pub(super) fn from_arguments(arguments: &[String]) -> Option<Self> {
        let [max_stack, mapped, concurrent] = arguments else {
            return None;
        };
        Some(Self {
            max_stack: max_stack.parse().ok()?,
            mapped: mapped.parse().ok()?,
            concurrent: concurrent.parse().ok()?,
        })
    }
}

/// Makes an engine. Its guests are interruptible once it is made to [`tick`].
pub(super) fn engine(settings: Settings) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(settings.concurrent)
        .wasm_component_model_async(settings.concurrent)
        .epoch_interruption(true)
        .memory_init_cow(settings.mapped)
        .max_wasm_stack(settings.max_stack)
        .async_stack_size(settings.max_stack + HOST_STACK)
        // A trap's frames name nothing that a user of a plugin could act on, and collecting
        // them makes a trap cost more.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false);
    Engine::new(&config)
}

/// A place for one instance in the process. Each takes several memory mappings, of which the
/// system gives a process only so many (`vm.max_map_count`, 65,530 by default); without any left
/// the host itself could not go on.
pub(super) struct Place;

static PLACES_TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    /// Takes a place, or says how many there are.
    pub(super) fn take(settings: Settings) -> Result<Self, String> {
        static MAPPINGS: LazyLock<usize> = LazyLock::new(|| {
            let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
            limit
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(65_530)
        });
        let each = if settings.mapped { 7 } else { 5 };
        let most = MAPPINGS.saturating_sub(MAPPINGS_OF_HOST) / each;
        let place = Self;
        if PLACES_TAKEN.fetch_add(1, Relaxed) >= most {
            // Dropping the place gives it back.
            return Err(format!(
                "the system has memory mappings for {most} instances at a time (vm.max_map_count); \
                 raise that, or lower max_workers"
            ));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        PLACES_TAKEN.fetch_sub(1, Relaxed);
    }
}

/// Mappings that the host keeps for all else.
const MAPPINGS_OF_HOST: usize = 4000;

static TICKED: Mutex<Vec<EngineWeak>> = Mutex::new(Vec::new());

/// Has the engine's epoch incremented every [`TICK`] for as long as it lives.
pub(super) fn tick(engine: &Engine) -> wasmtime::Result<()> {
    static START: Once = Once::new();
    let mut started = Ok(());
    START.call_once(|| {
        let thread = std::thread::Builder::new().name("epoch".to_owned());
        started = thread.spawn(ticker).map(drop);
    });
    started?;
    TICKED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(engine.weak());
    Ok(())
}

fn ticker() {
    loop {
        std::thread::sleep(TICK);
        let mut engines = TICKED.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| match engine.upgrade() {
            Some(engine) => {
                engine.increment_epoch();
                true
            }
            None => false,
        });
    }
}
