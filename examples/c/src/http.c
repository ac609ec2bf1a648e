#include "http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A longer response is an error, before it fills the memory. */
#define MAX_RESPONSE (16u << 20)
/* `blocking-write-and-flush` takes no more at once. */
#define CHUNK 4096u

typedef wasi_http_types_tuple2_field_name_field_value_t field_t;

static field_t field(const char *name, const void *value, size_t len) {
  return (field_t){.f0 = {.ptr = (uint8_t *)name, .len = strlen(name)},
                   .f1 = {.ptr = (uint8_t *)value, .len = len}};
}

/* The parts of a URL that wasi:http takes; the host checks their characters. */
static bool split_url(const char *url, wasi_http_types_scheme_t *scheme, uploader_string_t *authority,
                      uploader_string_t *path) {
  if (strncasecmp(url, "http://", 7) == 0) scheme->tag = WASI_HTTP_TYPES_SCHEME_HTTP, url += 7;
  else if (strncasecmp(url, "https://", 8) == 0) scheme->tag = WASI_HTTP_TYPES_SCHEME_HTTPS, url += 8;
  else return false;
  size_t host = strcspn(url, "/?#");
  *authority = (uploader_string_t){.ptr = (uint8_t *)url, .len = host};
  *path = (uploader_string_t){.ptr = (uint8_t *)url + host, .len = strcspn(url + host, "#")};
  if (path->len == 0) uploader_string_set(path, "/");
  return host > 0 && !memchr(url, '@', host) && path->ptr[0] == '/';
}

static bool make_request(const char *url, const uploader_string_t *idempotency_key, size_t length,
                         wasi_http_types_own_outgoing_request_t *request) {
  wasi_http_types_scheme_t scheme;
  uploader_string_t authority, path;
  if (!split_url(url, &scheme, &authority, &path)) return false;
  static const char json[] = "application/json";
  char digits[24];
  int count = snprintf(digits, sizeof digits, "%zu", length);
  field_t entries[] = {
      field("content-type", json, sizeof json - 1),
      field("content-length", digits, (size_t)count),
      field("idempotency-key", idempotency_key->ptr, idempotency_key->len),
  };
  wasi_http_types_list_tuple2_field_name_field_value_t list = {entries, sizeof entries / sizeof *entries};
  wasi_http_types_own_fields_t headers;
  wasi_http_types_header_error_t error;
  if (!wasi_http_types_static_fields_from_list(&list, &headers, &error)) return false;
  *request = wasi_http_types_constructor_outgoing_request(headers);
  wasi_http_types_borrow_outgoing_request_t self = wasi_http_types_borrow_outgoing_request(*request);
  wasi_http_types_method_t method = {.tag = WASI_HTTP_TYPES_METHOD_POST};
  if (wasi_http_types_method_outgoing_request_set_method(self, &method) &&
      wasi_http_types_method_outgoing_request_set_scheme(self, &scheme) &&
      wasi_http_types_method_outgoing_request_set_authority(self, &authority) &&
      wasi_http_types_method_outgoing_request_set_path_with_query(self, &path)) {
    return true;
  }
  wasi_http_types_outgoing_request_drop_own(*request);
  return false;
}

static void stream_error_free(wasi_io_streams_stream_error_t *error) {
  if (error->tag == WASI_IO_STREAMS_STREAM_ERROR_LAST_OPERATION_FAILED) {
    wasi_io_error_error_drop_own(error->val.last_operation_failed);
  }
}

/* A server may answer before it has read all of it, and hang up: that shows in the response, or in
 * that there is none. */
static void write_body(wasi_http_types_own_outgoing_body_t body, const text_t *bytes) {
  wasi_http_types_own_output_stream_t stream;
  bool whole = wasi_http_types_method_outgoing_body_write(wasi_http_types_borrow_outgoing_body(body), &stream);
  if (whole) {
    for (size_t from = 0; whole && from < bytes->len; from += CHUNK) {
      size_t len = bytes->len - from < CHUNK ? bytes->len - from : CHUNK;
      uploader_list_u8_t chunk = {.ptr = (uint8_t *)bytes->ptr + from, .len = len};
      wasi_io_streams_stream_error_t error;
      whole = wasi_io_streams_method_output_stream_blocking_write_and_flush(
          wasi_io_streams_borrow_output_stream(stream), &chunk, &error);
      if (!whole) stream_error_free(&error);
    }
    wasi_io_streams_output_stream_drop_own(stream);
  }
  wasi_http_types_error_code_t error;
  if (!whole) wasi_http_types_outgoing_body_drop_own(body);
  else if (!wasi_http_types_static_outgoing_body_finish(body, NULL, &error)) wasi_http_types_error_code_free(&error);
}

static http_result_t no_response(wasi_http_types_error_code_t *error, const char **problem) {
  http_result_t result = HTTP_LOST;
  switch (error->tag) {
    case WASI_HTTP_TYPES_ERROR_CODE_HTTP_REQUEST_DENIED:
    case WASI_HTTP_TYPES_ERROR_CODE_DESTINATION_IP_PROHIBITED: result = HTTP_DENIED; break;
    case WASI_HTTP_TYPES_ERROR_CODE_HTTP_REQUEST_URI_INVALID: result = HTTP_INVALID; break;
    case WASI_HTTP_TYPES_ERROR_CODE_CONNECTION_REFUSED: *problem = "the connection was refused"; break;
    case WASI_HTTP_TYPES_ERROR_CODE_CONNECTION_TIMEOUT: *problem = "the connection timed out"; break;
    case WASI_HTTP_TYPES_ERROR_CODE_DNS_ERROR: *problem = "the host's name is not known"; break;
    default: *problem = "the connection was lost";
  }
  wasi_http_types_error_code_free(error);
  return result;
}

