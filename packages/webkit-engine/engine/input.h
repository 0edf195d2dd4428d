/* Pointer, keys and text: events as GTK would deliver them, one after another, each answered when the page has it. */
#ifndef WEBKIT_ENGINE_INPUT_H
#define WEBKIT_ENGINE_INPUT_H

#include "page.h"

void input_key(page *of, request *asked);
void input_mouse(page *of, request *asked);
void input_insert_text(page *of, request *asked);
void input_drag(page *of, request *asked);
void input_watch(page *of);
/* To the window of the page, from the pointer or the keyboard. */
void input_address(page *of, GdkEvent *event, gboolean is_key);
/* A place of the page in the coordinates of the display. */
void input_root_place(page *of, double x, double y, double *x_root, double *y_root);
/* Where the event of a request is. */
void input_place(page *of, const request *asked);
/*
 * A drag takes the release of the button away from WebKit, which would take the next press for that of a second
 * button and keep it from the page's pointer events. The release is given to it later, where nothing is.
 */
void input_end_press(page *of);
/* Answers a step, and takes the next one. */
void input_end_step(page *of, request *asked);
/* The page goes away with what still waits for it. */
void input_drop(page *of);

#endif
