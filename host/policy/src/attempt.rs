//! A batch from dispatch to its end: which call to make next, what each answer means for
//! the items, and what the whole attempt says to the tuner and the breaker.
//!
//! The strategy is apart from the doing: [`Attempt::next`] says what to call, the caller calls it and
//! [`Attempt::mark`]s the result, and [`Attempt::finish`] gives the account.
//!
//! Invariant: every item of the batch is in exactly one of the ends that `finish` returns.

use crate::bisect::Positions;
use crate::breaker::BreakerEffect;
use crate::outcome::{CallEnd, CallResult, ItemFailure, UsageOutcome};
use std::time::Duration;

/// The pause before the first re-send of a batch; it doubles with each further one.
pub const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// The longest pause is `RETRY_BACKOFF` doubled this often (about an hour).
const MAX_BACKOFF_DOUBLINGS: u32 = 12;

/// The most that jitter lengthens a pause by, as a share of it: enough that batches that failed
/// together do not come back together.
const JITTER: f64 = 0.25;

/// What to do with a batch that the server refused for our rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBreach {
    /// Send the same batch again after the cooldown.
    Resend,
    /// Take it as a failed batch.
    Fail,
}

/// What a trap means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTrap {
    /// The run stops in order.
    Abort,
    /// It is a failed batch.
    Fail,
}

/// How failed calls are recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether a failed part is halved and sent again.
    pub bisect: bool,
    /// Nothing of this size or below is halved, but for a too-large batch; at least 1.
    pub bisect_min_size: u32,
    /// Re-sends of a batch whose failure is retryable.
    pub max_batch_retries: u32,
    /// Calls that an item may take part in when partial answers call it retryable, at least 1.
    pub max_item_attempts: u32,
    /// See [`OnBreach`].
    pub on_breach: OnBreach,
    /// Re-sends of a batch that was refused for our rate.
    pub max_breach_resends: u32,
    /// See [`OnTrap`].
    pub on_trap: OnTrap,
}

/// What ended an item otherwise than done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of it.
    pub class: Class,
    /// Why, in one line.
    pub message: String,
}

/// The kind of a fault: the outcome of the last call that an item took part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The call failed as a whole.
    Failed,
    /// A partial answer listed the item.
    Partial,
    /// The item alone was too large for the server.
    TooLarge,
    /// The server refused it for our rate too often.
    RateLimited,
    /// The guest said that no call can succeed.
    Fatal,
    /// The guest trapped or exceeded a limit.
    Trap,
    /// The call exceeded its time.
    Timeout,
    /// The host abandoned the call while stopping.
    Abandoned,
}

impl Class {
    /// The word for files.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Failed => "failed",
            Class::Partial => "partial",
            Class::TooLarge => "too-large",
            Class::RateLimited => "rate-limited",
            Class::Fatal => "fatal",
            Class::Trap => "trap",
            Class::Timeout => "timeout",
            Class::Abandoned => "abandoned",
        }
    }
}

/// What became of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Written, or skipped by the guest: which of a call's items is known to the guest alone.
    Done {
        /// How many of the items were written; the others were skipped.
        written: u32,
    },
    /// Failed for good.
    Failed(Fault),
    /// Sent, with no answer: it may or may not have been written.
    Unknown(Fault),
    /// Not sent, or refused and still to be sent again, whole or in parts, when the run stopped.
    NotDispatched,
}

impl Fate {
    /// The fate of items that had this one and were then refused, if nothing sends them again: a call
    /// that ended without an answer before stays what it was.
    fn refused(self) -> Fate {
        match self {
            Fate::Unknown(_) => self,
            Fate::Done { .. } | Fate::Failed(_) | Fate::NotDispatched => Fate::NotDispatched,
        }
    }
}

/// Items that came to the same end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Their places in the batch.
    pub positions: Positions,
    /// What became of them.
    pub fate: Fate,
    /// Calls that they took part in.
    pub calls: u32,
}

