/* Bytes that grow. Out of memory ends the instance, with a line in the log. */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  char *ptr; /* null while empty */
  size_t len;
  size_t room;
} text_t;

void text_add(text_t *text, const void *bytes, size_t len);
void text_add_str(text_t *text, const char *str);
void text_printf(text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One Unicode code point, as UTF-8; U+FFFD for what is none. */
void text_add_code(text_t *text, uint32_t code);
/* Bytes as UTF-8: U+FFFD stands for what is not. */
void text_add_utf8(text_t *text, const uint8_t *bytes, size_t len);
/* UTF-8 as a JSON string, quotes included. */
void text_add_json(text_t *text, const char *utf8, size_t len);
void text_free(text_t *text);

/* `malloc`, but it never fails. */
void *allocate(size_t size);

#endif
