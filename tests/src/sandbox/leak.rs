//! A guest that leaks a handle and 60 kB in each of 100,000 calls: it is replaced before it fails, and the host's memory
//! stays flat.

use super::measure::{alone, resident};
use super::*;
use batchgate_policy::outcome::CallEnd;

#[test]
fn a_guest_that_leaks_leaves_memory_flat() {
    alone("sandbox::leak::in_a_process_of_its_own");
}

#[test]
#[ignore = "run by a_guest_that_leaks_leaves_memory_flat, alone in its process"]
fn in_a_process_of_its_own() {
    block_on(async {
        let sandbox = SandboxConfig {
            memory: 64 << 20,
            ..SandboxConfig::default()
        };
        let plugin = plugin("handle_flood", &sandbox);
        let leak = items(&[r#"{"handles":1,"kb":60}"#]);
        let mut slot = plugin.start_slot(0).await.unwrap();
        let mut replaced = 0;
        let mut at_most = [0_u64; 2];
        for call in 0..100_000 {
            let report = slot.call(&leak, info(1)).await;
            assert_eq!(report.end, CallEnd::Written(1), "call {call}");
            if report.dead {
                replaced += 1;
                slot = plugin.start_slot(replaced).await.unwrap();
            }
            let half = &mut at_most[usize::from(call >= 50_000)];
            if call % 100 == 0 {
                *half = (*half).max(resident());
            }
        }
        println!("{replaced} times, {at_most:?}");
        assert!(replaced > 10, "it was replaced {replaced} times");
        assert!(at_most[1] < at_most[0] + (8 << 20), "{at_most:?}");
    });
}
