//! Runs under a budget, with native functions for plugins: what the flow does with slots.

use batchgate::budget::{
    Budget, Config, Consumer, EachSignal, JoinError, Levels, Member, Refusal, ScaledBudget, Share,
    View, Wake, sensors::Sensors,
};
use batchgate::flow::{Describe, Job, Parking, Records, Stop, run};
use batchgate::item::Item;
use batchgate::limiter::{Calendar, Config as LimiterConfig, Limiter};
use batchgate::report::summary::{Stopped, Summary};
use batchgate::slot::{CallInfo, Native, NativeCall};
use batchgate::source::{Format, Input, Source, SourceConfig};
use batchgate_policy::attempt::{OnBreach, OnTrap, Rules};
use batchgate_policy::breaker::Breaker;
use batchgate_policy::budget as policy;
use batchgate_policy::controller::{
    self, Bounds, Change, Controller, Fixed, Observation, Override,
};
use batchgate_policy::outcome::CallEnd;
use batchgate_policy::setting::Setting;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A controller that keeps what it is told.
#[derive(Debug)]
struct Told {
    fixed: Fixed,
    told: Arc<Mutex<Vec<Observation>>>,
}

impl Controller for Told {
    fn setting(&self) -> Setting {
        self.fixed.setting()
    }
    fn bounds(&self) -> Bounds {
        self.fixed.bounds()
    }
    fn single(&self) -> bool {
        self.fixed.single()
    }
    fn observe(&mut self, observation: &Observation) -> Vec<Change> {
        self.told.lock().expect("no panic").push(*observation);
        Vec::new()
    }
    fn apply(&mut self, rows: &[Override]) -> Vec<Change> {
        self.fixed.apply(rows)
    }
}

fn budget(slots: u32) -> ScaledBudget {
    let config = Config {
        policy: policy::Config {
            levels: Levels {
                min: 1,
                desired: slots,
                max: slots,
            },
            max_tasks_per_minute: None,
            step: 0.05,
            current: Duration::from_secs(5),
            history: Duration::from_secs(30),
            // Whatever the machine does that runs the test.
            limits: EachSignal {
                cpu: 1.0,
                memory: 1.0,
                lag: 1.0,
                breaches: 1.0,
            },
        },
        scale_every: Duration::from_secs(10),
        cpu_threshold: 0.95,
        memory_threshold: 0.9,
        system_memory_threshold: 0.97,
        lag_threshold: Duration::from_millis(50),
        breach_threshold: 1,
        retuning: None,
    };
    ScaledBudget::new(config, || Sensors::new(None))
}

/// A job of so many items, one a call, and so many workers.
async fn job<F>(
    budget: &ScaledBudget,
    items: usize,
    workers: u32,
    told: Arc<Mutex<Vec<Observation>>>,
    call: F,
) -> Summary
where
    F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
{
    job_of(budget.borrow(), items, workers, told, call).await
}

/// The same under any system of slots.
async fn job_of<F>(
    budget: Arc<dyn Budget>,
    items: usize,
    workers: u32,
    told: Arc<Mutex<Vec<Observation>>>,
    call: F,
) -> Summary
where
    F: for<'a> Fn(&'a [Item], CallInfo) -> NativeCall<'a> + Send + Sync + 'static,
{
    let label: Arc<str> = "job".into();
    let stop = Stop::default();
    let source = SourceConfig {
        input: Input::Stdin,
        format: Format::Lines,
        delimiter: b',',
        key: None,
        max_item_bytes: 1 << 20,
    };
    let text: String = (0..items).map(|n| format!("{n}\n")).collect();
    let tuning = controller::Config {
        workers,
        batch_size: 1,
        ..controller::Config::default()
    };
    let limiter = LimiterConfig {
        max_per_sec: None,
        max_bytes_per_min: None,
        max_per_day: None,
        calendar: Calendar::new("UTC", jiff::civil::Time::midnight()).expect("UTC"),
        state_file: None,
        breach_base_cooldown: Duration::from_secs(60),
        breach_max_doublings: 4,
        breach_quiet_window: Duration::from_secs(300),
        counts_http: false,
    };
    let consumer = Consumer::new("job", Share::default());
    let job = Job {
        label: label.clone(),
        run_id: "run".into(),
        source: Source::from_reader(std::io::Cursor::new(text.into_bytes()), &source)
            .expect("a source"),
        limit: None,
        rejects: None,
        plugin: Native::new(call),
        controller: Box::new(Told {
            fixed: Fixed::new(&tuning),
            told,
        }),
        fixed: false,
        rules: Rules {
            bisect: false,
            bisect_min_size: 1,
            max_batch_retries: 2,
            max_item_attempts: 3,
            on_breach: OnBreach::Resend,
            max_breach_resends: 8,
            on_trap: OnTrap::Abort,
        },
        breaker: Breaker::new(8, None),
        max_batch_bytes: None,
        limiter: Limiter::new(limiter).expect("a limiter"),
        budget: Some(Member::join(budget, consumer).expect("joins")),
        parking: Parking {
            park: true,
            max_cooldown: Duration::from_secs(3600),
        },
        control: None,
        records: Records::new(label, None, None, stop.clone()),
        describe: Describe::Key,
        grace: Duration::from_secs(30),
        stop,
    };
    run(job, |_| ()).await
}

fn written(items: &[Item]) -> CallEnd {
    CallEnd::Written(items.len() as u64)
}

