//! Of the async world: asks WASI 0.3 for what its first item's data names, and fails with what it learned: `open PATH` and
//! `create PATH` open a file of its first folder, anything else is a name to look up.

mod bindings {
    wit_bindgen::generate!({
        // As much of the two packages as is used here.
        inline: "
            package tests:wasi03;
            world wasi03 {
                import wasi:filesystem/preopens@0.3.0;
                import wasi:sockets/ip-name-lookup@0.3.0;
            }
            package wasi:filesystem@0.3.0 {
                interface types {
                    flags descriptor-flags {
                        read, write, file-integrity-sync, data-integrity-sync, requested-write-sync, mutate-directory,
                    }
                    flags path-flags { symlink-follow }
                    flags open-flags { create, directory, exclusive, truncate }
                    variant error-code {
                        access, already, bad-descriptor, busy, deadlock, quota, exist, file-too-large,
                        illegal-byte-sequence, in-progress, interrupted, invalid, io, is-directory, loop, too-many-links,
                        message-size, name-too-long, no-device, no-entry, no-lock, insufficient-memory,
                        insufficient-space, not-directory, not-empty, not-recoverable, unsupported, no-tty,
                        no-such-device, overflow, not-permitted, pipe, read-only, invalid-seek, text-file-busy,
                        cross-device, other(option<string>),
                    }
                    resource descriptor {
                        open-at: async func(
                            path-flags: path-flags, path: string, open-flags: open-flags, %flags: descriptor-flags,
                        ) -> result<descriptor, error-code>;
                    }
                }
                interface preopens {
                    use types.{descriptor};
                    get-directories: func() -> list<tuple<descriptor, string>>;
                }
            }
            package wasi:sockets@0.3.0 {
                interface types {
                    type ipv4-address = tuple<u8, u8, u8, u8>;
                    type ipv6-address = tuple<u16, u16, u16, u16, u16, u16, u16, u16>;
                    variant ip-address { ipv4(ipv4-address), ipv6(ipv6-address) }
                }
                interface ip-name-lookup {
                    use types.{ip-address};
                    variant error-code {
                        access-denied, invalid-argument, name-unresolvable, temporary-resolver-failure,
                        permanent-resolver-failure, other(option<string>),
                    }
                    resolve-addresses: async func(name: string) -> result<list<ip-address>, error-code>;
                }
            }
        ",
        world: "tests:wasi03/wasi03",
        generate_all,
    });
}

use batchgate_guest::{BatchError, Item};
use bindings::wasi::filesystem::preopens::get_directories;
use bindings::wasi::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};
use bindings::wasi::sockets::ip_name_lookup::resolve_addresses;

batchgate_guest::export!(async process);

async fn process(items: Vec<Item>) -> Result<u64, BatchError> {
    let Some(item) = items.first() else {
        return Ok(0);
    };
    Err(BatchError::failed(ask(item.text()?).await))
}

async fn ask(text: &str) -> String {
    let (path, open, access) = match text.split_once(' ') {
        Some(("open", path)) => (path, OpenFlags::empty(), DescriptorFlags::READ),
        Some(("create", path)) => (path, OpenFlags::CREATE, DescriptorFlags::WRITE),
        _ => {
            return match resolve_addresses(text.to_owned()).await {
                Ok(found) => format!("{found:?}"),
                Err(error) => format!("{error:?}"),
            };
        }
    };
    let Some((folder, _)) = get_directories().into_iter().next() else {
        return "no folder".to_owned();
    };
    let follow = PathFlags::SYMLINK_FOLLOW;
    match folder.open_at(follow, path.to_owned(), open, access).await {
        Ok(_) => "opened".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}
