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

/// Components up to this size have their instances' first memory copied rather than mapped: a few pages more for each,
/// and two memory mappings less.
const COPIED: usize = 1 << 20;

fn is_mapped(component: usize) -> bool {
    component > COPIED
}

/// Makes an engine for a component of so many bytes. `concurrent` is for those of the async
/// world: it costs every call, so the sync world does without.
pub(super) fn engine(
    sandbox: &SandboxConfig,
    component: usize,
    concurrent: bool,
) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(concurrent)
        .wasm_component_model_async(concurrent)
        .epoch_interruption(true)
        .memory_init_cow(is_mapped(component))
        .max_wasm_stack(sandbox.max_stack)
        .async_stack_size(sandbox.max_stack + HOST_STACK)
        // A trap's frames name nothing that a user of a plugin could act on, and collecting
        // them makes a trap cost more.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false);
    let engine = Engine::new(&config)?;
    tick(&engine)?;
    Ok(engine)
}

/// A place for one instance in the process. Each takes several memory mappings, of which the system gives a process only
/// so many (`vm.max_map_count`, 65,530 by default); without any left the host itself could not go on.
pub(super) struct Place;

static PLACES_TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    /// Takes a place, or says how many there are.
    pub(super) fn take(component: usize) -> Result<Self, String> {
        static MAPPINGS: LazyLock<usize> = LazyLock::new(|| {
            let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
            limit
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(65_530)
        });
        let each = if is_mapped(component) { 7 } else { 5 };
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
fn tick(engine: &Engine) -> wasmtime::Result<()> {
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
