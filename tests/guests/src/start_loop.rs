//! Never gets through its start function.

batchgate_guest::export!(process);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = forever;

extern "C" fn forever() {
    loop {
        std::hint::spin_loop();
    }
}

fn process(items: Vec<batchgate_guest::Item>) -> Result<u64, batchgate_guest::BatchError> {
    Ok(items.len() as u64)
}
