//! Counts what an instance holds, and refuses what its job does not allow.
//!
//! A refused `memory.grow` is not an end: the guest gets -1 and may well cope. What was
//! refused is remembered, so that a trap that follows can name it.

use super::sandbox::SandboxConfig;
use super::size::size;
use std::fmt;
use wasmtime::ResourceLimiter;

/// A limit that an instance ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Memory { limit: u64 },
    TableElements { limit: usize },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { limit } => {
                write!(f, "memory limit of {} exceeded (memory)", size(*limit))
            }
            Self::TableElements { limit } => {
                write!(
                    f,
                    "limit of {limit} elements a table exceeded (max_table_elements)"
                )
            }
        }
    }
}

/// The limiter of one instance.
#[derive(Debug)]
pub(super) struct Limits {
    memory: u64,
    table_elements: usize,
    tables: usize,
    instances: usize,
    /// Bytes of linear memories and tables.
    used: u64,
    /// The growth granted last, in case the engine cannot carry it out.
    granted: u64,
    refused: Option<Refused>,
}

/// A table element takes a pointer.
const TABLE_ELEMENT_BYTES: usize = size_of::<usize>();

impl Limits {
    pub(super) fn new(sandbox: &SandboxConfig) -> Self {
        Self {
            memory: sandbox.memory,
            table_elements: sandbox.max_table_elements,
            tables: sandbox.max_tables,
            instances: sandbox.max_instances,
            used: 0,
            granted: 0,
            refused: None,
        }
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// What was refused since the last [`Limits::forget`].
    pub(super) fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// Starts a new call's account of refusals.
    pub(super) fn forget(&mut self) {
        self.refused = None;
    }

    fn grow(&mut self, by: usize) -> bool {
        self.granted = 0;
        let used = self.used.saturating_add(by as u64);
        if used > self.memory {
            self.refused = Some(Refused::Memory { limit: self.memory });
            return false;
        }
        self.used = used;
        self.granted = by as u64;
        true
    }

    fn revoke(&mut self) {
        self.used = self.used.saturating_sub(std::mem::take(&mut self.granted));
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // Growth beyond the memory's own maximum fails whatever we say, and nobody would tell us.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.revoke();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if desired > self.table_elements {
            self.refused = Some(Refused::TableElements {
                limit: self.table_elements,
            });
            return Ok(false);
        }
        let elements = desired.saturating_sub(current);
        Ok(self.grow(elements.saturating_mul(TABLE_ELEMENT_BYTES)))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.revoke();
        Ok(())
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits::new(&SandboxConfig {
            memory: 1000,
            max_table_elements: 100,
            ..SandboxConfig::default()
        })
    }

    #[test]
    fn memories_and_tables_share_the_limit() {
        let mut limits = limits();
        assert!(limits.memory_growing(0, 600, None).unwrap());
        assert!(limits.table_growing(0, 50, None).unwrap());
        assert_eq!(limits.used(), 1000);
        assert!(!limits.memory_growing(600, 601, None).unwrap());
        assert_eq!(limits.refused(), Some(Refused::Memory { limit: 1000 }));
        assert_eq!(limits.used(), 1000, "a refused growth counts for nothing");
        limits.forget();
        assert!(!limits.table_growing(50, 101, None).unwrap());
        assert_eq!(
            limits.refused(),
            Some(Refused::TableElements { limit: 100 })
        );
    }

    #[test]
    fn growth_beyond_its_own_maximum_is_no_refusal_of_ours() {
        let mut limits = limits();
        assert!(!limits.memory_growing(0, 600, Some(500)).unwrap());
        assert_eq!((limits.used(), limits.refused()), (0, None));
    }

    #[test]
    fn growth_that_failed_is_given_back_once() {
        let mut limits = limits();
        assert!(limits.memory_growing(0, 100, None).unwrap());
        assert!(limits.memory_growing(100, 600, None).unwrap());
        for _ in 0..2 {
            limits
                .memory_grow_failed(wasmtime::Error::msg("no memory"))
                .unwrap();
            assert_eq!(limits.used(), 100);
        }
    }
}
