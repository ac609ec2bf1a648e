/* Runs natively: answer.c asks nothing of the host. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"

static int failures;

static void expect(const char *what, const char *expected, const char *got) {
  if (strcmp(expected, got) == 0) return;
  failures++;
  fprintf(stderr, "%s\n  expected %s\n  got      %s\n", what, expected, got);
}

static void free_error(batch_error_t *error) {
  if (error->tag == BATCHGATE_BATCH_TYPES_BATCH_ERROR_PARTIAL) {
    for (size_t i = 0; i < error->val.partial.len; i++) free(error->val.partial.ptr[i].message.ptr);
    free(error->val.partial.ptr);
  } else {
    free(error->val.fatal.ptr); /* each of the others starts with its text */
  }
}

/* An outcome in a line. */
static void say(text_t *line, bool good, uint64_t written, const batch_error_t *error) {
  const uploader_string_t *text = &error->val.fatal;
  if (good) {
    text_printf(line, "written %" PRIu64, written);
  } else if (error->tag == BATCHGATE_BATCH_TYPES_BATCH_ERROR_PARTIAL) {
    text_add_str(line, "partial");
    for (size_t i = 0; i < error->val.partial.len; i++) {
      const batchgate_batch_types_item_failure_t *item = &error->val.partial.ptr[i];
      text_printf(line, " [%" PRIu64 " %s ", item->index, item->retryable ? "again" : "never");
      text_add(line, item->message.ptr, item->message.len);
      text_add_str(line, "]");
    }
  } else {
    static const char *const names[] = {"failed", "fatal", "too-large", "rate-limited"};
    text_add_str(line, names[error->tag]);
    if (error->tag == BATCHGATE_BATCH_TYPES_BATCH_ERROR_FAILED) {
      text_add_str(line, error->val.failed.retryable ? " again" : " never");
    } else if (error->tag == BATCHGATE_BATCH_TYPES_BATCH_ERROR_RATE_LIMITED) {
      const uploader_option_u64_t *wait = &error->val.rate_limited.retry_after_ms;
      if (wait->is_some) text_printf(line, " %" PRIu64, wait->val);
    }
    text_add_str(line, ": ");
    text_add(line, text->ptr, text->len);
  }
  text_add(line, "", 1);
}

/* What a batch of these keys, a character each, comes to when the server answers so. */
static void check(const char *keys, int status, const char *retry_after, const char *date, const char *body,
                  const char *expected) {
  item_t list[8] = {0};
  items_t items = {.ptr = list, .len = strlen(keys)};
  for (size_t i = 0; i < items.len; i++) {
    list[i].index = 10 + i;
    list[i].key = (uploader_string_t){.ptr = (uint8_t *)keys + i, .len = 1};
  }
  response_t response = {.status = status};
  text_add_str(&response.retry_after, retry_after);
  text_add_str(&response.date, date);
  text_add_str(&response.body, body);
  uint64_t written = 0;
  batch_error_t error = {0};
  bool good = answer(&items, &response, &written, &error);
  text_t line = {0}, what = {0};
  say(&line, good, written, &error);
  text_printf(&what, "%d %.40s %.300s", status, retry_after, body);
  text_add(&what, "", 1);
  expect(what.ptr, expected, line.ptr);
  text_free(&line);
  text_free(&what);
  response_free(&response);
  if (!good) free_error(&error);
}

static void repeat(text_t *text, const char *str, size_t times) {
  while (times-- > 0) text_add_str(text, str);
  text_add(text, "", 1);
}

