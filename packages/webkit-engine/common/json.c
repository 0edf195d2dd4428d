#include "json.h"

#include <math.h>
#include <string.h>

static void escape(GString *out, const char *text) {
  g_autofree char *valid = g_utf8_validate(text, -1, NULL) ? NULL : g_utf8_make_valid(text, -1);
  g_string_append_c(out, '"');
  for (const unsigned char *at = (const unsigned char *)(valid ? valid : text); *at; at++) {
    if (*at == '"' || *at == '\\')
      g_string_append_c(out, '\\');
    if (*at >= 0x20)
      g_string_append_c(out, (char)*at);
    else
      g_string_append_printf(out, "\\u%04x", *at);
  }
  g_string_append_c(out, '"');
}

static void begin_member(GString *out, const char *key) {
  const char last = out->len > 0 ? out->str[out->len - 1] : '\0';
  if (last != '\0' && last != '{' && last != '[' && last != ':')
    g_string_append_c(out, ',');
  if (!key)
    return;
  escape(out, key);
  g_string_append_c(out, ':');
}

void json_begin_object(GString *out, const char *key) {
  begin_member(out, key);
  g_string_append_c(out, '{');
}

void json_end_object(GString *out) {
  g_string_append_c(out, '}');
}

void json_begin_array(GString *out, const char *key) {
  begin_member(out, key);
  g_string_append_c(out, '[');
}

void json_end_array(GString *out) {
  g_string_append_c(out, ']');
}

void json_add_string(GString *out, const char *key, const char *value) {
  begin_member(out, key);
  escape(out, value ? value : "");
}

void json_add_int(GString *out, const char *key, gint64 value) {
  begin_member(out, key);
  g_string_append_printf(out, "%" G_GINT64_FORMAT, value);
}

void json_add_double(GString *out, const char *key, double value) {
  char buffer[G_ASCII_DTOSTR_BUF_SIZE];
  begin_member(out, key);
  g_string_append(out, isfinite(value) ? g_ascii_dtostr(buffer, sizeof buffer, value) : "0");
}

void json_add_bool(GString *out, const char *key, gboolean value) {
  begin_member(out, key);
  g_string_append(out, value ? "true" : "false");
}

void json_add_raw(GString *out, const char *key, const char *value) {
  begin_member(out, key);
  g_string_append(out, value);
}

static JsonNode *member(JsonObject *object, const char *key, JsonNodeType type) {
  JsonNode *node = object ? json_object_get_member(object, key) : NULL;
  return node && JSON_NODE_TYPE(node) == type ? node : NULL;
}

const char *json_string(JsonObject *object, const char *key, const char *fallback) {
  JsonNode *node = member(object, key, JSON_NODE_VALUE);
  return node && json_node_get_value_type(node) == G_TYPE_STRING ? json_node_get_string(node) : fallback;
}

double json_number(JsonObject *object, const char *key, double fallback) {
  JsonNode *node = member(object, key, JSON_NODE_VALUE);
  if (!node)
    return fallback;
  const GType type = json_node_get_value_type(node);
  if (type != G_TYPE_INT64 && type != G_TYPE_DOUBLE)
    return fallback;
  const double value = json_node_get_double(node);
  return isfinite(value) ? value : fallback;
}

gint64 json_integer(JsonObject *object, const char *key, gint64 fallback) {
  const double exact_max = 9007199254740992.0;
  const double value = json_number(object, key, (double)fallback);
  return fabs(value) <= exact_max ? (gint64)value : fallback;
}

gboolean json_flag(JsonObject *object, const char *key, gboolean fallback) {
  JsonNode *node = member(object, key, JSON_NODE_VALUE);
  return node && json_node_get_value_type(node) == G_TYPE_BOOLEAN ? json_node_get_boolean(node) : fallback;
}

JsonObject *json_object(JsonObject *object, const char *key) {
  JsonNode *node = member(object, key, JSON_NODE_OBJECT);
  return node ? json_node_get_object(node) : NULL;
}

JsonArray *json_array(JsonObject *object, const char *key) {
  JsonNode *node = member(object, key, JSON_NODE_ARRAY);
  return node ? json_node_get_array(node) : NULL;
}

JsonObject *json_parse_object(const char *text, gssize bytes) {
  g_autoptr(JsonParser) parser = json_parser_new_immutable();
  if (!json_parser_load_from_data(parser, text, bytes, NULL))
    return NULL;
  JsonNode *root = json_parser_get_root(parser);
  return root && JSON_NODE_HOLDS_OBJECT(root) ? json_object_ref(json_node_get_object(root)) : NULL;
}
