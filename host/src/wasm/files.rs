//! Lets a guest open files and folders, and nothing else that may lie in its folders.
//!
//! A pipe, a socket or a device may block whoever opens it for as long as others like, and the thread
//! that waits for it cannot be ended.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::WasiFilesystemView;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, ErrorCode, HostDescriptor as _, OpenFlags,
    PathFlags,
};

/// The version that wasmtime implements; guests built for another 0.2 get the same.
const TYPES: &str = "wasi:filesystem/types@0.2.12";

type Opened = Result<Resource<Descriptor>, ErrorCode>;

/// Replaces the function that opens by one that looks at what it would open. What takes that place between
/// the look and the opening is not found: the guest then waits, as long as its call may.
pub(super) fn only_files<T: WasiFilesystemView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance(TYPES)?.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, T>,
         (folder, follow, path, how, flags): (
            Resource<Descriptor>,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )| {
            Box::new(async move {
                let mut files = store.data_mut().filesystem();
                let same = Resource::new_borrow(folder.rep());
                // What is not there, or cannot be looked at, is left to the opening.
                if let Ok(found) = files.stat_at(same, follow, path.clone()).await
                    && !is_file_or_folder(found.type_)
                {
                    return Ok((Opened::Err(ErrorCode::NotPermitted),));
                }
                let opened = files.open_at(folder, follow, path, how, flags).await;
                Ok((match opened {
                    Ok(opened) => Ok(opened),
                    Err(error) => Err(error.downcast()?),
                },))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn is_file_or_folder(kind: DescriptorType) -> bool {
    match kind {
        DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink => {
            true
        }
        DescriptorType::BlockDevice
        | DescriptorType::CharacterDevice
        | DescriptorType::Fifo
        | DescriptorType::Socket
        | DescriptorType::Unknown => false,
    }
}
