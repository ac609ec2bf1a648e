#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void) {
  fputs("out of memory\n", stderr);
  abort();
}

void *allocate(size_t size) {
  void *memory = malloc(size ? size : 1);
  if (!memory) out_of_memory();
  return memory;
}

static void reserve(text_t *text, size_t more) {
  if (more <= text->room - text->len) return;
  size_t room = text->len + more;
  if (room < more) out_of_memory();
  if (room < 2 * text->room) room = 2 * text->room;
  char *ptr = realloc(text->ptr, room);
  if (!ptr) out_of_memory();
  text->ptr = ptr;
  text->room = room;
}

void text_add(text_t *text, const void *bytes, size_t len) {
  if (len == 0) return;
  reserve(text, len);
  memcpy(text->ptr + text->len, bytes, len);
  text->len += len;
}

void text_add_str(text_t *text, const char *str) { text_add(text, str, strlen(str)); }

void text_printf(text_t *text, const char *format, ...) {
  char line[512];
  va_list values;
  va_start(values, format);
  int len = vsnprintf(line, sizeof line, format, values);
  va_end(values);
  if (len > 0) text_add(text, line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1);
}

void text_add_code(text_t *text, uint32_t code) {
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) code = 0xfffd;
  char utf8[4];
  size_t len = 0;
  if (code < 0x80) {
    utf8[len++] = (char)code;
  } else {
    int rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    utf8[len++] = (char)(lead[rest] | code >> 6 * rest);
    while (rest-- > 0) utf8[len++] = (char)(0x80 | (code >> 6 * rest & 0x3f));
  }
  text_add(text, utf8, len);
}

/* How many bytes at the start are one code point. If none are: 0, and in *bad how many bytes one
 * U+FFFD stands for (the longest start of a code point, as everywhere else). */
static size_t code_point(const uint8_t *bytes, size_t len, size_t *bad) {
  uint8_t first = bytes[0], low = 0x80, high = 0xbf;
  size_t need;
  *bad = 1;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) need = 1;
  else if (first >= 0xe0 && first <= 0xef) need = 2;
  else if (first >= 0xf0 && first <= 0xf4) need = 3;
  else return 0;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (size_t i = 1; i <= need; i++) {
    if (i >= len || bytes[i] < low || bytes[i] > high) {
      *bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xbf;
  }
  return need + 1;
}

void text_add_utf8(text_t *text, const uint8_t *bytes, size_t len) {
  size_t done = 0, at = 0, bad;
  while (at < len) {
    size_t good = code_point(bytes + at, len - at, &bad);
    if (good) {
      at += good;
      continue;
    }
    text_add(text, bytes + done, at - done);
    text_add_code(text, 0xfffd);
    at += bad;
    done = at;
  }
  text_add(text, bytes + done, len - done);
}

void text_add_json(text_t *text, const char *utf8, size_t len) {
  text_add_str(text, "\"");
  size_t done = 0;
  for (size_t at = 0; at < len; at++) {
    uint8_t c = (uint8_t)utf8[at];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    text_add(text, utf8 + done, at - done);
    if (c < 0x20) text_printf(text, "\\u%04x", c);
    else text_printf(text, "\\%c", c);
    done = at + 1;
  }
  text_add(text, utf8 + done, len - done);
  text_add_str(text, "\"");
}

void text_free(text_t *text) {
  free(text->ptr);
  *text = (text_t){0};
}
