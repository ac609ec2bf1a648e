//! Items as a call of the async world takes them: it may outlast the slot that made it, so they are its own.

use crate::item::Item;
use wasmtime::component::{ComponentType, Lower};

/// `item` of the WIT.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct OwnedItem {
    index: u64,
    key: String,
    data: Vec<u8>,
}

pub(super) fn owned(items: &[Item]) -> Vec<OwnedItem> {
    let items = items.iter().map(|item| OwnedItem {
        index: item.index,
        key: item.key().into_owned(),
        data: item.data.to_vec(),
    });
    items.collect()
}
