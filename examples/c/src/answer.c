#define _GNU_SOURCE /* timegm, strptime */
#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"

/* Characters of the server's own words in a message. */
enum { MAX_WORDS = 200 };

void response_free(response_t *response) {
  text_free(&response->retry_after);
  text_free(&response->date);
  text_free(&response->body);
}

static void put(uploader_string_t *string, const char *text, size_t len) {
  string->ptr = allocate(len);
  if (len) memcpy(string->ptr, text, len);
  string->len = len;
}

bool failed(batch_error_t *error, bool retryable, const char *message, size_t len) {
  error->tag = BATCHGATE_BATCH_TYPES_BATCH_ERROR_FAILED;
  put(&error->val.failed.message, message, len);
  error->val.failed.retryable = retryable;
  return false;
}

bool fatal(batch_error_t *error, const char *message, size_t len) {
  error->tag = BATCHGATE_BATCH_TYPES_BATCH_ERROR_FATAL;
  put(&error->val.fatal, message, len);
  return false;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The text without spaces around it, and at most `characters` of it. */
static void trim(const char **at, size_t *len, size_t characters) {
  while (*len && is_space((*at)[0])) (*at)++, (*len)--;
  while (*len && is_space((*at)[*len - 1])) (*len)--;
  size_t end = 0;
  for (size_t seen = 0; end < *len; end++) {
    bool starts = ((*at)[end] & 0xc0) != 0x80;
    if (starts && seen++ == characters) break;
  }
  *len = end;
}

/* The status, and what the body says: its `error` if it is JSON with one, else its start. */
static void describe(const response_t *response, text_t *message) {
  text_t words = {0};
  json_t json;
  bool is_json = json_parse(&json, response->body.ptr, response->body.len);
  if (!is_json || !json_string(&json, json_field(&json, json_root(&json), "error"), &words)) {
    text_add_utf8(&words, (const uint8_t *)response->body.ptr, response->body.len);
  }
  json_free(&json);
  const char *start = words.ptr;
  size_t len = words.len;
  trim(&start, &len, MAX_WORDS);
  text_printf(message, "HTTP %d", response->status);
  if (len) text_add_str(message, ": ");
  text_add(message, start, len);
  text_free(&words);
}

/* Seconds since 1970 of an HTTP date, false if it is none. */
static bool http_date(const text_t *value, time_t *seconds) {
  char date[64];
  if (value->len == 0 || value->len >= sizeof date) return false;
  memcpy(date, value->ptr, value->len);
  date[value->len] = 0;
  struct tm parts = {0};
  const char *end = strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (!end || *end) return false;
  *seconds = timegm(&parts);
  return true;
}

/* How long Retry-After asks to wait: seconds, or until a date, which is measured from the
 * response's own Date if there is one. */
static bool retry_after_ms(const response_t *response, uint64_t *ms) {
  const text_t *value = &response->retry_after;
  if (value->len == 0) return false;
  uint64_t seconds = 0;
  bool digits = true;
  for (size_t at = 0; at < value->len && digits; at++) {
    char c = value->ptr[at];
    digits = c >= '0' && c <= '9';
    seconds = seconds > UINT64_MAX / 10000 ? UINT64_MAX / 1000 : seconds * 10 + (uint64_t)(c - '0');
  }
  if (digits) {
    *ms = seconds >= UINT64_MAX / 1000 ? UINT64_MAX : seconds * 1000;
    return true;
  }
  time_t until, now;
  if (!http_date(value, &until)) return false;
  if (!http_date(&response->date, &now)) now = time(NULL);
  *ms = until > now ? (uint64_t)(until - now) * 1000 : 0;
  return true;
}

typedef struct {
  text_t key, message;
  uint64_t status;
} status_t;

typedef struct {
  status_t *ptr;
  size_t len;
} statuses_t;

static void statuses_free(statuses_t *statuses) {
  for (size_t i = 0; i < statuses->len; i++) {
    text_free(&statuses->ptr[i].key);
    text_free(&statuses->ptr[i].message);
  }
  free(statuses->ptr);
}

/* The `items` of the body, false if it has no such list. */
static bool statuses_read(statuses_t *statuses, const json_t *json) {
  json_value_t list = json_field(json, json_root(json), "items");
  if (!json_is_array(list)) return false;
  *statuses = (statuses_t){.ptr = allocate((size_t)list->size * sizeof(status_t))};
  for (json_value_t item = json_first(json, list); item; item = json_next(json, list, item)) {
    status_t *status = &statuses->ptr[statuses->len++];
    *status = (status_t){0};
    if (!json_string(json, json_field(json, item, "key"), &status->key) ||
        !json_uint(json, json_field(json, item, "status"), &status->status)) {
      return false;
    }
    json_string(json, json_field(json, item, "message"), &status->message);
  }
  return true;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len) {
  size_t len = a_len < b_len ? a_len : b_len;
  int order = len ? memcmp(a, b, len) : 0;
  return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_statuses(const void *a, const void *b) {
  const status_t *x = *(status_t *const *)a, *y = *(status_t *const *)b;
  return compare(x->key.ptr, x->key.len, y->key.ptr, y->key.len);
}

static int compare_key(const void *item, const void *status) {
  const uploader_string_t *key = &((const item_t *)item)->key;
  const status_t *y = *(status_t *const *)status;
  return compare((const char *)key->ptr, key->len, y->key.ptr, y->key.len);
}

/* By position first: a batch may hold two items of the same key. */
static const status_t *find(const statuses_t *statuses, status_t **by_key, const item_t *item,
                            size_t position) {
  status_t *in_place = &statuses->ptr[position];
  if (position < statuses->len && compare_key(item, &in_place) == 0) return in_place;
  status_t **found = bsearch(item, by_key, statuses->len, sizeof *by_key, compare_key);
  return found ? *found : NULL;
}

static void add_failure(batchgate_batch_types_list_item_failure_t *list, const item_t *item,
                        const text_t *message, bool retryable) {
  batchgate_batch_types_item_failure_t *failure = &list->ptr[list->len++];
  failure->index = item->index;
  put(&failure->message, message->ptr, message->len);
  failure->retryable = retryable;
}

/* A status an item. */
static bool each(const items_t *items, const response_t *response, uint64_t *written,
                 batch_error_t *error) {
  json_t json;
  statuses_t statuses = {0};
  bool good = json_parse(&json, response->body.ptr, response->body.len) && statuses_read(&statuses, &json);
  json_free(&json);
  if (!good) {
    statuses_free(&statuses);
    static const char problem[] = "HTTP 207 without a list of statuses";
    return failed(error, false, problem, sizeof problem - 1);
  }
  status_t **by_key = allocate(statuses.len * sizeof *by_key);
  for (size_t i = 0; i < statuses.len; i++) by_key[i] = &statuses.ptr[i];
  qsort(by_key, statuses.len, sizeof *by_key, compare_statuses);

  batchgate_batch_types_list_item_failure_t failures = {
      .ptr = allocate(items->len * sizeof *failures.ptr), .len = 0};
  for (size_t i = 0; i < items->len; i++) {
    const status_t *status = find(&statuses, by_key, &items->ptr[i], i);
    text_t message = {0};
    if (!status) {
      text_add_str(&message, "the server gave no status for it");
      add_failure(&failures, &items->ptr[i], &message, true);
    } else if (status->status < 200 || status->status > 299) {
      text_printf(&message, "HTTP %llu: ", (unsigned long long)status->status);
      text_add(&message, status->message.ptr, status->message.len);
      bool retryable = status->status == 429 || (status->status >= 500 && status->status <= 599);
      add_failure(&failures, &items->ptr[i], &message, retryable);
    }
    text_free(&message);
  }
  free(by_key);
  statuses_free(&statuses);
  if (failures.len == 0) {
    free(failures.ptr);
    *written = items->len;
    return true;
  }
  error->tag = BATCHGATE_BATCH_TYPES_BATCH_ERROR_PARTIAL;
  error->val.partial = failures;
  return false;
}

static uint64_t count_written(const items_t *items, const response_t *response) {
  json_t json;
  uint64_t written = items->len;
  if (json_parse(&json, response->body.ptr, response->body.len)) {
    uint64_t count;
    if (json_uint(&json, json_field(&json, json_root(&json), "written"), &count)) written = count;
  }
  json_free(&json);
  return written;
}

bool answer(const items_t *items, const response_t *response, uint64_t *written, batch_error_t *error) {
  int status = response->status;
  if (status == 207) return each(items, response, written, error);
  if (status >= 200 && status <= 299) {
    *written = count_written(items, response);
    return true;
  }
  text_t message = {0};
  describe(response, &message);
  uint64_t wait = 0;
  bool asks_to_wait = retry_after_ms(response, &wait);
  if (status == 401 || status == 403) {
    fatal(error, message.ptr, message.len);
  } else if (status == 413) {
    error->tag = BATCHGATE_BATCH_TYPES_BATCH_ERROR_TOO_LARGE;
    put(&error->val.too_large, message.ptr, message.len);
  } else if (status == 429 || (status == 503 && asks_to_wait)) {
    error->tag = BATCHGATE_BATCH_TYPES_BATCH_ERROR_RATE_LIMITED;
    put(&error->val.rate_limited.message, message.ptr, message.len);
    error->val.rate_limited.retry_after_ms = (uploader_option_u64_t){.is_some = asks_to_wait, .val = wait};
  } else {
    failed(error, status >= 500 && status <= 599, message.ptr, message.len);
  }
  text_free(&message);
  return false;
}
