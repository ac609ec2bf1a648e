//! The key by which a server can tell that items are sent again.

use crate::item::Item;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Bytes of a key: enough that no two lists of items will ever share one.
const KEY_BYTES: usize = 16;

/// The same for the same items of the same job, whenever and wherever they are sent; in
/// hexadecimal.
pub(super) fn idempotency_key(label: &str, salt: &str, items: &[Item]) -> String {
    let mut sum = Sha256::new();
    let mut add = |bytes: &[u8]| {
        // With its length, so that no two lists of texts are the same bytes.
        sum.update((bytes.len() as u64).to_le_bytes());
        sum.update(bytes);
    };
    add(label.as_bytes());
    add(salt.as_bytes());
    for item in items {
        add(&item.index.to_le_bytes());
        add(item.key().as_bytes());
        add(&item.data);
    }
    let mut key = String::with_capacity(2 * KEY_BYTES);
    for byte in &sum.finalize()[..KEY_BYTES] {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Key;

    fn item(index: u64, key: &str, data: &str) -> Item {
        Item {
            index,
            key: Key::Text(key.into()),
            data: data.to_owned().into(),
        }
    }

    #[test]
    fn a_key_is_of_its_items_alone() {
        let items = [item(0, "a", "x"), item(1, "b", "y")];
        let key = idempotency_key("job", "", &items);
        assert_eq!(key, idempotency_key("job", "", &items.clone()));
        // It must not change from release to release: servers remember it.
        assert_eq!(key, "4a7b408db598fe4612a042dd83ce7426");
        let others = [
            idempotency_key("other", "", &items),
            idempotency_key("job", "salt", &items),
            idempotency_key("job", "", &items[..1]),
            idempotency_key("job", "", &[item(2, "a", "x"), item(1, "b", "y")]),
            idempotency_key("job", "", &[item(0, "ax", ""), item(1, "b", "y")]),
            idempotency_key("job", "", &[item(0, "a", "xy"), item(1, "b", "")]),
        ];
        for other in others {
            assert_ne!(key, other);
        }
    }
}
