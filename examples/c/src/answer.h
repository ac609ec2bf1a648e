/* What the server's answer means for a batch. Asks nothing of the host, so it is tested natively.
 *
 * | Server                       | Answer                                                         |
 * |------------------------------|----------------------------------------------------------------|
 * | 207                          | written, but for the items whose own status is not 2xx; 429    |
 * |                              | and 5xx are sent again                                         |
 * | other 2xx                    | `written` of the body if it has one, else all items            |
 * | 401, 403                     | fatal                                                          |
 * | 413                          | too large                                                      |
 * | 429; 503 with Retry-After    | rate-limited                                                   |
 * | other 5xx, a lost connection | failed, retryable                                              |
 * | anything else                | failed, not retryable                                          |
 */
#ifndef ANSWER_H
#define ANSWER_H

#include <stdbool.h>

#include "text.h"
#include "uploader.h"

typedef batchgate_batch_types_batch_error_t batch_error_t;
typedef batchgate_batch_types_item_t item_t;
typedef exports_batchgate_batch_processor_list_item_t items_t;

typedef struct {
  int status;
  /* The header's value, empty without one. */
  text_t retry_after, date;
  text_t body;
} response_t;

void response_free(response_t *response);

/* True if the batch was written, with how many items of it; otherwise the error is set. */
bool answer(const items_t *items, const response_t *response, uint64_t *written, batch_error_t *error);

/* Both set the error and return false. They take a copy of the text. */
bool failed(batch_error_t *error, bool retryable, const char *message, size_t len);
bool fatal(batch_error_t *error, const char *message, size_t len);

#endif
