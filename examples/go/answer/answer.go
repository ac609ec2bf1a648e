// Package answer says what the server's answer means for a batch. It asks nothing of the host, so it
// is tested natively.
//
//	| Server                       | Answer                                                       |
//	|------------------------------|--------------------------------------------------------------|
//	| 207                          | written, but for the items whose own status is not 2xx; 429  |
//	|                              | and 5xx are sent again                                       |
//	| other 2xx                    | `written` of the body if it has one, else all items          |
//	| 401, 403                     | fatal                                                        |
//	| 413                          | too large                                                    |
//	| 429; 503 with Retry-After    | rate-limited                                                 |
//	| other 5xx, a lost connection | failed, retryable                                            |
//	| anything else                | failed, not retryable                                        |
package answer

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxWords is how many characters of the server's own words a message has.
const maxWords = 200

// Response is what the server said.
type Response struct {
	Status int
	// Headers by name in lower case; the first of each.
	Headers map[string]string
	Body    []byte
}

// Item is what matters here of an item: its index in the input, and its key.
type Item struct {
	Index uint64
	Key   string
}

// Failed is a call that failed as a whole.
type Failed struct {
	Message   string
	Retryable bool
}

// Fatal says that no call of the job can succeed.
type Fatal string

// TooLarge says that the batch was too large for the server.
type TooLarge string

// RateLimited says that the server refused the call for our rate.
type RateLimited struct {
	Message string
	// RetryAfterMs is how long the server asked to wait, if it did.
	RetryAfterMs *uint64
}

// ItemFailure is an item that was not written.
type ItemFailure struct {
	Index     uint64
	Message   string
	Retryable bool
}

// Partial says that all items were written but these.
type Partial []ItemFailure

func (e Failed) Error() string      { return e.Message }
func (e Fatal) Error() string       { return string(e) }
func (e TooLarge) Error() string    { return string(e) }
func (e RateLimited) Error() string { return e.Message }
func (e Partial) Error() string     { return fmt.Sprintf("%d items failed", len(e)) }

// Of returns how many items were written, or one of the errors above.
func Of(items []Item, response *Response) (uint64, error) {
	wait := retryAfterMs(response.Headers)
	switch status := response.Status; {
	case status == 207:
		return each(items, response.Body)
	case status >= 200 && status <= 299:
		var body struct{ Written *uint64 }
		if json.Unmarshal(response.Body, &body) == nil && body.Written != nil {
			return *body.Written, nil
		}
		return uint64(len(items)), nil
	case status == 401 || status == 403:
		return 0, Fatal(describe(response))
	case status == 413:
		return 0, TooLarge(describe(response))
	case status == 429 || status == 503 && wait != nil:
		return 0, RateLimited{describe(response), wait}
	default:
		return 0, Failed{describe(response), status >= 500 && status <= 599}
	}
}

type status struct {
	Key     *string
	Status  *int
	Message string
}

// each reads a status an item.
func each(items []Item, body []byte) (uint64, error) {
	var answer struct{ Items []status }
	problem := json.Unmarshal(body, &answer)
	byKey := make(map[string]*status, len(answer.Items))
	for i := range answer.Items {
		found := &answer.Items[i]
		if found.Key == nil || found.Status == nil {
			problem = fmt.Errorf("one has no key or no status")
			break
		}
		byKey[*found.Key] = found
	}
	if problem == nil && answer.Items == nil {
		problem = fmt.Errorf("no items")
	}
	if problem != nil {
		return 0, Failed{Message: fmt.Sprintf("HTTP 207 without a list of statuses: %v", problem)}
	}
	var failures Partial
	for i, item := range items {
		// By position first: a batch may hold two items of the same key.
		found := byKey[item.Key]
		if i < len(answer.Items) && *answer.Items[i].Key == item.Key {
			found = &answer.Items[i]
		}
		switch {
		case found == nil:
			failures = append(failures, ItemFailure{item.Index, "the server gave no status for it", true})
		case *found.Status < 200 || *found.Status > 299:
			code := *found.Status
			message := fmt.Sprintf("HTTP %d: %s", code, found.Message)
			failures = append(failures, ItemFailure{item.Index, message, code == 429 || code >= 500 && code <= 599})
		}
	}
	if failures != nil {
		return 0, failures
	}
	return uint64(len(items)), nil
}

const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// retryAfterMs is how long Retry-After asks to wait: seconds, or until a date, which is measured from
// the response's own Date if there is one. Nil if it says neither.
func retryAfterMs(headers map[string]string) *uint64 {
	value := strings.TrimSpace(headers["retry-after"])
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > math.MaxUint64/1000 {
			return new(uint64(math.MaxUint64))
		}
		return new(seconds * 1000)
	}
	until, err := time.Parse(httpDate, value)
	if err != nil {
		return nil
	}
	now, err := time.Parse(httpDate, headers["date"])
	if err != nil {
		now = time.Now()
	}
	return new(uint64(max(0, until.Sub(now).Milliseconds())))
}

// describe says the status, and what the body says: its `error` if it is JSON with one, else its start.
func describe(response *Response) string {
	var problem struct{ Error *string }
	words := strings.ToValidUTF8(string(response.Body), "\ufffd")
	if json.Unmarshal(response.Body, &problem) == nil && problem.Error != nil {
		words = *problem.Error
	}
	start := []rune(strings.TrimSpace(words))
	if len(start) == 0 {
		return fmt.Sprintf("HTTP %d", response.Status)
	}
	return fmt.Sprintf("HTTP %d: %s", response.Status, string(start[:min(len(start), maxWords)]))
}