/// How many items came to each end. Adds up to the length of the batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Written.
    pub written: u64,
    /// Fine, with nothing to write.
    pub skipped: u64,
    /// Failed for good.
    pub failed: u64,
    /// Sent, with no answer.
    pub unknown: u64,
    /// Not sent, or to be sent again.
    pub not_dispatched: u64,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.written + self.skipped + self.failed + self.unknown + self.not_dispatched
    }
}

/// Why the whole run has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// The guest said that no call can succeed.
    Fatal,
    /// The guest trapped, and traps abort.
    Trap,
}

/// A call to make.
#[derive(Debug, PartialEq, Eq)]
pub struct NextCall<'a> {
    /// Over which items.
    pub positions: &'a Positions,
    /// Counts the attempt's calls, from 1.
    pub number: u32,
    /// How long to pause before it.
    pub pause: Duration,
}

/// What a marked call came to, for the records.
#[derive(Debug, PartialEq, Eq)]
pub struct Marked {
    /// For the usage log.
    pub outcome: UsageOutcome,
    /// Why the whole run has to stop, if it has to.
    pub stop: Option<StopCause>,
    /// Something in the answer did not fit and was put right: said to the user.
    pub note: Option<Note>,
}

/// An answer that did not fit its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// More items written than the call had.
    WrittenClamped {
        /// What the guest said.
        said: u64,
        /// What the call had.
        had: u32,
    },
    /// Entries of a partial list that were ignored.
    PartialIgnored {
        /// Their index is not in the call.
        foreign: u64,
        /// Their index was listed before.
        repeated: u64,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::WrittenClamped { said, had } => write!(
                f,
                "the plugin says that it wrote {said} items of a call with {had}: counted as {had}"
            ),
            Note::PartialIgnored { foreign, repeated } => write!(
                f,
                "entries of the plugin's partial list were ignored: {foreign} name no item of the call, {repeated} \
                 repeat one"
            ),
        }
    }
}

/// The account of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    /// Every item, in groups.
    pub ends: Vec<End>,
    /// The same as numbers.
    pub counts: Counts,
    /// The errors of all parts that failed, for the failures file; empty if none did.
    pub errors: Vec<String>,
    /// Something of it was ok.
    pub succeeded: bool,
    /// What it says to the breaker.
    pub breaker: BreakerEffect,
    /// The first call succeeded, so its time is a latency sample.
    pub sample: bool,
    /// The first call failed, and its size is to blame as far as anyone can tell.
    pub size_fault: bool,
    /// No call was made.
    pub uncalled: bool,
}

/// A part of the batch that is to be called.
#[derive(Debug)]
struct Part {
    positions: Positions,
    /// Calls over it (or over what it was cut from) so far.
    calls: u32,
    /// Of these, re-sends after retryable failures.
    retries: u32,
    /// Of these, re-sends after refusals for our rate.
    resends: u32,
    /// Partial answers that called these items retryable.
    item_attempts: u32,
    pause: Duration,
    /// It is the whole batch.
    whole: bool,
    /// What becomes of its items if no further call is made.
    otherwise: Fate,
}

/// What a failed call means beyond its items.
struct Verdict {
    /// What becomes of items that nothing recovers.
    fate: Fate,
    /// Evidence about size, if it was the whole batch that failed.
    evidence: bool,
    /// Counts to the breaker.
    counts: bool,
    /// Whether to halve it.
    split: bool,
}

/// One batch on its way.
#[derive(Debug)]
pub struct Attempt {
    rules: Rules,
    /// Parts to be called, the next one last.
    parts: Vec<Part>,
    calls: u32,
    ends: Vec<End>,
    counts: Counts,
    errors: Vec<String>,
    any_ok: bool,
    counted: bool,
    sample: bool,
    /// The last failure of the whole batch was evidence about its size.
    whole_evidence: bool,
    /// The server said that it was too large.
    certain: bool,
    /// Bisection came down to items that fail by themselves.
    isolated: bool,
}

