/* Reads JSON, on top of jsmn, which finds the tokens. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

#define JSMN_STRICT
#define JSMN_HEADER
#include <jsmn.h>

typedef struct {
  const char *source;
  jsmntok_t *tokens;
  int count;
} json_t;

/* A value of a document; null is none. */
typedef const jsmntok_t *json_value_t;

/* The tokens stay until `json_free`; the source must too. False if it is not JSON. */
bool json_parse(json_t *json, const char *source, size_t len);
void json_free(json_t *json);

json_value_t json_root(const json_t *json);
/* The field of an object, null if it is no object or has none of that name. */
json_value_t json_field(const json_t *json, json_value_t object, const char *name);
/* The first item of an array, then the next one, null after the last. */
json_value_t json_first(const json_t *json, json_value_t array);
json_value_t json_next(const json_t *json, json_value_t array, json_value_t item);

bool json_is_array(json_value_t value);
bool json_uint(const json_t *json, json_value_t value, uint64_t *number);
/* Appends a string's text, false if the value is no string. */
bool json_string(const json_t *json, json_value_t value, text_t *text);

#endif
