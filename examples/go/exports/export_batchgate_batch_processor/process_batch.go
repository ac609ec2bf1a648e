// Package export_batchgate_batch_processor is the plugin: the bindings look for it under this name.
//
// It posts each batch to `api_url` as a JSON array of {"key": …, "data": …}, and says what the
// server's status means for it (the table in package answer). `data` is the item's data as text; what
// is not UTF-8 in it arrives as U+FFFD.
package export_batchgate_batch_processor

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"uploader/answer"
	"uploader/imports/batchgate_batch_call"
	. "uploader/imports/batchgate_batch_types"
	"uploader/imports/wasi_config_store"
	"uploader/wasihttp"

	wit "go.bytecodealliance.org/pkg/wit/types"
)

// ProcessBatch returns how many of the items were written. A panic would end the instance, and leave
// the fate of the batch unknown.
func ProcessBatch(items []Item) wit.Result[uint64, BatchError] {
	collectGarbage(items)
	written, err := process(items)
	if err != nil {
		return wit.Err[uint64](batchError(err))
	}
	return wit.Ok[uint64, BatchError](written)
}

func process(items []Item) (uint64, error) {
	url := wasi_config_store.Get("api_url")
	if url.IsErr() || url.Ok().IsNone() {
		return 0, answer.Fatal("api_url is not set: add it to [config] in the job")
	}
	headers := map[string]string{
		"content-type":    "application/json",
		"idempotency-key": batchgate_batch_call.Info().IdempotencyKey,
	}
	keys, body, err := rows(items)
	if err != nil {
		return 0, err
	}
	to := url.Ok().Some()
	response, err := wasihttp.Post(to, headers, body)
	switch {
	case err == nil:
		return answer.Of(keys, response)
	case errors.Is(err, wasihttp.ErrDenied), errors.Is(err, wasihttp.ErrInvalid):
		// The URL is the same for every call: none would fare better.
		return 0, answer.Fatal(fmt.Sprintf("api_url %q is %v", to, err))
	default:
		return 0, answer.Failed{Message: err.Error(), Retryable: errors.Is(err, wasihttp.ErrLost)}
	}
}

func rows(items []Item) ([]answer.Item, []byte, error) {
	type row struct {
		Key  string `json:"key"`
		Data string `json:"data"`
	}
	keys := make([]answer.Item, len(items))
	list := make([]row, len(items))
	for i, item := range items {
		keys[i] = answer.Item{Index: item.Index, Key: item.Key}
		list[i] = row{item.Key, string(item.Data)}
	}
	body, err := json.Marshal(list)
	return keys, body, err
}

// batchError turns an error into that of the WIT.
func batchError(err error) BatchError {
	switch err := err.(type) {
	case answer.Fatal:
		return MakeBatchErrorFatal(string(err))
	case answer.TooLarge:
		return MakeBatchErrorTooLarge(string(err))
	case answer.RateLimited:
		wait := wit.None[uint64]()
		if err.RetryAfterMs != nil {
			wait = wit.Some(*err.RetryAfterMs)
		}
		return MakeBatchErrorRateLimited(RateLimit{Message: err.Message, RetryAfterMs: wait})
	case answer.Partial:
		list := make([]ItemFailure, len(err))
		for i, item := range err {
			list[i] = ItemFailure{Index: item.Index, Message: item.Message, Retryable: item.Retryable}
		}
		return MakeBatchErrorPartial(list)
	case answer.Failed:
		return MakeBatchErrorFailed(Failure{Message: err.Message, Retryable: err.Retryable})
	default:
		return MakeBatchErrorFailed(Failure{Message: err.Error()})
	}
}

// The collector asks the host for the time, which it may not do while the host hands over a batch. So
// it runs at no moment of its own, but here.
func init() { debug.SetGCPercent(-1) }

// Bytes and calls after which garbage is collected.
const (
	collectAfterBytes = 1 << 20
	collectAfterCalls = 100
)

var seenBytes, seenCalls int

func collectGarbage(items []Item) {
	seenCalls++
	for _, item := range items {
		seenBytes += len(item.Key) + len(item.Data)
	}
	if seenBytes >= collectAfterBytes || seenCalls >= collectAfterCalls {
		runtime.GC()
		seenBytes, seenCalls = 0, 0
	}
}