static void statuses(void) {
  const char *date = "Sun, 06 Nov 1994 08:49:37 GMT", *later = "Sun, 06 Nov 1994 08:49:47 GMT";
  check("abc", 200, "", "", "{\"written\": 2}", "written 2");
  check("abc", 200, "", "", "{\"written\": 0}", "written 0");
  check("abc", 201, "", "", "", "written 3");
  check("abc", 202, "", "", "accepted", "written 3");
  check("abc", 200, "", "", "{\"written\": -1}", "written 3");
  check("abc", 200, "", "", "{\"other\": {\"written\": 1}}", "written 3");
  check("abc", 413, "", "", "", "too-large: HTTP 413");
  check("abc", 401, "", "", "who?", "fatal: HTTP 401: who?");
  check("abc", 403, "", "", "", "fatal: HTTP 403");
  check("abc", 422, "", "", "{\"error\":\"row k2: \\\"bad\\\" \\ud834\\udd1e\"}",
        "failed never: HTTP 422: row k2: \"bad\" \xf0\x9d\x84\x9e");
  check("abc", 404, "", "", "\n gone \n", "failed never: HTTP 404: gone");
  check("abc", 302, "", "", "", "failed never: HTTP 302");
  check("abc", 500, "", "", "", "failed again: HTTP 500");
  check("abc", 503, "", "", "", "failed again: HTTP 503");
  check("abc", 503, "soon", "", "", "failed again: HTTP 503");
  check("abc", 503, "2", "", "", "rate-limited 2000: HTTP 503");
  check("abc", 429, "", "", "", "rate-limited: HTTP 429");
  check("abc", 429, "0", "", "", "rate-limited 0: HTTP 429");
  check("abc", 429, "-1", "", "", "rate-limited: HTTP 429");
  check("abc", 429, "99999999999999999999999999", "", "", "rate-limited 18446744073709551615: HTTP 429");
  check("abc", 429, later, date, "", "rate-limited 10000: HTTP 429");
  check("abc", 429, date, "", "", "rate-limited 0: HTTP 429");
  text_t body = {0}, expected = {0};
  repeat(&body, "\xc3\xa9", 5000);
  text_add_str(&expected, "failed never: HTTP 400: ");
  repeat(&expected, "\xc3\xa9", 200);
  check("abc", 400, "", "", body.ptr, expected.ptr);
  text_free(&body);
  text_free(&expected);
}

static void statuses_of_items(void) {
  check("abc", 207, "", "",
        "{\"items\":[{\"key\":\"a\",\"status\":200},{\"key\":\"b\",\"status\":201},{\"key\":\"c\",\"status\":200}]}",
        "written 3");
  check("abc", 207, "", "",
        "{\"items\":[{\"key\":\"a\",\"status\":422,\"message\":\"bad row\"},{\"key\":\"b\",\"status\":200},"
        "{\"key\":\"c\",\"status\":503}]}",
        "partial [10 never HTTP 422: bad row] [12 again HTTP 503: ]");
  /* Another order, and one left out. */
  check("abc", 207, "", "", "{\"items\":[{\"key\":\"c\",\"status\":429},{\"key\":\"a\",\"status\":200}]}",
        "partial [11 again the server gave no status for it] [12 again HTTP 429: ]");
  /* Two of one key. */
  check("kk", 207, "", "",
        "{\"items\":[{\"key\":\"k\",\"status\":200},{\"key\":\"k\",\"status\":422,\"message\":\"no\"}]}",
        "partial [11 never HTTP 422: no]");
  const char *const bad[] = {"",       "[]",   "null", "{\"items\":[{\"key\":1}]}", "{\"items\":[null]}",
                             "{\"items", "{\"items\":{}}", "}{"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    check("abc", 207, "", "", bad[i], "failed never: HTTP 207 without a list of statuses");
  }
}

static void texts(void) {
  static const struct { const char *bytes, *json; } cases[] = {
      {"plain", "\"plain\""},
      {"\"\\\n", "\"\\\"\\\\\\u000a\""},
      {"\xef\xbb\xbfx", "\"\xef\xbb\xbfx\""},
      {"\xff", "\"\xef\xbf\xbd\""},
      {"a\xe2\x82", "\"a\xef\xbf\xbd\""},
      {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
      {"\xf0\x9f\x98\x80\xc0\x80", "\"\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text_t utf8 = {0}, json = {0};
    text_add_utf8(&utf8, (const uint8_t *)cases[i].bytes, strlen(cases[i].bytes));
    text_add_json(&json, utf8.ptr, utf8.len);
    text_add(&json, "", 1);
    expect("as JSON", cases[i].json, json.ptr);
    text_free(&utf8);
    text_free(&json);
  }
}

int main(void) {
  statuses();
  statuses_of_items();
  texts();
  printf("%s\n", failures ? "FAILED" : "ok");
  return failures != 0;
}
