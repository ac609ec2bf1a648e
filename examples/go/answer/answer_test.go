package answer

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

var items = []Item{{10, "a"}, {11, "b"}, {12, "c"}}

type headers = map[string]string

func TestSuccessesSayHowManyWereWritten(t *testing.T) {
	for _, c := range []struct {
		status   int
		body     string
		expected uint64
	}{
		{200, `{"written": 2}`, 2},
		{200, `{"written": 0}`, 0},
		{201, ``, 3},
		{202, `accepted`, 3},
		{204, `null`, 3},
		{200, `{"written": -1}`, 3},
	} {
		got, err := Of(items, &Response{Status: c.status, Body: []byte(c.body)})
		if err != nil || got != c.expected {
			t.Errorf("%d %s: %d, %v", c.status, c.body, got, err)
		}
	}
}

func TestStatusesMapToTheContract(t *testing.T) {
	const date, later = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:47 GMT"
	retry := func(value string) headers { return headers{"retry-after": value} }
	limited := func(message string, ms uint64) error { return RateLimited{message, &ms} }
	for _, c := range []struct {
		status   int
		headers  headers
		body     string
		expected error
	}{
		{413, nil, ``, TooLarge("HTTP 413")},
		{401, nil, `who?`, Fatal("HTTP 401: who?")},
		{403, nil, ``, Fatal("HTTP 403")},
		{422, nil, `{"error":"row k2: bad value"}`, Failed{"HTTP 422: row k2: bad value", false}},
		{404, nil, "\n gone \n", Failed{"HTTP 404: gone", false}},
		{302, nil, ``, Failed{"HTTP 302", false}},
		{500, nil, ``, Failed{"HTTP 500", true}},
		{503, nil, ``, Failed{"HTTP 503", true}},
		{503, retry("soon"), ``, Failed{"HTTP 503", true}},
		{503, retry("2"), ``, limited("HTTP 503", 2000)},
		{429, nil, ``, RateLimited{"HTTP 429", nil}},
		{429, retry("0"), ``, limited("HTTP 429", 0)},
		{429, retry("-1"), ``, RateLimited{"HTTP 429", nil}},
		{429, retry(strings.Repeat("9", 30)), ``, limited("HTTP 429", math.MaxUint64)},
		{429, headers{"date": date, "retry-after": later}, ``, limited("HTTP 429", 10_000)},
		{429, retry(date), ``, limited("HTTP 429", 0)},
		{400, nil, strings.Repeat("é", 5000), Failed{"HTTP 400: " + strings.Repeat("é", 200), false}},
	} {
		_, err := Of(items, &Response{c.status, c.headers, []byte(c.body)})
		if !reflect.DeepEqual(err, c.expected) {
			t.Errorf("%d %v: %#v, not %#v", c.status, c.headers, err, c.expected)
		}
	}
}

func TestA207ListsTheItemsThatFailed(t *testing.T) {
	const unnamed = "the server gave no status for it"
	for _, c := range []struct {
		items    []Item
		body     string
		expected error
	}{
		{items, `{"items":[{"key":"a","status":200},{"key":"b","status":201},{"key":"c","status":200}]}`, nil},
		{items, `{"items":[{"key":"a","status":422,"message":"bad row"},{"key":"b","status":200},{"key":"c","status":503}]}`,
			Partial{{10, "HTTP 422: bad row", false}, {12, "HTTP 503: ", true}}},
		// Another order, and one left out.
		{items, `{"items":[{"key":"c","status":429},{"key":"a","status":200}]}`,
			Partial{{11, unnamed, true}, {12, "HTTP 429: ", true}}},
		// Two of one key.
		{[]Item{{0, "k"}, {1, "k"}}, `{"items":[{"key":"k","status":200},{"key":"k","status":422,"message":"no"}]}`,
			Partial{{1, "HTTP 422: no", false}}},
	} {
		written, err := Of(c.items, &Response{Status: 207, Body: []byte(c.body)})
		if !reflect.DeepEqual(err, c.expected) || err == nil && written != 3 {
			t.Errorf("%s: %d, %#v", c.body, written, err)
		}
	}
	for _, body := range []string{"", "[]", "null", `{"items":[{"key":1}]}`, `{"items":[null]}`} {
		_, err := Of(items, &Response{Status: 207, Body: []byte(body)})
		failed, is := err.(Failed)
		if !is || failed.Retryable || !strings.HasPrefix(failed.Message, "HTTP 207 without") {
			t.Errorf("%s: %#v", body, err)
		}
	}
}
