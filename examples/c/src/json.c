#define JSMN_STATIC
#define JSMN_STRICT
#include <jsmn.h>

#include "json.h"

#include <stdlib.h>
#include <string.h>

bool json_parse(json_t *json, const char *source, size_t len) {
  *json = (json_t){.source = source};
  jsmn_parser parser;
  jsmn_init(&parser);
  int count = jsmn_parse(&parser, source, len, NULL, 0);
  if (count <= 0) return false;
  json->tokens = allocate((size_t)count * sizeof *json->tokens);
  jsmn_init(&parser);
  json->count = jsmn_parse(&parser, source, len, json->tokens, (unsigned)count);
  if (json->count == count) return true;
  json_free(json);
  return false;
}

void json_free(json_t *json) {
  free(json->tokens);
  *json = (json_t){0};
}

json_value_t json_root(const json_t *json) { return json->count > 0 ? json->tokens : NULL; }

/* The token after a value and all that is in it, null if that is not in the parent. */
static json_value_t after(const json_t *json, json_value_t parent, json_value_t value) {
  json_value_t end = json->tokens + json->count, next = value + 1;
  while (next < end && next->start < value->end) next++;
  return next < end && next->start < parent->end ? next : NULL;
}

json_value_t json_field(const json_t *json, json_value_t object, const char *name) {
  if (!object || object->type != JSMN_OBJECT || object->size == 0) return NULL;
  json_value_t found = NULL;
  size_t len = strlen(name);
  for (json_value_t key = object + 1; key;) {
    json_value_t value = key->size == 1 ? key + 1 : NULL;
    if (!value) return NULL;
    bool same = key->type == JSMN_STRING && (size_t)(key->end - key->start) == len &&
                memcmp(json->source + key->start, name, len) == 0;
    if (same) found = value; /* the last of that name, as everywhere else */
    key = after(json, object, value);
  }
  return found;
}

json_value_t json_first(const json_t *json, json_value_t array) {
  (void)json;
  return array && array->type == JSMN_ARRAY && array->size > 0 ? array + 1 : NULL;
}

json_value_t json_next(const json_t *json, json_value_t array, json_value_t item) {
  return after(json, array, item);
}

bool json_is_array(json_value_t value) { return value && value->type == JSMN_ARRAY; }

bool json_uint(const json_t *json, json_value_t value, uint64_t *number) {
  if (!value || value->type != JSMN_PRIMITIVE || value->end == value->start) return false;
  *number = 0;
  for (int at = value->start; at < value->end; at++) {
    char c = json->source[at];
    uint64_t digit = (uint64_t)(c - '0');
    if (c < '0' || c > '9' || *number > (UINT64_MAX - digit) / 10) return false;
    *number = *number * 10 + digit;
  }
  return true;
}

/* Four hexadecimal digits, which jsmn has checked. */
static uint32_t hex4(const char *at) {
  char digits[5] = {at[0], at[1], at[2], at[3], 0};
  return (uint32_t)strtoul(digits, NULL, 16);
}

bool json_string(const json_t *json, json_value_t value, text_t *text) {
  if (!value || value->type != JSMN_STRING) return false;
  const char *at = json->source + value->start, *end = json->source + value->end;
  while (at < end) {
    const char *escape = memchr(at, '\\', (size_t)(end - at));
    if (!escape) escape = end;
    text_add_utf8(text, (const uint8_t *)at, (size_t)(escape - at));
    if (escape == end) break;
    at = escape + 2;
    switch (escape[1]) {
      case 'b': text_add_str(text, "\b"); break;
      case 'f': text_add_str(text, "\f"); break;
      case 'n': text_add_str(text, "\n"); break;
      case 'r': text_add_str(text, "\r"); break;
      case 't': text_add_str(text, "\t"); break;
      case 'u': {
        uint32_t code = hex4(at);
        at += 4;
        bool pair = code >= 0xd800 && code < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u';
        uint32_t low = pair ? hex4(at + 2) : 0;
        if (low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          at += 6;
        }
        text_add_code(text, code);
        break;
      }
      default: text_add(text, escape + 1, 1); /* a quote, a slash, a backslash */
    }
  }
  return true;
}