impl Attempt {
    /// An attempt at a batch of `len` items.
    pub fn new(len: u32, rules: Rules) -> Self {
        let whole = Part {
            positions: Positions::Run(0..len),
            calls: 0,
            retries: 0,
            resends: 0,
            item_attempts: 0,
            pause: Duration::ZERO,
            whole: true,
            otherwise: Fate::NotDispatched,
        };
        Self {
            rules,
            parts: vec![whole],
            calls: 0,
            ends: Vec::new(),
            counts: Counts::default(),
            errors: Vec::new(),
            any_ok: false,
            counted: false,
            sample: false,
            whole_evidence: false,
            certain: false,
            isolated: false,
        }
    }

    /// The next call to make, if there is one. Asking again gives the same answer until it is marked.
    pub fn next(&self) -> Option<NextCall<'_>> {
        self.parts.last().map(|part| NextCall {
            positions: &part.positions,
            number: self.calls + 1,
            pause: part.pause,
        })
    }

    /// Takes the result of the call that [`Attempt::next`] named. `position_of` gives the place in the batch
    /// of an item's own index; `jitter` is a random number from 0 to 1.
    pub fn mark(
        &mut self,
        result: CallResult,
        position_of: impl Fn(u64) -> Option<u32>,
        jitter: f64,
    ) -> Marked {
        let Some(mut part) = self.parts.pop() else {
            debug_assert!(false, "a call was marked that was not asked for");
            return Marked {
                outcome: UsageOutcome::Fail,
                stop: None,
                note: None,
            };
        };
        let first = self.calls == 0;
        self.calls += 1;
        part.calls += 1;
        part.pause = Duration::ZERO;
        let CallResult {
            end,
            breached,
            backing_off,
            unanswered,
        } = result;
        if unanswered && let Some(message) = message(&end) {
            // A later refusal says nothing of what this call may have written.
            part.otherwise = unknown(Class::Failed, message);
        }
        let (mut outcome, mut stop, mut note) = (UsageOutcome::Fail, None, None);
        match end {
            CallEnd::Written(said) => {
                let had = part.positions.len();
                if said > u64::from(had) {
                    note = Some(Note::WrittenClamped { said, had });
                }
                let written = said.min(u64::from(had));
                self.counts.written += written;
                self.counts.skipped += u64::from(had) - written;
                self.any_ok = true;
                self.sample |= first;
                // At most `had`, which is a u32.
                let written = written as u32;
                self.end(part, Fate::Done { written });
                outcome = UsageOutcome::Ok;
            }
            CallEnd::Partial(list) => {
                self.sample |= first;
                let (wrote_any, ignored) = self.partial(part, list, position_of, jitter);
                note = ignored;
                if wrote_any {
                    outcome = UsageOutcome::Ok;
                } else if breached || backing_off {
                    outcome = UsageOutcome::Breach;
                }
            }
            CallEnd::RateLimited { message, .. } => {
                self.refused(part, message);
                outcome = UsageOutcome::Breach;
            }
            CallEnd::Failed { message, .. } if breached => {
                self.refused(part, message);
                outcome = UsageOutcome::Breach;
            }
            CallEnd::Failed { message, retryable } => {
                if retryable && part.retries < self.rules.max_batch_retries {
                    part.pause = backoff(part.retries, jitter);
                    part.retries += 1;
                    part.otherwise = part.otherwise.refused();
                    self.parts.push(part);
                } else {
                    let verdict = Verdict {
                        fate: failed(Class::Failed, message),
                        evidence: !backing_off,
                        counts: true,
                        split: self.rules.bisect,
                    };
                    self.failed(part, verdict);
                }
                if backing_off {
                    outcome = UsageOutcome::Breach;
                }
            }
            CallEnd::TooLarge(message) => self.too_large(part, message),
            CallEnd::Fatal(message) => {
                stop = Some(StopCause::Fatal);
                self.errors.push(message.clone());
                self.end(part, failed(Class::Fatal, message));
            }
            CallEnd::Trapped(reason) => {
                let abort = self.rules.on_trap == OnTrap::Abort;
                stop = abort.then_some(StopCause::Trap);
                let verdict = Verdict {
                    fate: unknown(Class::Trap, reason),
                    evidence: false,
                    counts: true,
                    split: self.rules.bisect && !abort,
                };
                self.failed(part, verdict);
            }
            CallEnd::TimedOut(reason) => {
                let verdict = Verdict {
                    fate: unknown(Class::Timeout, reason),
                    evidence: true,
                    counts: true,
                    split: self.rules.bisect,
                };
                self.failed(part, verdict);
            }
            CallEnd::Abandoned(reason) => {
                self.errors.push(reason.clone());
                self.end(part, unknown(Class::Abandoned, reason));
            }
        }
        Marked {
            outcome,
            stop,
            note,
        }
    }

    /// The account. Parts that were still to be called come to the end that their last call left them.
    pub fn finish(mut self) -> Account {
        while let Some(part) = self.parts.pop() {
            let fate = part.otherwise.clone();
            self.errors.extend(error(&fate));
            self.end(part, fate);
        }
        let breaker = if self.any_ok {
            BreakerEffect::Reset
        } else if self.counted {
            BreakerEffect::Count
        } else {
            BreakerEffect::Neither
        };
        let size_fault = !self.sample && (self.certain || (self.whole_evidence && !self.isolated));
        Account {
            ends: self.ends,
            counts: self.counts,
            errors: self.errors,
            succeeded: self.any_ok,
            breaker,
            sample: self.sample,
            size_fault,
            uncalled: self.calls == 0,
        }
    }

    /// All written but those listed. Returns whether any was, and what did not fit.
    fn partial(
        &mut self,
        part: Part,
        list: Vec<ItemFailure>,
        position_of: impl Fn(u64) -> Option<u32>,
        jitter: f64,
    ) -> (bool, Option<Note>) {
        let (mut foreign, mut repeated) = (0, 0);
        let mut listed: Vec<(u32, ItemFailure)> = Vec::with_capacity(list.len());
        for failure in list {
            match position_of(failure.index).filter(|&p| part.positions.contains(p)) {
                Some(position) => listed.push((position, failure)),
                None => foreign += 1,
            }
        }
        // The first entry of an item counts: the sort keeps their order.
        listed.sort_by_key(|&(position, _)| position);
        let before = listed.len();
        listed.dedup_by_key(|&mut (position, _)| position);
        repeated += (before - listed.len()) as u64;

        let written: Vec<u32> = part
            .positions
            .iter()
            .filter(|p| listed.binary_search_by_key(p, |&(l, _)| l).is_err())
            .collect();
        let wrote_any = !written.is_empty();
        if wrote_any {
            self.counts.written += written.len() as u64;
            self.any_ok = true;
            self.ends.push(End {
                fate: Fate::Done {
                    written: written.len() as u32,
                },
                positions: Positions::Some(written),
                calls: part.calls,
            });
        } else {
            self.counted = true;
        }

        let attempts = part.item_attempts + 1;
        let mut again = Vec::new();
        for (position, failure) in listed {
            if failure.retryable && attempts < self.rules.max_item_attempts {
                again.push(position);
            } else {
                self.counts.failed += 1;
                self.errors.push(failure.message.clone());
                self.ends.push(End {
                    positions: Positions::Run(position..position + 1),
                    fate: failed(Class::Partial, failure.message),
                    calls: part.calls,
                });
            }
        }
        if !again.is_empty() {
            self.parts.push(Part {
                positions: Positions::Some(again),
                pause: backoff(part.item_attempts, jitter),
                item_attempts: attempts,
                whole: false,
                otherwise: part.otherwise.refused(),
                ..part
            });
        }
        let ignored = foreign + repeated > 0;
        let note = ignored.then_some(Note::PartialIgnored { foreign, repeated });
        (wrote_any, note)
    }

    /// The server refused a call for our rate.
    fn refused(&mut self, mut part: Part, message: String) {
        let resend = self.rules.on_breach == OnBreach::Resend;
        if resend && part.resends < self.rules.max_breach_resends {
            part.resends += 1;
            part.otherwise = part.otherwise.refused();
            self.parts.push(part);
            return;
        }
        // A server that refused a batch so often would refuse its halves as well.
        let verdict = Verdict {
            fate: failed(Class::RateLimited, message),
            evidence: false,
            counts: true,
            split: self.rules.bisect && !resend,
        };
        self.failed(part, verdict);
    }

    fn too_large(&mut self, part: Part, message: String) {
        let splittable = part.positions.len() > 1;
        self.certain |= splittable;
        if splittable {
            self.split(part, failed(Class::TooLarge, message));
        } else {
            self.isolated = true;
            self.errors.push(message.clone());
            self.end(part, failed(Class::TooLarge, message));
        }
    }

    fn failed(&mut self, part: Part, verdict: Verdict) {
        self.counted |= verdict.counts;
        if part.whole {
            self.whole_evidence = verdict.evidence;
        }
        let small = part.positions.len() <= self.rules.bisect_min_size.max(1);
        if verdict.split && !small {
            self.split(part, verdict.fate);
            return;
        }
        self.isolated |= self.rules.bisect && small;
        self.errors.extend(error(&verdict.fate));
        self.end(part, verdict.fate);
    }

    /// Halves a part; the first half is called first. Re-sends that the part used up stay used up, so
    /// that a dead server is not asked three times for each of a hundred parts. If the run stops before, the items of a
    /// part are unknown where the call's `fate` is, and else not dispatched: that the whole failed says nothing of them.
    fn split(&mut self, part: Part, fate: Fate) {
        let (first, second) = part.positions.halve();
        let otherwise = match fate {
            Fate::Unknown(_) => fate,
            _ => part.otherwise.clone().refused(),
        };
        for positions in [second, first] {
            self.parts.push(Part {
                positions,
                whole: false,
                otherwise: otherwise.clone(),
                ..part
            });
        }
    }

    fn end(&mut self, part: Part, fate: Fate) {
        let items = u64::from(part.positions.len());
        match fate {
            // Its caller knows how many were written and how many skipped.
            Fate::Done { .. } => {}
            Fate::Failed(_) => self.counts.failed += items,
            Fate::Unknown(_) => self.counts.unknown += items,
            Fate::NotDispatched => self.counts.not_dispatched += items,
        }
        self.ends.push(End {
            positions: part.positions,
            fate,
            calls: part.calls,
        });
    }
}

