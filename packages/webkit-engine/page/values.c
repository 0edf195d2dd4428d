/* Objects that the tool holds on to, until it lets go or their document is gone. */
#include <string.h>

#include "line.h"
#include "page.h"

/* What a tool that never lets go may keep in one process. */
#define OBJECTS_MAX 100000u

typedef struct kept_object {
  char *id;
  JSCValue *value;
  context *of;
} kept_object;

static GHashTable *objects;
static guint64 objects_kept;

static void free_object(gpointer data) {
  kept_object *of = data;
  g_object_unref(of->value);
  g_free(of->id);
  g_free(of);
}

char *object_keep(JSCValue *value, context *of) {
  if (!objects)
    objects = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, free_object);
  if (g_hash_table_size(objects) >= OBJECTS_MAX)
    return NULL;
  kept_object *made = g_new0(kept_object, 1);
  made->id = g_strdup_printf("%" G_GINT64_FORMAT ".%" G_GUINT64_FORMAT, line_process(), ++objects_kept);
  made->value = g_object_ref(value);
  made->of = of;
  g_hash_table_insert(objects, made->id, made);
  return g_strdup(made->id);
}

JSCValue *object_with_id(const char *id, context **of) {
  kept_object *found = objects && id ? g_hash_table_lookup(objects, id) : NULL;
  if (!found)
    return NULL;
  if (of)
    *of = found->of;
  return g_object_ref(found->value);
}

void object_release(const char *id) {
  if (objects && id)
    g_hash_table_remove(objects, id);
}

static gboolean is_of_context(gpointer id, gpointer object, gpointer of) {
  (void)id;
  return ((kept_object *)object)->of == of;
}

void objects_drop_context(const context *of) {
  if (objects)
    g_hash_table_foreach_remove(objects, is_of_context, (gpointer)of);
}

char *remote_object(context *of, JSCValue *value, gboolean by_value, gboolean with_preview) {
  frame *in = of->of;
  if (!frame_helper(in))
    return g_strdup("{\"type\":\"undefined\"}");
  JSCContext *script = in->helper_context;
  char *described = helper_text(in, "describe", g_object_ref(value), jsc_value_new_boolean(script, by_value),
                                jsc_value_new_boolean(script, with_preview), NULL);
  /* What has no JSON, as an object that contains itself. */
  if (!described)
    return NULL;
  if (by_value || with_preview)
    return described;
  g_autoptr(JSCValue) needs_id = helper_call(in, "needsId", g_object_ref(value), NULL);
  if (!needs_id || !jsc_value_to_boolean(needs_id))
    return described;
  g_autofree char *id = object_keep(value, of);
  if (!id)
    return described;
  g_autofree char *without_id = described;
  without_id[strlen(without_id) - 1] = '\0';
  return g_strdup_printf("%s,\"objectId\":\"%s\"}", without_id, id);
}
