/* One HTTP request and its response, over wasi:http. */
#ifndef HTTP_H
#define HTTP_H

#include "answer.h"

typedef enum {
  HTTP_OK,
  HTTP_INVALID,  /* nobody can send such a request */
  HTTP_DENIED,   /* the job does not allow it */
  HTTP_LOST,     /* no response was had; another try may have one */
  HTTP_TOO_LONG, /* the response is longer than 16 MiB */
} http_result_t;

/* Posts JSON. The response is to be freed whatever the result; `problem` says in a few words what
 * went wrong. */
http_result_t http_post_json(const char *url, const uploader_string_t *idempotency_key,
                             const text_t *body, response_t *response, const char **problem);

#endif
