/* Writes JSON into a GString, member by member, with commas where they belong. json-glib does the reading. */
#ifndef WEBKIT_ENGINE_JSON_H
#define WEBKIT_ENGINE_JSON_H

#include <json-glib/json-glib.h>

/* A key of NULL is for the outermost value and for elements of an array. */
void json_begin_object(GString *out, const char *key);
void json_end_object(GString *out);
void json_begin_array(GString *out, const char *key);
void json_end_array(GString *out);
/* NULL is written as an empty string: most texts of the protocol may not be null. */
void json_add_string(GString *out, const char *key, const char *value);
void json_add_int(GString *out, const char *key, gint64 value);
void json_add_double(GString *out, const char *key, double value);
void json_add_bool(GString *out, const char *key, gboolean value);
/* value is JSON already. */
void json_add_raw(GString *out, const char *key, const char *value);

/* The members of a request; the fallback stands for one that is absent or of another type. */
const char *json_string(JsonObject *object, const char *key, const char *fallback);
double json_number(JsonObject *object, const char *key, double fallback);
gint64 json_integer(JsonObject *object, const char *key, gint64 fallback);
gboolean json_flag(JsonObject *object, const char *key, gboolean fallback);
JsonObject *json_object(JsonObject *object, const char *key);
JsonArray *json_array(JsonObject *object, const char *key);

/* The object in text, or NULL when text is no JSON object. The caller unrefs it. */
JsonObject *json_parse_object(const char *text, gssize bytes);

#endif
