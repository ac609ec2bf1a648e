//! Looks up host names.

use crate::aside::aside;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Looks up the addresses of a name. Every connection asks anew, and every answer is checked.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of `name`, the preferred one first.
    fn resolve<'a>(
        &'a self,
        name: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;
}

/// The operating system's resolver, for one job.
///
/// A look-up cannot be ended before the system gives it up. So each has a thread of its own, of
/// which there are [`IN_FLIGHT`] at a time: names that nobody answers for hold up their own job alone.
#[derive(Debug)]
pub struct SystemResolver {
    turns: Arc<Semaphore>,
    look_up: fn(&str) -> io::Result<Vec<IpAddr>>,
}

/// Look-ups of one job at a time, those that nobody waits for any more included.
const IN_FLIGHT: usize = 8;

impl Default for SystemResolver {
    fn default() -> Self {
        Self::with(|name| {
            let found = (name, 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

impl SystemResolver {
    fn with(look_up: fn(&str) -> io::Result<Vec<IpAddr>>) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(IN_FLIGHT)),
            look_up,
        }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(
        &'a self,
        name: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        Box::pin(async move {
            let turn = Arc::clone(&self.turns)
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            let (name, look_up) = (name.to_owned(), self.look_up);
            aside("batchgate-lookup", move || {
                // Given back when the system is done, whoever still waits for it.
                let _turn = turn;
                look_up(&name)
            })
            .await?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static OPEN: Mutex<bool> = Mutex::new(false);
    static OPENED: Condvar = Condvar::new();

    /// Answers no name but `known` until it is told to.
    fn hangs(name: &str) -> io::Result<Vec<IpAddr>> {
        if name != "known" {
            ASKED.fetch_add(1, SeqCst);
            let open = OPEN.lock().unwrap();
            drop(OPENED.wait_while(open, |open| !*open).unwrap());
        }
        Ok(vec![IpAddr::from([127, 0, 0, 1])])
    }

    #[test]
    fn names_that_never_answer_hold_up_their_own_job_alone() {
        // One thread for blocking work: look-ups must not need it.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut one, other) = (Vec::new(), SystemResolver::with(hangs));
            let hanging = Arc::new(SystemResolver::with(hangs));
            for _ in 0..3 * IN_FLIGHT {
                let hanging = Arc::clone(&hanging);
                one.push(tokio::spawn(async move { hanging.resolve("never").await }));
            }
            while ASKED.load(SeqCst) < IN_FLIGHT {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(other.resolve("known").await.is_ok());
            // Whoever gives up does not make room: the system still asks.
            one.iter().for_each(|task| task.abort());
            let short = Duration::from_millis(50);
            assert!(
                tokio::time::timeout(short, hanging.resolve("known"))
                    .await
                    .is_err()
            );
            assert_eq!(ASKED.load(SeqCst), IN_FLIGHT);
            *OPEN.lock().unwrap() = true;
            OPENED.notify_all();
            assert!(hanging.resolve("known").await.is_ok());
        });
    }

    #[tokio::test]
    async fn the_system_knows_localhost() {
        let found = SystemResolver::default()
            .resolve("localhost")
            .await
            .unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
    }
}
