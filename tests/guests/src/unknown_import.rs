//! Fits the world, but needs an import that no host of ours offers: `example:magic/wand`.

mod bindings {
    wit_bindgen::generate!({
        inline: "
            package example:magic@1.0.0;
            interface wand { wave: func() -> u64; }
            world magic { import wand; }
        ",
        generate_all,
    });
}

batchgate_guest::export!(process);

fn process(_: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    Ok(bindings::example::magic::wand::wave())
}
