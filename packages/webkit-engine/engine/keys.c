#include "keys.h"

#include <gdk/gdk.h>
#include <string.h>

typedef struct named_key {
  const char *name;
  guint value;
} named_key;

static const named_key values[] = {
    {"Enter", GDK_KEY_Return},
    {"Tab", GDK_KEY_Tab},
    {"Escape", GDK_KEY_Escape},
    {"Backspace", GDK_KEY_BackSpace},
    {"Delete", GDK_KEY_Delete},
    {"Insert", GDK_KEY_Insert},
    {"ArrowLeft", GDK_KEY_Left},
    {"ArrowUp", GDK_KEY_Up},
    {"ArrowRight", GDK_KEY_Right},
    {"ArrowDown", GDK_KEY_Down},
    {"Home", GDK_KEY_Home},
    {"End", GDK_KEY_End},
    {"PageUp", GDK_KEY_Page_Up},
    {"PageDown", GDK_KEY_Page_Down},
    {"Shift", GDK_KEY_Shift_L},
    {"Control", GDK_KEY_Control_L},
    {"Alt", GDK_KEY_Alt_L},
    {"Meta", GDK_KEY_Super_L},
    {"CapsLock", GDK_KEY_Caps_Lock},
    {"ContextMenu", GDK_KEY_Menu},
};

/* Linux numbers the keys of a PC keyboard by where they lie, and X adds 8. */
typedef struct key_row {
  guint16 first;
  const char *codes;
} key_row;

static const key_row rows[] = {
    {9, "Escape Digit1 Digit2 Digit3 Digit4 Digit5 Digit6 Digit7 Digit8 Digit9 Digit0 Minus Equal Backspace"},
    {23, "Tab KeyQ KeyW KeyE KeyR KeyT KeyY KeyU KeyI KeyO KeyP BracketLeft BracketRight Enter"},
    {37, "ControlLeft KeyA KeyS KeyD KeyF KeyG KeyH KeyJ KeyK KeyL Semicolon Quote Backquote"},
    {50, "ShiftLeft Backslash KeyZ KeyX KeyC KeyV KeyB KeyN KeyM Comma Period Slash ShiftRight"},
    {63, "NumpadMultiply AltLeft Space CapsLock F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 NumLock ScrollLock"},
    {79, "Numpad7 Numpad8 Numpad9 NumpadSubtract Numpad4 Numpad5 Numpad6 NumpadAdd"},
    {87, "Numpad1 Numpad2 Numpad3 Numpad0 NumpadDecimal"},
    {95, "F11 F12"},
    {104, "NumpadEnter ControlRight NumpadDivide PrintScreen AltRight"},
    {110, "Home ArrowUp PageUp ArrowLeft ArrowRight End ArrowDown PageDown Insert Delete"},
    {133, "MetaLeft MetaRight ContextMenu"},
};

guint keys_value(const char *key) {
  for (gsize index = 0; index < G_N_ELEMENTS(values); index++)
    if (strcmp(values[index].name, key) == 0)
      return values[index].value;
  if (key[0] == 'F' && g_ascii_isdigit(key[1])) {
    const guint64 number = g_ascii_strtoull(key + 1, NULL, 10);
    return number >= 1 && number <= 35 ? GDK_KEY_F1 + (guint)number - 1 : 0;
  }
  return g_utf8_strlen(key, -1) == 1 ? gdk_unicode_to_keyval(g_utf8_get_char(key)) : 0;
}

guint16 keys_place(const char *code) {
  const size_t bytes = strlen(code);
  for (gsize row = 0; bytes > 0 && row < G_N_ELEMENTS(rows); row++) {
    guint16 place = rows[row].first;
    for (const char *at = rows[row].codes; *at; place++) {
      const size_t length = strcspn(at, " ");
      if (length == bytes && strncmp(at, code, bytes) == 0)
        return place;
      at += length + (at[length] == ' ');
    }
  }
  return 0;
}
