// Package wasihttp sends one HTTP request and reads its response, over wasi:http.
package wasihttp

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"uploader/answer"
	handler "uploader/imports/wasi_http_outgoing_handler"
	http "uploader/imports/wasi_http_types"
	streams "uploader/imports/wasi_io_streams"

	wit "go.bytecodealliance.org/pkg/wit/types"
)

// A longer response is an error, before it fills the memory.
const maxResponse = 16 << 20

// chunk is what `blocking-write-and-flush` takes at once.
const chunk = 4096

var (
	// ErrInvalid is a request that nobody can send.
	ErrInvalid = errors.New("not a URL that can be sent to: http://HOST/PATH")
	// ErrDenied is one that the job does not allow.
	ErrDenied = errors.New("denied: name it in [sandbox] allow_hosts in the job")
	// ErrLost says that no response was had; another try may have one.
	ErrLost = errors.New("no response")
	// ErrTooLong is a response longer than 16 MiB.
	ErrTooLong = errors.New("the response is longer than 16 MiB")
)

// Post sends a body with these headers.
func Post(to string, headers map[string]string, body []byte) (*answer.Response, error) {
	request, err := newRequest(to, headers, len(body))
	if err != nil {
		return nil, err
	}
	outgoing := request.Body().Ok()
	sent := handler.Handle(request, wit.None[*http.RequestOptions]())
	if sent.IsErr() {
		outgoing.Drop()
		return nil, noResponse(sent.Err())
	}
	future := sent.Ok()
	defer future.Drop()
	write(outgoing, body)
	response, err := wait(future)
	if err != nil {
		return nil, err
	}
	defer response.Drop()
	content, err := read(response)
	return &answer.Response{Status: int(response.Status()), Headers: headersOf(response), Body: content}, err
}

func newRequest(to string, headers map[string]string, length int) (*http.OutgoingRequest, error) {
	parsed, err := url.Parse(to)
	if err != nil || parsed.Host == "" || parsed.User != nil {
		return nil, ErrInvalid
	}
	var scheme http.Scheme
	switch parsed.Scheme {
	case "http":
		scheme = http.MakeSchemeHttp()
	case "https":
		scheme = http.MakeSchemeHttps()
	default:
		return nil, ErrInvalid
	}
	fields := http.MakeFields()
	headers["content-length"] = fmt.Sprint(length)
	for name, value := range headers {
		if fields.Append(name, []byte(value)).IsErr() {
			return nil, ErrInvalid
		}
	}
	request := http.MakeOutgoingRequest(fields)
	bad := request.SetMethod(http.MakeMethodPost()).IsErr() ||
		request.SetScheme(wit.Some(scheme)).IsErr() ||
		request.SetAuthority(wit.Some(parsed.Host)).IsErr() ||
		request.SetPathWithQuery(wit.Some(parsed.RequestURI())).IsErr()
	if bad {
		request.Drop()
		return nil, ErrInvalid
	}
	return request, nil
}

// write ends early where the server answers before it has read all of it, and hangs up: that shows in
// the response, or in that there is none.
func write(body *http.OutgoingBody, content []byte) {
	stream := body.Write().Ok()
	for len(content) > 0 {
		now := content[:min(len(content), chunk)]
		if stream.BlockingWriteAndFlush(now).IsErr() {
			stream.Drop()
			body.Drop()
			return
		}
		content = content[len(now):]
	}
	stream.Drop()
	http.OutgoingBodyFinish(body, wit.None[*http.Fields]())
}

func wait(future *http.FutureIncomingResponse) (*http.IncomingResponse, error) {
	ready := future.Subscribe()
	ready.Block()
	ready.Drop()
	got := future.Get()
	if got.IsNone() || got.Some().IsErr() {
		return nil, fmt.Errorf("%w: it is gone", ErrLost)
	}
	if result := got.Some().Ok(); result.IsErr() {
		return nil, noResponse(result.Err())
	} else {
		return result.Ok(), nil
	}
}

func headersOf(response *http.IncomingResponse) map[string]string {
	fields := response.Headers()
	defer fields.Drop()
	headers := make(map[string]string)
	for _, entry := range fields.Entries() {
		name := strings.ToLower(entry.F0)
		if _, known := headers[name]; !known {
			headers[name] = string(entry.F1)
		}
	}
	return headers
}

func read(response *http.IncomingResponse) ([]byte, error) {
	body := response.Consume().Ok()
	defer body.Drop()
	stream := body.Stream().Ok()
	defer stream.Drop()
	var content []byte
	for {
		part := stream.BlockingRead(64 << 10)
		if part.IsErr() {
			if part.Err().Tag() == streams.StreamError_Closed {
				return content, nil
			}
			return nil, fmt.Errorf("%w: it broke off", ErrLost)
		}
		content = append(content, part.Ok()...)
		if len(content) > maxResponse {
			return nil, ErrTooLong
		}
	}
}

func noResponse(code http.ErrorCode) error {
	switch code.Tag() {
	case http.ErrorCode_HttpRequestDenied, http.ErrorCode_DestinationIpProhibited:
		return ErrDenied
	case http.ErrorCode_HttpRequestUriInvalid:
		return ErrInvalid
	case http.ErrorCode_ConnectionRefused:
		return fmt.Errorf("%w: the connection was refused", ErrLost)
	case http.ErrorCode_ConnectionTimeout:
		return fmt.Errorf("%w: the connection timed out", ErrLost)
	case http.ErrorCode_DnsError:
		return fmt.Errorf("%w: the host's name is not known", ErrLost)
	default:
		return fmt.Errorf("%w: the connection was lost", ErrLost)
	}
}
