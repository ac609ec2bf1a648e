//! Runs blocking work on a thread of its own.
//!
//! The runtime's threads for blocking work are limited, and guests' file work runs on them: what a
//! run needs to come to its end, or what may block for as long as others like, must not queue there.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// What the work comes to. The error is that there is no thread for it, or that it panicked.
pub async fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (told, result) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Whoever asked may have given up.
            let _ = told.send(work());
        })?;
    let ended = |_| io::Error::other("its thread ended in a fault of the host");
    result.await.map_err(ended)
}

/// The same with something that is kept from one time to the next, also when there was no thread for it.
pub async fn aside_with<K: Send + 'static, T: Send + 'static>(
    name: &str,
    kept: &Arc<Mutex<K>>,
    work: impl FnOnce(&mut K) -> T + Send + 'static,
) -> io::Result<T> {
    let kept = Arc::clone(kept);
    aside(name, move || {
        work(&mut kept.lock().unwrap_or_else(PoisonError::into_inner))
    })
    .await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_while_the_blocking_threads_are_all_taken() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || held.recv());
        assert_eq!(runtime.block_on(aside("test", || 7)).unwrap(), 7);
        let failed = runtime.block_on(aside("test", || -> u8 { panic!("meant") }));
        failed.unwrap_err();
        let kept = Arc::new(Mutex::new(7));
        let panics = |kept: &mut u8| {
            *kept += 1;
            panic!("meant")
        };
        let failed: io::Result<u8> = runtime.block_on(aside_with("test", &kept, panics));
        failed.unwrap_err();
        let read = runtime.block_on(aside_with("test", &kept, |kept| *kept));
        assert_eq!(read.unwrap(), 8, "what is kept outlives a fault");
        drop(release);
    }
}
