//! Every answer of a guest, its limits on compute, time and memory, and the life of an instance.

use super::*;
use batchgate_policy::outcome::CallEnd;

#[test]
fn every_answer_comes_through() {
    block_on(async {
        let mut slot = slot("scripted", &SandboxConfig::default()).await;
        let table = [
            (r#"{"do":"ok"}"#, "Written(1)"),
            (r#"{"do":"ok_n","n":99}"#, "Written(99)"),
            (r#"{"do":"skip"}"#, "Written(0)"),
            (
                r#"{"do":"fail","message":"no","retryable":true}"#,
                r#"Failed { message: "no", retryable: true }"#,
            ),
            (r#"{"do":"fatal","message":"key"}"#, r#"Fatal("key")"#),
            (
                r#"{"do":"too_large","message":"413"}"#,
                r#"TooLarge("413")"#,
            ),
            (
                r#"{"do":"rate_limited","message":"429","ms":1500}"#,
                r#"RateLimited { message: "429", retry_after: Some(1.5s) }"#,
            ),
            (
                r#"{"do":"item_fail","message":"bad","retryable":false}"#,
                r#"Partial([ItemFailure { index: 0, message: "bad", retryable: false }])"#,
            ),
        ];
        for (script, expected) in table {
            let report = call(&mut slot, script).await;
            assert_eq!(format!("{:?}", report.end), expected, "{script}");
            assert!(!report.dead && !slot.is_dead(), "{script}");
        }
    });
}

#[test]
fn a_call_knows_itself() {
    block_on(async {
        let mut slot = slot("scripted", &SandboxConfig::default()).await;
        let batch = items(&[r#"{"do":"info"}"#, "two"]);
        let mut keys = Vec::new();
        for (batch, number) in [(&batch[..], 1), (&batch[..], 2), (&batch[..1], 3)] {
            let CallEnd::Failed { message, .. } = slot.call(batch, info(number)).await.end else {
                panic!()
            };
            let known = format!(
                "label=orders run_id=run-1 call={number} workers=3 batch_size=7 deadline_ms=120000"
            );
            assert!(message.starts_with(&known), "{message}");
            let key = message
                .split("idempotency_key=")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .to_owned();
            assert_eq!(key.len(), 32, "{message}");
            keys.push(key);
        }
        assert_eq!(keys[0], keys[1], "the same items have the same key");
        assert_ne!(keys[0], keys[2], "other items have another");
    });
}

#[test]
fn a_breach_counts_once_a_call() {
    block_on(async {
        let services = Arc::new(Services::default());
        let component = load(&guest("scripted"), &SandboxConfig::default());
        let mut slot = plugin_with(component, Arc::clone(&services))
            .start_slot(0)
            .await
            .unwrap();
        let twice = items(&[r#"{"do":"breach","ms":7000}"#, r#"{"do":"breach"}"#]);
        let report = slot.call(&twice, info(1)).await;
        assert!(report.breached);
        assert_eq!(services.breaches.load(SeqCst), 1);
        assert_eq!(services.retry_after_ms.load(SeqCst), 7000);
        assert!(
            !call(&mut slot, "{}").await.breached,
            "a breach is of its call alone"
        );
    });
}

/// Limits, each exceeded by a script: how the call ends, and that the reason names limit and value.
#[test]
fn limits_end_the_call_and_are_named() {
    let sandbox = SandboxConfig {
        memory: 32 << 20,
        cpu_timeout: Duration::from_millis(300),
        max_random_bytes: 1000,
        ..SandboxConfig::default()
    };
    let table = [
        (r#"{"do":"loop"}"#, "cpu_timeout of 0.3 s exceeded"),
        // Its stack in memory overflows first; see `recursion` for the other.
        (r#"{"do":"recurse"}"#, "out of bounds memory access"),
        (
            r#"{"do":"alloc","mb":40}"#,
            "memory limit of 32 MiB exceeded (memory)",
        ),
        (r#"{"do":"trap","message":"boom"}"#, "unreachable"),
        (r#"{"do":"exit","code":3}"#, "exited with code"),
        (
            r#"{"do":"random","n":1001}"#,
            "limit of 1000 bytes of randomness at once exceeded (max_random_bytes)",
        ),
        (
            r#"{"do":"err_text","bytes":20000000}"#,
            "answer limit of 16 MiB exceeded",
        ),
        (
            r#"{"do":"partial_flood","n":1000000}"#,
            "answer limit of 16 MiB exceeded",
        ),
        (
            r#"{"do":"partial_flood","n":100001}"#,
            "more than 100000 (max_partial_items)",
        ),
    ];
    block_on(async {
        let plugin = plugin(
            "scripted",
            &SandboxConfig {
                memory: 128 << 20,
                ..sandbox.clone()
            },
        );
        let small = self::plugin("scripted", &sandbox);
        for (number, (script, reason)) in table.into_iter().enumerate() {
            let plugin = if script.contains("alloc") {
                &small
            } else {
                &plugin
            };
            let mut slot = plugin.start_slot(number).await.unwrap();
            let report = call(&mut slot, script).await;
            let CallEnd::Trapped(said) = &report.end else {
                panic!("{script}: {:?}", report.end)
            };
            assert!(said.contains(reason), "{script}: {said}");
            assert!(!said.contains('\n'), "{said:?}");
            assert!(report.dead && slot.is_dead(), "{script}");
        }
        let hurried = SandboxConfig {
            call_timeout: Duration::from_millis(600),
            ..sandbox
        };
        let mut slot = self::plugin("noop", &hurried).start_slot(98).await.unwrap();
        assert_eq!(
            slot.call(&items(&["x"]), info(1)).await.end,
            CallEnd::Written(1)
        );
        let mut slot = self::plugin("scripted", &hurried)
            .start_slot(99)
            .await
            .unwrap();
        let report = call(&mut slot, r#"{"do":"sleep","ms":1000000}"#).await;
        assert_eq!(
            report.end,
            CallEnd::TimedOut("call_timeout of 0.6 s exceeded".to_owned())
        );
        assert!(
            report.dead && report.elapsed >= hurried.call_timeout,
            "{report:?}"
        );
    });
}

/// The same by guests of their own.
#[test]
fn hostile_guests_end_at_their_limits() {
    let table = [
        ("recursion", "stack limit of 1 MiB exceeded (max_stack)"),
        (
            "table_flood",
            "limit of 100000 elements a table exceeded (max_table_elements)",
        ),
        ("memory_steps", "memory limit of 256 MiB exceeded (memory)"),
        (
            "handle_flood",
            "limit of 1000 open handles exceeded (max_resources)",
        ),
        (
            "header_flood",
            "limit of 16 KiB of header fields exceeded (max_header_bytes)",
        ),
        ("bad_pointer", "out of bounds"),
    ];
    block_on(async {
        for (name, reason) in table {
            let report = call(&mut slot(name, &SandboxConfig::default()).await, "{}").await;
            let CallEnd::Trapped(said) = &report.end else {
                panic!("{name}: {:?}", report.end)
            };
            assert!(said.contains(reason), "{name}: {said}");
        }
        for (name, reason) in [
            (
                "tables_huge",
                "limit of 100000 elements a table exceeded (max_table_elements)",
            ),
            ("memory_huge", "memory limit of 256 MiB exceeded (memory)"),
        ] {
            let Err(error) = plugin(name, &SandboxConfig::default()).start_slot(0).await else {
                panic!("{name}")
            };
            assert!(error.contains(reason), "{name}: {error}");
        }
    });
}

/// The clocks start anew with every call.
#[test]
fn limits_hold_for_every_call_and_for_each_alone() {
    let sandbox = SandboxConfig {
        cpu_timeout: Duration::from_millis(400),
        ..SandboxConfig::default()
    };
    block_on(async {
        let mut slot = slot("scripted", &sandbox).await;
        for _ in 0..4 {
            let report = call(&mut slot, r#"{"do":"spin","ms":200}"#).await;
            assert_eq!(
                report.end,
                CallEnd::Written(1),
                "the time of former calls is not charged"
            );
        }
        let report = call(&mut slot, r#"{"do":"loop"}"#).await;
        assert!(matches!(report.end, CallEnd::Trapped(_)), "{report:?}");
    });
}

#[test]
fn memory_refused_is_no_end_by_itself() {
    block_on(async {
        let mut slot = slot(
            "scripted",
            &SandboxConfig {
                memory: 64 << 20,
                ..SandboxConfig::default()
            },
        )
        .await;
        for _ in 0..3 {
            let report = call(&mut slot, r#"{"do":"ok"}"#).await;
            assert_eq!(report.end, CallEnd::Written(1));
        }
    });
}

#[test]
fn a_start_function_is_under_the_limits() {
    let sandbox = SandboxConfig {
        cpu_timeout: Duration::from_millis(200),
        ..SandboxConfig::default()
    };
    block_on(async {
        let Err(error) = plugin("start_loop", &sandbox).start_slot(0).await else {
            panic!("it started")
        };
        assert!(
            error.contains("cannot be started: cpu_timeout of 0.2 s exceeded"),
            "{error}"
        );
        let tiny = SandboxConfig {
            memory: 64 << 10,
            ..SandboxConfig::default()
        };
        let Err(error) = plugin("noop", &tiny).start_slot(0).await else {
            panic!("it started")
        };
        assert!(
            error.contains("memory limit of 64 KiB exceeded (memory)"),
            "{error}"
        );
    });
}

#[test]
fn instances_are_replaced_when_worn() {
    block_on(async {
        let sandbox = SandboxConfig {
            max_calls_per_instance: Some(3),
            ..SandboxConfig::default()
        };
        let mut slot = slot("noop", &sandbox).await;
        let mut dead = Vec::new();
        for _ in 0..3 {
            dead.push(slot.call(&items(&["x"]), info(1)).await.dead);
        }
        assert_eq!(dead, [false, false, true]);

        let sandbox = SandboxConfig {
            max_instance_memory: Some(8 << 20),
            ..SandboxConfig::default()
        };
        let mut slot = self::slot("scripted", &sandbox).await;
        assert!(!call(&mut slot, r#"{"do":"alloc","mb":2}"#).await.dead);
        assert!(call(&mut slot, r#"{"do":"alloc","mb":8}"#).await.dead);
    });
}

/// A call that is dropped midway, as at the end of a grace period, leaves a dead slot.
#[test]
fn an_abandoned_call_leaves_a_dead_slot() {
    block_on(async {
        let mut slot = slot("scripted", &SandboxConfig::default()).await;
        let sleeping = call(&mut slot, r#"{"do":"sleep","ms":100000}"#);
        assert!(
            tokio::time::timeout(Duration::from_millis(100), sleeping)
                .await
                .is_err()
        );
        assert!(slot.is_dead());
        assert!(call(&mut slot, "{}").await.dead);
    });
}

#[test]
fn descriptions_are_the_guests_or_none() {
    block_on(async {
        let mut slot = slot("describer", &SandboxConfig::default()).await;
        let described = slot.describe(&items(&["a", "b"])).await;
        assert!(described.is_some_and(|text| !text.is_empty()));
        let mut slot = self::slot("noop", &SandboxConfig::default()).await;
        assert_eq!(slot.describe(&items(&["a"])).await, None);
        assert!(!slot.is_dead());
    });
}

/// One that traps takes no other with it.
#[test]
fn a_trap_is_its_own_calls_alone() {
    block_on(async {
        let plugin = Arc::new(plugin("scripted", &SandboxConfig::default()));
        let mut tasks = Vec::new();
        for number in 0..8 {
            let plugin = Arc::clone(&plugin);
            tasks.push(tokio::spawn(async move {
                let mut slot = plugin.start_slot(number).await.unwrap();
                let mut traps = 0;
                for _ in 0..200 {
                    let sleep_then_trap = [
                        r#"{"do":"sleep","ms":1}"#,
                        r#"{"do":"trap","instance_call":50}"#,
                    ];
                    let report = slot.call(&items(&sleep_then_trap), info(1)).await;
                    match report.end {
                        CallEnd::Trapped(_) => {
                            traps += 1;
                            assert!(report.dead);
                            slot = plugin.start_slot(number).await.unwrap();
                        }
                        end => assert_eq!(end, CallEnd::Written(2)),
                    }
                }
                traps
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), 4, "each traps on its own 50th call");
        }
    });
}