fn failed(class: Class, message: String) -> Fate {
    Fate::Failed(Fault { class, message })
}

fn unknown(class: Class, message: String) -> Fate {
    Fate::Unknown(Fault { class, message })
}

/// Why a call failed that may be followed by another.
fn message(end: &CallEnd) -> Option<String> {
    match end {
        CallEnd::Failed { message, .. }
        | CallEnd::TooLarge(message)
        | CallEnd::RateLimited { message, .. } => Some(message.clone()),
        CallEnd::Partial(list) => list.first().map(|failure| failure.message.clone()),
        CallEnd::Written(_)
        | CallEnd::Fatal(_)
        | CallEnd::Trapped(_)
        | CallEnd::TimedOut(_)
        | CallEnd::Abandoned(_) => None,
    }
}

/// What a fate adds to the errors of the attempt.
fn error(fate: &Fate) -> Option<String> {
    match fate {
        Fate::Failed(fault) | Fate::Unknown(fault) => Some(fault.message.clone()),
        Fate::Done { .. } | Fate::NotDispatched => None,
    }
}

/// The pause before the next re-send, after `earlier` ones.
fn backoff(earlier: u32, jitter: f64) -> Duration {
    let base = RETRY_BACKOFF * 2u32.pow(earlier.min(MAX_BACKOFF_DOUBLINGS));
    base.mul_f64(1.0 + JITTER * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
