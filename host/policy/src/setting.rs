//! What the host is told to do: how many calls in flight, and how many items in each.

/// A pair of levels at an epoch. Every change of a level starts a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Counts the changes of level since the start of the run, from 0.
    pub epoch: u64,
    /// Calls to keep in flight, at least 1.
    pub workers: u32,
    /// Items to put in a batch, at least 1.
    pub batch_size: u32,
}
