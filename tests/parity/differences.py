"""Where Batchgate's controller does better than its reference, on purpose: for each difference a
configuration, what happens, and what must come of it. The states are written here by hand, from
the rules; the reference's own are recorded beside them."""

CLEARED = "__cleared__"
NOTHING = []


def window(per_item, count=5, n_items=None):
    """So many good attempts at the present setting."""
    return {"per_item": per_item, "count": count, "n_items": n_items}


def rows(**values):
    return {"overrides": values}


def difference(config, start, *steps):
    """Steps: what happens, what is said after it, and (epoch, workers, batch_size) then."""
    events, states = [], []
    epoch, workers, batch_size = 0, *start
    for what, changes, (next_epoch, next_workers, next_batch_size) in steps:
        if "overrides" in what:
            events.append(what)
        else:
            n_items = batch_size if what["n_items"] is None else what["n_items"]
            for _ in range(what["count"]):
                events.append({"epoch": epoch, "workers": workers, "batch_size": batch_size, "n_items": n_items,
                               "elapsed": what["per_item"] * max(1, n_items), "ok": True, "size_fault": False})
                states.append({"changes": [], "epoch": epoch, "workers": workers, "batch_size": batch_size})
            states.pop()
        epoch, workers, batch_size = next_epoch, next_workers, next_batch_size
        states.append({"changes": changes, "epoch": epoch, "workers": workers, "batch_size": batch_size})
    return {"config": config, "events": events, "states": states}


WORKERS = {"workers": 3, "max_workers": 16, "batch_size": 8}
BATCHES = {"workers": 1, "max_workers": 1, "batch_size": 8, "max_batch_size": 64, "batch_step": 4}

DIFFERENCES = {
    "lowered-maximum": difference(
        WORKERS, (3, 8),
        (rows(max_workers="2"), ["max_workers 16->2", "clamp workers 3->2"], (1, 2, 8)),
        (window(1.0), NOTHING, (1, 2, 8)),
    ),
    "raised-minimum": difference(
        WORKERS, (3, 8),
        (rows(min_workers="5"), ["min_workers 1->5", "clamp workers 3->5"], (1, 5, 8)),
        (window(1.0), ["probe workers 5->6"], (2, 6, 8)),
    ),
    "revert-below-a-raised-minimum": difference(
        BATCHES, (1, 8),
        (window(1.0), ["probe batch_size 8->12"], (1, 1, 12)),
        (rows(min_batch_size="10"), ["min_batch_size 1->10"], (1, 1, 12)),
        (window(2.0), ["revert batch_size 12->10 (throughput 0.50x best)"], (2, 1, 10)),
    ),
    "not-a-count": difference(
        WORKERS, (3, 8),
        (rows(max_workers="many"), ["ignored max_workers=many: not a whole number of at least 1"], (0, 3, 8)),
        (rows(force_workers="4"), ["force workers 3->4"], (1, 4, 8)),
    ),
    "count-of-0": difference(
        WORKERS, (3, 8),
        (rows(max_workers="0"), ["ignored max_workers=0: not a whole number of at least 1"], (0, 3, 8)),
        (window(1.0), ["probe workers 3->4"], (1, 4, 8)),
    ),
    "minimum-above-maximum": difference(
        WORKERS, (3, 8),
        (rows(min_workers="17"), ["ignored min_workers=17: above max_workers=16"], (0, 3, 8)),
        (rows(max_workers="2", min_workers="3"),
         ["max_workers 16->2", "ignored min_workers=3: above max_workers=2", "clamp workers 3->2"], (1, 2, 8)),
    ),
    "cleared-bound": difference(
        WORKERS, (3, 8),
        (rows(max_workers="20"), ["max_workers 16->20"], (0, 3, 8)),
        (rows(max_workers=CLEARED), ["max_workers 20->16"], (0, 3, 8)),
    ),
    "force-once-a-row": difference(
        WORKERS, (3, 8),
        (rows(force_workers="6"), ["force workers 3->6"], (1, 6, 8)),
        (window(1.0, 6), ["probe workers 6->7"], (2, 7, 8)),
        (rows(max_batch_size="20"), ["max_batch_size 8->20"], (2, 7, 8)),
    ),
    "no-time": difference(
        WORKERS, (3, 8),
        (window(0.0), ["probe workers 3->4"], (1, 4, 8)),
    ),
    "no-items": difference(
        WORKERS, (3, 8),
        (window(1.0, 5, 0), NOTHING, (0, 3, 8)),
        (window(1.0), ["probe workers 3->4"], (1, 4, 8)),
    ),
}
