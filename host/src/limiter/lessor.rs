//! The thread that leases the day's quota from the state file, so that nobody else waits for a disk or for
//! another host's lock.
//!
//! Invariant: what it hands out is on the disk. Asks are answered in their order, and it ends
//! with the limiter that it serves.

use super::QuotaError;
use super::state_file::StateFile;
use batchgate_policy::quota::{DayId, Granted, Wanted};
use std::io;
use std::sync::{Weak, mpsc};
use tokio::sync::oneshot;

/// What is asked of the thread.
pub(super) enum Ask {
    /// A lease.
    Lease(Wanted, Option<u64>),
    /// To give back whatever is leased and not used by then, and say when it is done.
    GiveBack(oneshot::Sender<Result<(), QuotaError>>),
}

/// Whom the thread serves.
pub(super) trait Lessee: Send + Sync + 'static {
    /// Here is the lease, or why there is none.
    fn leased(&self, wanted: Wanted, lease: Result<Granted, QuotaError>);
    /// Hands over what is leased and not used.
    fn take_unused(&self) -> Option<(DayId, u64)>;
}

/// Starts the thread. It ends when `asks` is closed, or its lessee gone.
pub(super) fn start<L: Lessee>(
    file: StateFile,
    asks: mpsc::Receiver<Ask>,
    lessee: Weak<L>,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("quota".to_owned())
        .spawn(move || serve(&file, &asks, &lessee))?;
    Ok(())
}

fn serve<L: Lessee>(file: &StateFile, asks: &mpsc::Receiver<Ask>, lessee: &Weak<L>) {
    for ask in asks {
        match ask {
            Ask::Lease(wanted, cap) => {
                let lease = file.lease(wanted, cap).map_err(QuotaError::from);
                let Some(lessee) = lessee.upgrade() else {
                    return;
                };
                lessee.leased(wanted, lease);
            }
            Ask::GiveBack(done) => {
                let Some(lessee) = lessee.upgrade() else {
                    return;
                };
                let result = match lessee.take_unused() {
                    None => Ok(()),
                    Some((day, unused)) => file.give_back(day, unused).map_err(QuotaError::from),
                };
                // Whoever asked may have stopped waiting.
                let _ = done.send(result);
            }
        }
    }
}