#[tokio::test]
async fn a_run_keeps_to_its_slots_and_the_controller_is_told_what_it_really_got() {
    let budget = budget(2);
    budget.start().await.expect("starts");
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = most.clone();
    let summary = job(&budget, 200, 8, told.clone(), move |items, _| {
        let (now, most) = (now.clone(), most.clone());
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            written(items)
        })
    })
    .await;
    assert_eq!((summary.written, summary.exit_code()), (200, 0));
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    let told = told.lock().expect("no panic");
    let held = told
        .iter()
        .filter(|observation| observation.held_back())
        .count();
    assert_eq!(told.len(), 200);
    // Not the first ones, which nothing held back, nor the last.
    assert!(held > 150, "{held} of {}", told.len());
    assert!(
        told.iter()
            .all(|observation| observation.in_flight.is_none_or(|n| n <= 2))
    );
    assert_eq!(budget.borrow().view().in_use, 0);
    assert!(budget.borrow().view().consumers.is_empty(), "it has left");
}

#[tokio::test]
async fn a_budget_that_is_stopped_ends_the_dispatch_in_order() {
    let budget = Arc::new(budget(2));
    budget.start().await.expect("starts");
    let (calls, stopper) = (AtomicU32::new(0), budget.clone());
    let summary = job(&budget, 1000, 2, Arc::default(), move |items, _| {
        let third = calls.fetch_add(1, Ordering::SeqCst) == 2;
        let stopper = stopper.clone();
        Box::pin(async move {
            if third {
                stopper.stop().await;
            }
            written(items)
        })
    })
    .await;
    assert_eq!(
        (summary.stopped, summary.exit_code()),
        (Stopped::BudgetStopped, 5)
    );
    assert!((3..500).contains(&summary.written), "{summary:?}");
    assert_eq!(summary.unknown + summary.failed, 0);
}

#[tokio::test]
async fn an_attempt_that_pauses_leaves_its_slot_to_others() {
    let budget = budget(1);
    budget.start().await.expect("starts");
    let order = Arc::new(Mutex::new(Vec::new()));
    let began = Arc::new(tokio::sync::Notify::new());
    let run = |name: &'static str, fails: bool| {
        let (order, began) = (order.clone(), began.clone());
        job(&budget, 1, 1, Arc::default(), move |items, info| {
            let (order, began) = (order.clone(), began.clone());
            Box::pin(async move {
                began.notify_one();
                tokio::time::sleep(Duration::from_millis(100)).await;
                order
                    .lock()
                    .expect("no panic")
                    .push((name, info.call_number));
                if fails && info.call_number == 1 {
                    return CallEnd::Failed {
                        message: "later".into(),
                        retryable: true,
                    };
                }
                written(items)
            })
        })
    };
    let (pausing, quick) = tokio::join!(run("pausing", true), async {
        began.notified().await;
        run("quick", false).await
    });
    assert_eq!((pausing.written, quick.written), (1, 1));
    let order = order.lock().expect("no panic");
    assert_eq!(*order, [("pausing", 1), ("quick", 1), ("pausing", 2)]);
    assert_eq!(budget.borrow().view().in_use, 0);
}

#[tokio::test]
async fn a_panic_in_a_call_gives_its_slot_back() {
    let budget = budget(1);
    budget.start().await.expect("starts");
    let broken = job(&budget, 2, 1, Arc::default(), |_, _| {
        Box::pin(async { panic!("as a call may") })
    })
    .await;
    assert_eq!(broken.unknown, 1);
    let whole = job(&budget, 3, 1, Arc::default(), |items, _| {
        Box::pin(async move { written(items) })
    })
    .await;
    assert_eq!(whole.written, 3);
}

/// Another system of slots: one for all.
#[derive(Default)]
struct OneAtATime {
    state: Mutex<(bool, Vec<Wake>)>,
    starts: AtomicU32,
    ends: AtomicU32,
}

impl Budget for OneAtATime {
    fn join(&self, _: &Consumer, wake: Wake) -> Result<(), JoinError> {
        self.state.lock().expect("no panic").1.push(wake);
        Ok(())
    }
    fn leave(&self, _: &Consumer) {}
    fn demand(&self, _: &Consumer, _: u32) {}
    fn try_start(
        &self,
        consumer: &Consumer,
        _: u32,
        ended: bool,
        further: &mut dyn FnMut() -> bool,
    ) -> Result<(), Refusal> {
        if ended {
            self.end(consumer);
        }
        let mut state = self.state.lock().expect("no panic");
        if state.0 {
            let reason = "one at a time".to_owned();
            return Err(Refusal::Held {
                reason,
                until: None,
            });
        }
        if !further() {
            return Err(Refusal::Further);
        }
        state.0 = true;
        self.starts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn end(&self, _: &Consumer) {
        self.ends.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock().expect("no panic");
        state.0 = false;
        let wakes = state.1.clone();
        drop(state);
        wakes.iter().for_each(|wake| wake());
    }
    fn breach(&self, _: &Consumer) {}
    fn share(&self, _: &Consumer) -> u32 {
        1
    }
    fn view(&self) -> View {
        panic!("nobody looks")
    }
}

#[tokio::test]
async fn another_system_of_slots_can_be_brought() {
    let system = Arc::new(OneAtATime::default());
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let run = || {
        let (now, most) = (now.clone(), most.clone());
        job_of(system.clone(), 50, 4, Arc::default(), move |items, _| {
            let (now, most) = (now.clone(), most.clone());
            Box::pin(async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                written(items)
            })
        })
    };
    let (one, other) = tokio::join!(run(), run());
    assert_eq!((one.written, other.written), (50, 50));
    assert_eq!(most.load(Ordering::SeqCst), 1);
    let booked = (&system.starts, &system.ends);
    assert_eq!(booked.0.load(Ordering::SeqCst), 100);
    assert_eq!(
        booked.1.load(Ordering::SeqCst),
        100,
        "each start has one end"
    );
}