static http_result_t await_response(wasi_http_types_own_future_incoming_response_t future,
                                    wasi_http_types_own_incoming_response_t *response,
                                    const char **problem) {
  wasi_http_types_borrow_future_incoming_response_t self = wasi_http_types_borrow_future_incoming_response(future);
  wasi_io_poll_own_pollable_t ready = wasi_http_types_method_future_incoming_response_subscribe(self);
  wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(ready));
  wasi_io_poll_pollable_drop_own(ready);
  wasi_http_types_result_result_own_incoming_response_error_code_void_t result;
  *problem = "the response is gone";
  if (!wasi_http_types_method_future_incoming_response_get(self, &result) || result.is_err) return HTTP_LOST;
  if (result.val.ok.is_err) return no_response(&result.val.ok.val.err, problem);
  *response = result.val.ok.val.ok;
  return HTTP_OK;
}

/* The first header of that name. */
static void take_header(const wasi_http_types_list_tuple2_field_name_field_value_t *entries, const char *name,
                        text_t *value) {
  for (size_t i = 0; i < entries->len && value->len == 0; i++) {
    const field_t *entry = &entries->ptr[i];
    if (entry->f0.len == strlen(name) && strncasecmp((const char *)entry->f0.ptr, name, entry->f0.len) == 0) {
      text_add(value, entry->f1.ptr, entry->f1.len);
    }
  }
}

static void read_headers(wasi_http_types_borrow_incoming_response_t from, response_t *response) {
  wasi_http_types_own_headers_t headers = wasi_http_types_method_incoming_response_headers(from);
  wasi_http_types_list_tuple2_field_name_field_value_t entries;
  wasi_http_types_method_fields_entries(wasi_http_types_borrow_fields(headers), &entries);
  take_header(&entries, "retry-after", &response->retry_after);
  take_header(&entries, "date", &response->date);
  wasi_http_types_list_tuple2_field_name_field_value_free(&entries);
  wasi_http_types_fields_drop_own(headers);
}

static http_result_t read_stream(wasi_http_types_own_input_stream_t stream, text_t *body, const char **problem) {
  for (;;) {
    uploader_list_u8_t chunk;
    wasi_io_streams_stream_error_t error;
    if (!wasi_io_streams_method_input_stream_blocking_read(wasi_io_streams_borrow_input_stream(stream), 65536,
                                                           &chunk, &error)) {
      if (error.tag == WASI_IO_STREAMS_STREAM_ERROR_CLOSED) return HTTP_OK;
      stream_error_free(&error);
      *problem = "the response broke off";
      return HTTP_LOST;
    }
    text_add(body, chunk.ptr, chunk.len);
    uploader_list_u8_free(&chunk);
    if (body->len > MAX_RESPONSE) return HTTP_TOO_LONG;
  }
}

static http_result_t read_response(wasi_http_types_borrow_incoming_response_t from, response_t *response,
                                   const char **problem) {
  response->status = wasi_http_types_method_incoming_response_status(from);
  read_headers(from, response);
  *problem = "the response has no body";
  wasi_http_types_own_incoming_body_t body;
  if (!wasi_http_types_method_incoming_response_consume(from, &body)) return HTTP_LOST;
  http_result_t result = HTTP_LOST;
  wasi_http_types_own_input_stream_t stream;
  if (wasi_http_types_method_incoming_body_stream(wasi_http_types_borrow_incoming_body(body), &stream)) {
    result = read_stream(stream, &response->body, problem);
    wasi_io_streams_input_stream_drop_own(stream);
  }
  wasi_http_types_incoming_body_drop_own(body);
  return result;
}

http_result_t http_post_json(const char *url, const uploader_string_t *idempotency_key, const text_t *body,
                             response_t *response, const char **problem) {
  wasi_http_types_own_outgoing_request_t request;
  if (!make_request(url, idempotency_key, body->len, &request)) return HTTP_INVALID;
  wasi_http_types_own_outgoing_body_t outgoing;
  if (!wasi_http_types_method_outgoing_request_body(wasi_http_types_borrow_outgoing_request(request), &outgoing)) {
    wasi_http_types_outgoing_request_drop_own(request);
    return HTTP_INVALID;
  }
  wasi_http_types_own_future_incoming_response_t future;
  wasi_http_types_error_code_t error;
  if (!wasi_http_outgoing_handler_handle(request, NULL, &future, &error)) {
    wasi_http_types_outgoing_body_drop_own(outgoing);
    return no_response(&error, problem);
  }
  write_body(outgoing, body);
  wasi_http_types_own_incoming_response_t incoming;
  http_result_t result = await_response(future, &incoming, problem);
  if (result == HTTP_OK) {
    result = read_response(wasi_http_types_borrow_incoming_response(incoming), response, problem);
    wasi_http_types_incoming_response_drop_own(incoming);
  }
  wasi_http_types_future_incoming_response_drop_own(future);
  return result;
}
