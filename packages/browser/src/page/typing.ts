/** Typing: into a target or into what has the focus, and a look at what the field holds afterwards. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import { type Frame, isContextGone } from "./frame.ts";
import type { After } from "./inpage/contract.ts";
import type { FieldKind } from "./inpage/fields.ts";
import { pressChord, typeKeys } from "./input.ts";
import { parseChord, primaryModifier } from "./keys.ts";
import type { Page } from "./page.ts";
import { whenReady } from "./ready.ts";
import { askFrame } from "./search.ts";
import {
  type ActionResult,
  conclude,
  inLines,
  isTaken,
  lookAfter,
  reportMomentary,
  stateBefore,
  stillBusy,
} from "./settle.ts";

const valueCharsMax = 300;
/** What is shown of a password. */
const secretMask = "••••••";

export interface TypeOptions {
  /** Null: the focused element, at its caret. */
  target: string | null;
  text: string;
  /** Append to the current content instead of replacing it. */
  append: boolean;
  submit: boolean;
  slowly: boolean;
}

interface Typed extends TypeOptions {
  /** It holds a secret. A part of that would be shown in what the page does with it. */
  isSecret: boolean;
}

interface Field {
  frame: Frame;
  kind: FieldKind;
  matches: number;
  /** A list or a date was set as a whole already. */
  isDone: boolean;
}

/** One line that is inserted as a whole. */
const isOneLine = ({ text, slowly }: TypeOptions) => !slowly && text !== "" && !/[\r\n]/.test(text);

/** The text as it is typed into this frame. A page on its way elsewhere may be another host's by then. */
function secretsIn(page: Page, { url }: Frame, { text }: TypeOptions): string {
  const filled = page.secrets.fill(text, url);
  if (filled !== text && page.isNavigating)
    throw new ToolError("forbidden", "The page is on its way elsewhere; type the secret once it is there.");
  return filled;
}

async function findTarget(
  page: Page,
  target: string,
  options: TypeOptions,
  deadline: Deadline,
): Promise<Field> {
  const { append } = options;
  const isFocusedLater = isOneLine(options);
  const { frame, found } = await whenReady(page, target, deadline, (each, look) =>
    each.call(
      "type",
      [target, { text: secretsIn(page, each, options), append, isFocusedLater }],
      look.leftMs,
    ),
  );
  const kind = found.field ?? {
    isSingleBox: false,
    isEditor: false,
    isPlain: false,
    isSecret: false,
    before: null,
  };
  return { frame, kind, matches: found.matches, isDone: found.readiness!.state === "done" };
}

/** The frame whose document has the focus, and what it is there. */
async function findFocus(page: Page, deadline: Deadline): Promise<Field> {
  for (const frame of page.frames.values()) {
    const focus = await askFrame(page, frame, deadline, ({ leftMs }) => frame.call("focus", [], leftMs));
    if (focus && (focus.kind === "field" || focus.kind === "other"))
      return { frame, kind: focus.field, matches: 0, isDone: false };
  }
  throw new ToolError(
    "element_not_actionable",
    "Nothing on the page has the focus. Click what should be typed into first, or give a target.",
  );
}

/** One box for each character: each character is typed, and the focus is moved on where the page does not do it. */
async function fillBoxes(frame: Frame, { target, text }: TypeOptions, deadline: Deadline): Promise<void> {
  let index = 0;
  for (const character of text) {
    await typeKeys(frame.session, character, deadline.leftMs);
    await frame.call("leaveBox", [target, index++], deadline.leftMs);
  }
}

async function insert(frame: Frame, { target, text }: TypeOptions, deadline: Deadline): Promise<void> {
  await frame.session.send("Input.insertText", { text }, deadline.leftMs);
  if (text.includes("\n") && target !== null) await frame.call("caretToEnd", [target], deadline.leftMs);
}

/** Into a field of the browser's own, by a command in the page; as input where the page passes the focus on. */
async function insertInPage(frame: Frame, target: string, options: Typed, deadline: Deadline): Promise<void> {
  try {
    const { append, isSecret } = options;
    const text = await frame.call(
      "insert",
      [target, options.text, { append, isWhole: isSecret }],
      deadline.leftMs,
    );
    if (text === options.text) await insert(frame, options, deadline);
    else await typeKeys(frame.session, text, deadline.leftMs);
  } catch (error) {
    // What was typed, or the focus, made the page leave.
    if (!isContextGone(error)) throw error;
  }
}

