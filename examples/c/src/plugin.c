/* Posts each batch to `api_url` as a JSON array of {"key": …, "data": …}, and says what the server's
 * status means for it (the table in answer.h).
 *
 * `data` is the item's data as text; what is not UTF-8 in it arrives as U+FFFD.
 */
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "http.h"
#include "text.h"
#include "uploader.h"

/* The job's `api_url`, with a zero at its end; false if it has none. */
static bool read_url(text_t *url) {
  uploader_string_t key;
  uploader_string_set(&key, "api_url");
  uploader_option_string_t value;
  wasi_config_store_error_t error;
  if (!wasi_config_store_get(&key, &value, &error)) {
    wasi_config_store_error_free(&error);
    return false;
  }
  if (!value.is_some) return false;
  text_add(url, value.val.ptr, value.val.len);
  text_add(url, "", 1);
  uploader_option_string_free(&value);
  return true;
}

static void write_rows(const items_t *items, text_t *body) {
  text_t data = {0};
  text_add_str(body, "[");
  for (size_t i = 0; i < items->len; i++) {
    const item_t *item = &items->ptr[i];
    text_add_str(body, i ? ",{\"key\":" : "{\"key\":");
    text_add_json(body, (const char *)item->key.ptr, item->key.len);
    text_add_str(body, ",\"data\":");
    data.len = 0;
    text_add_utf8(&data, item->data.ptr, item->data.len);
    text_add_json(body, data.ptr, data.len);
    text_add_str(body, "}");
  }
  text_add_str(body, "]");
  text_free(&data);
}

static bool fail(http_result_t result, const char *url, const char *problem, batch_error_t *error) {
  text_t message = {0};
  switch (result) {
    case HTTP_DENIED:
      text_add_str(&message, url);
      text_add_str(&message, " is denied: name it in [sandbox] allow_hosts in the job");
      break;
    case HTTP_INVALID:
      text_add_str(&message, "api_url ");
      text_add_json(&message, url, strlen(url));
      text_add_str(&message, " is not a URL that can be sent to: http://HOST/PATH");
      break;
    case HTTP_TOO_LONG: text_add_str(&message, "the response is longer than 16 MiB"); break;
    default: text_printf(&message, "no response: %s", problem);
  }
  /* The URL is the same for every call: none would fare better. */
  if (result == HTTP_DENIED || result == HTTP_INVALID) fatal(error, message.ptr, message.len);
  else failed(error, result == HTTP_LOST, message.ptr, message.len);
  text_free(&message);
  return false;
}

bool exports_batchgate_batch_processor_process_batch(items_t *items, uint64_t *written, batch_error_t *error) {
  text_t url = {0}, body = {0};
  bool good;
  if (read_url(&url)) {
    write_rows(items, &body);
    batchgate_batch_call_call_info_t call;
    batchgate_batch_call_info(&call);
    response_t response = {0};
    const char *problem = "";
    http_result_t result = http_post_json(url.ptr, &call.idempotency_key, &body, &response, &problem);
    batchgate_batch_call_call_info_free(&call);
    good = result == HTTP_OK ? answer(items, &response, written, error) : fail(result, url.ptr, problem, error);
    response_free(&response);
  } else {
    static const char missing[] = "api_url is not set: add it to [config] in the job";
    good = fatal(error, missing, sizeof missing - 1);
  }
  text_free(&url);
  text_free(&body);
  exports_batchgate_batch_processor_list_item_free(items);
  return good;
}
