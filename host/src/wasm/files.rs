//! Lets a guest open files and folders, and nothing else that may lie in its folders.
//!
//! A pipe, a socket or a device may block whoever opens it for as long as others like, and the thread
//! that waits for it cannot be ended.

use wasmtime::StoreContextMut;
use wasmtime::component::{Accessor, Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::filesystem::types::{self as p2, HostDescriptor as _};
use wasmtime_wasi::p3::bindings::filesystem::types::{self as p3, HostDescriptorWithStore as _};

/// Replaces the function that opens by one that looks at what it would open. What takes that place between
/// the look and the opening is not found: the guest then waits, as long as its call may.
pub(super) fn only_files<T: WasiFilesystemView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    // The version that wasmtime implements; guests built for another 0.2 get the same.
    let mut types = linker.instance("wasi:filesystem/types@0.2.12")?;
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, T>,
         (folder, follow, path, how, flags): (
            Resource<Descriptor>,
            p2::PathFlags,
            String,
            p2::OpenFlags,
            p2::DescriptorFlags,
        )| {
            Box::new(async move {
                let mut files = store.data_mut().filesystem();
                let same = Resource::new_borrow(folder.rep());
                // What is not there, or cannot be looked at, is left to the opening.
                if let Ok(found) = files.stat_at(same, follow, path.clone()).await
                    && !matches!(
                        found.type_,
                        p2::DescriptorType::RegularFile
                            | p2::DescriptorType::Directory
                            | p2::DescriptorType::SymbolicLink
                    )
                {
                    return Ok((Err(p2::ErrorCode::NotPermitted),));
                }
                let opened = files.open_at(folder, follow, path, how, flags).await;
                let opened: Result<Resource<Descriptor>, _> = match opened {
                    Ok(opened) => Ok(opened),
                    Err(error) => Err(error.downcast()?),
                };
                Ok((opened,))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// The same for WASI 0.3.
pub(super) fn only_files_async<T: WasiFilesystemView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance("wasi:filesystem/types@0.3.0")?;
    types.func_wrap_concurrent(
        "[method]descriptor.open-at",
        |accessor: &Accessor<T>,
         (folder, follow, path, how, flags): (
            Resource<Descriptor>,
            p3::PathFlags,
            String,
            p3::OpenFlags,
            p3::DescriptorFlags,
        )| {
            Box::pin(async move {
                let files = accessor.with_getter::<WasiFilesystem>(T::filesystem);
                let same = Resource::new_borrow(folder.rep());
                if let Ok(found) = WasiFilesystem::stat_at(&files, same, follow, path.clone()).await
                    && !matches!(
                        found.type_,
                        p3::DescriptorType::RegularFile
                            | p3::DescriptorType::Directory
                            | p3::DescriptorType::SymbolicLink
                    )
                {
                    return Ok((Err(p3::ErrorCode::NotPermitted),));
                }
                let opened =
                    WasiFilesystem::open_at(&files, folder, follow, path, how, flags).await;
                let opened: Result<Resource<Descriptor>, _> = match opened {
                    Ok(opened) => Ok(opened),
                    Err(error) => Err(error.downcast()?),
                };
                Ok((opened,))
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