async function enter({ frame, kind }: Field, options: Typed, deadline: Deadline): Promise<void> {
  const { target, text, append, slowly } = options;
  const replaces = target !== null && !append;
  if (target !== null && kind.isPlain && isOneLine(options))
    return insertInPage(frame, target, options, deadline);
  if (kind.isSingleBox && text.length > 1) return fillBoxes(frame, options, deadline);
  // Editors draw only a part of their text; their own "select all" takes all of it.
  if (replaces && kind.isEditor)
    await pressChord(frame.session, parseChord(`${primaryModifier}+a`), deadline.leftMs);
  // Code editors close brackets and indent what is typed; what is pasted they take as it is.
  if (kind.isEditor && text.length > 1 && !slowly && (await frame.call("paste", [text], deadline.leftMs)))
    return;
  if (!slowly && text !== "") return insert(frame, options, deadline);
  // What is selected is removed first; typing over it would do the same, but not for an empty text.
  if (replaces && kind.before !== "") await pressChord(frame.session, parseChord("Delete"), deadline.leftMs);
  await typeKeys(frame.session, text, deadline.leftMs);
}

const flat = (text: string) => text.replace(/\s+/g, " ").trim();
const shown = (text: string) =>
  JSON.stringify(text.length > valueCharsMax ? `${text.slice(0, valueCharsMax)}…` : text);

/** Says so when the field holds something else than it was given: a mask, a limit, or a refusal. */
function checkValue(page: Page, value: string, { kind }: Field, { target, text, append }: TypeOptions): void {
  // At the caret of a field the text may come to stand anywhere in it.
  const isAtCaret = target === null;
  const wanted = append ? (kind.before ?? "") + text : text;
  const isThere = isAtCaret ? flat(value).includes(flat(text)) : flat(value) === flat(wanted);
  // An editor's own field is emptied once the editor has taken what was typed.
  if (isThere || (kind.isEditor && value === "")) return;
  if (kind.isSecret) page.report("input", "The field holds something else than was typed.");
  else page.report("input", `The field holds ${shown(value)}, not ${shown(wanted)}.`);
}

/** What the field holds, one frame after it was typed into; null when that cannot be read. */
async function readBack(
  page: Page,
  field: Field,
  options: TypeOptions,
  deadline: Deadline,
): Promise<{ value: string | null; after: After | null }> {
  const { frame, kind, isDone } = field;
  const { target, text } = options;
  const after = await lookAfter(page, frame, deadline, { target });
  let value = after?.value ?? null;
  // A field that took one character may have passed the others on to those beside it.
  if (text.length > 1 && (kind.isSingleBox || value?.length === 1))
    value = await frame.call("boxesValue", [target, text.length], deadline.leftMs);
  if (value !== null && !isDone) checkValue(page, value, field, options);
  return { value: kind.isSecret && value ? secretMask : value, after };
}

export async function type(page: Page, asked: TypeOptions, deadline: Deadline): Promise<ActionResult> {
  const before = await stateBefore(page, deadline);
  // Key by key the page could show a part of a secret, which nothing would recognise.
  const given = { ...asked, slowly: asked.slowly && !page.secrets.areIn(asked.text) };
  const { target, submit } = given;
  const field =
    target === null ? await findFocus(page, deadline) : await findTarget(page, target, given, deadline);
  const { frame, matches } = field;
  const text = secretsIn(page, frame, given);
  const options = { ...given, text, isSecret: text !== given.text };
  if (!field.isDone && !(await isTaken(page, enter(field, options, deadline))))
    return stillBusy(page, matches);
  const { value, after } = await readBack(page, field, options, deadline);
  if (!submit) return conclude(page, { before, frame, after, matches, value }, deadline);
  reportMomentary(page, after?.changes?.momentary ?? []);
  // Enter is an action of its own: what it makes the page do is counted from here, not from the typing.
  await frame.call("prepare", [], deadline.leftMs).catch((error: unknown) => {
    if (!isContextGone(error)) throw error;
  });
  const pressed = pressChord(frame.session, parseChord("Enter"), deadline.leftMs);
  if (!(await isTaken(page, pressed))) return stillBusy(page, matches);
  const result = await conclude(page, { before, frame, after: null, matches, value }, deadline);
  return result.navigated
    ? result
    : { ...result, changes: inLines(after?.changes?.lines.join("\n"), result.changes) };
}
