/** Fields: what can be typed into, how it is made ready, and what it holds afterwards. */
import type { Act, Readiness } from "./act.ts";
import type { Brief } from "./brief.ts";
import type { Dom } from "./dom.ts";
import type { Hit } from "./hit.ts";
import type { Roles } from "./roles.ts";
import type { Watch } from "./watch.ts";

export interface TypeRequest {
  text: string;
  /** Keep what is there and go on at its end. */
  append: boolean;
  /** The field is only looked at; `insert` follows where it can. */
  isFocusedLater: boolean;
}

export interface InsertRequest {
  append: boolean;
  /** As one piece, not key by key. */
  isWhole: boolean;
}

/** How the text gets into the field that is ready now. */
export interface FieldKind {
  /** One box for each character, as for codes that are sent by mail. */
  isSingleBox: boolean;
  /** An editor that keeps its text elsewhere: only its own "select all" knows what all of it is. */
  isEditor: boolean;
  /** A text field of the browser's own, which `insert` can fill. */
  isPlain: boolean;
  /** What it holds is not to be seen. */
  isSecret: boolean;
  /** The text before, which `append` goes on from; null where it cannot be read. */
  before: string | null;
}

interface FieldTools {
  dom: Dom;
  roles: Roles;
  hit: Hit;
  act: Act;
  brief: Brief;
  watch: Watch;
}

export function createFields({ dom, roles, hit, act, brief, watch }: FieldTools) {
  /** Kinds of input that take a value as a whole and ignore keys in part. */
  const valueTypes = /^(date|time|datetime-local|month|week|color|range)$/;
  const clickedTypes = /^(checkbox|radio|submit|button|reset|image|hidden)$/;
  const optionsShownMax = 20;
  const keysMax = 200;

  const hasEditContext = (element: Element) =>
    Boolean((element as Element & { editContext?: unknown }).editContext);
  const isTextField = (element: Element) =>
    element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement;

  function isField(element: Element): element is HTMLElement {
    if (isTextField(element) || element instanceof HTMLSelectElement) return true;
    return (element instanceof HTMLElement && element.isContentEditable) || hasEditContext(element);
  }

  /** A label stands for its control, and an editor's frame for the one field in it. */
  function fieldOf(element: Element): HTMLElement | null {
    if (isField(element)) return element;
    if (element instanceof HTMLLabelElement && element.control) return fieldOf(element.control);
    const root: ParentNode = dom.shadowOf(element) ?? element;
    const candidates = "input:not([type=hidden]), textarea, select, [contenteditable], [role=textbox]";
    const inside = [...root.querySelectorAll(candidates)].filter(isField);
    if (inside.length === 1) return inside[0]!;
    // Editors keep a field that only looks after the keyboard of some languages beside the one that they use.
    const usable = inside.filter((field) => !(field as HTMLInputElement).readOnly);
    return usable.length === 1 ? usable[0]! : null;
  }

  /** What has the focus, inside of shadow roots too. */
  function focused(): Element | null {
    let at = document.activeElement;
    while (at) {
      const inner: Element | null = dom.shadowOf(at)?.activeElement ?? null;
      if (!inner) break;
      at = inner;
    }
    return at === document.body || at === document.documentElement ? null : at;
  }

  function chooseByText(select: HTMLSelectElement, text: string): Readiness {
    const wanted = text.trim();
    const find = (label: string) =>
      [...select.options].find((one) => one.label.trim() === label || one.value === label);
    const missing = (label: string): Readiness => {
      const labels = [...select.options].slice(0, optionsShownMax).map((one) => one.label.trim());
      return {
        state: "unsuitable",
        reason: `it has no option "${label}"; its options are: ${labels.join(", ")}`,
      };
    };
    const single = find(wanted);
    if (!select.multiple) return single ? act.chooseOption(single) : missing(wanted);
    const lines = single ? [wanted] : wanted.split("\n").map((line) => line.trim());
    const options = lines.filter(Boolean).map(find);
    const unknown = options.indexOf(undefined);
    if (unknown !== -1) return missing(lines.filter(Boolean)[unknown]!);
    for (const option of select.options) option.selected = options.includes(option);
    select.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    select.dispatchEvent(new Event("change", { bubbles: true }));
    return { state: "done" };
  }

  function wantedValue({ type, min, max, step }: HTMLInputElement): string {
    if (type === "range")
      return `it takes numbers from ${min || 0} to ${max || 100} in steps of ${step || 1}`;
    const examples: Record<string, string> = {
      date: "2026-01-31",
      time: "23:59",
      "datetime-local": "2026-01-31T23:59",
      month: "2026-01",
      week: "2026-W05",
      color: "#ff8800",
    };
    return `write it like ${examples[type]}, within what the field allows`;
  }

  const isDay = (text: string) => {
    const [, year, month, day] = /^(\d{4,6})-(\d\d)-(\d\d)$/.exec(text) ?? [];
    const date = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day)));
    return date.getUTCMonth() === Number(month) - 1 && date.getUTCDate() === Number(day);
  };
  const isTime = (text: string) => /^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,3})?)?$/.test(text);
  /** The browser itself would complain of a wrong value in the page's console. */
  const wellFormed: Record<string, (text: string) => boolean> = {
    date: isDay,
    time: isTime,
    "datetime-local": (text) =>
      isDay(text.slice(0, -6).replace(/[T ].*/, "")) && isTime(text.replace(/^.*[T ]/, "")),
    month: (text) => /^\d{4,6}-(0[1-9]|1[0-2])$/.test(text),
    week: (text) => /^\d{4,6}-W(0[1-9]|[1-4]\d|5[0-3])$/.test(text),
    color: (text) => /^#[0-9a-f]{6}$/i.test(text),
    range: (text) => text.trim() !== "" && Number.isFinite(Number(text)),
  };

  function setValue(input: HTMLInputElement, text: string): Readiness {
    const before = input.value;
    input.focus();
    const isRead = text === "" || wellFormed[input.type]!(text);
    if (isRead) input.value = text;
    const isTaken =
      input.type === "range"
        ? Number(input.value) === Number(text)
        : input.value.toLowerCase() === text.toLowerCase();
    if (!isRead || !isTaken) {
      if (isRead) input.value = before;
      return { state: "unsuitable", reason: `"${text}" is no ${input.type} value; ${wantedValue(input)}` };
    }
    input.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    input.dispatchEvent(new Event("change", { bubbles: true }));
    return { state: "done" };
  }

  /** Why this kind of input takes no text; null when it does. */
  function refusal(field: HTMLInputElement, text: string): Readiness | null {
    if (field.type === "number" && text.trim() !== "" && Number.isNaN(Number(text)))
      return { state: "unsuitable", reason: `"${text}" is no number` };
    if (field.type === "file")
      return { state: "unsuitable", reason: "it takes files; give their paths as files instead of text" };
    if (clickedTypes.test(field.type))
      return {
        state: "unsuitable",
        reason: `an input of type ${field.type} takes no text; click it instead`,
      };
    return null;
  }

  /** Focuses the field and selects what is there, so that inserted text replaces it. */
  function prepareType(element: Element, { text, append, isFocusedLater }: TypeRequest): Readiness {
    dom.resetCaches();
    if (!element.isConnected) return { state: "hidden", reason: "it is no longer in the page" };
    const field = fieldOf(element);
    if (!field)
      return {
        state: "unsuitable",
        reason: `${brief(element)} is no text field, list or editable element; to type with the keyboard, click it and type without a target`,
      };
    // An editor's own field is often a dot that nobody sees.
    if (!dom.boxOf(field).visible && (field === element || !dom.boxOf(element).visible))
      return { state: "hidden", reason: "it is not visible" };
    if (roles.isDisabledForAria(field)) return { state: "disabled", reason: "it is disabled" };
    if (field instanceof HTMLSelectElement) return chooseByText(field, text);
    if (isTextField(field) && (field as HTMLInputElement).readOnly)
      return { state: "unsuitable", reason: "it is read-only" };
    if (field instanceof HTMLInputElement) {
      if (valueTypes.test(field.type)) return setValue(field, text);
      const refused = refusal(field, text);
      if (refused) return refused;
    }
    if (!hit.isWholeInView(field)) hit.scrollTo(field, "nearest");
    if (!isFocusedLater || !kindOf(element).isPlain) focusFor(field, append);
    return { state: "ready", x: 0, y: 0 };
  }

  function focusFor(field: HTMLElement, append: boolean): void {
    field.focus({ preventScroll: true });
    if (append) caretToEnd(field);
    else if (isTextField(field)) (field as HTMLInputElement).select();
    else if (field.isContentEditable) getSelection()?.selectAllChildren(field);
  }

  /**
   * Focus, selection and text in one step. Apart, the focus would be drawn in a frame of its own, and what the text
   * leads to one frame later. Returns what is left of the text when the page moves the focus on: it has to follow.
   */
  function insert(element: Element, text: string, { append, isWhole }: InsertRequest): string {
    const field = element as HTMLElement;
    focusFor(field, append);
    const characters = [...text];
    // Of a long text the beginning comes as a whole: each key costs a page what one keystroke does.
    const wholeCount = isWhole ? characters.length : Math.max(0, characters.length - keysMax);
    const whole = characters.splice(0, wholeCount).join("");
    const parts = whole === "" ? [...characters] : [whole, ...characters];
    while (parts.length > 0 && focused() === field) {
      typePart(field, parts.shift()!);
      // A box that keeps one character of two hands a whole code on to its neighbours, as when it is pasted.
      if (parts.length !== characters.length - 2 || (field as HTMLInputElement).value.length !== 1) continue;
      focusFor(field, false);
      typePart(field, text);
      return "";
    }
    return parts.join("");
  }

  /** With the events of its last key: searches and filters wait for those. */
  function typePart(field: HTMLElement, part: string): void {
    const key = [...part].at(-1)!;
    const letter = /^[a-z0-9]$/i.test(key) ? key.toUpperCase() : "";
    const code = letter && `${/\d/.test(letter) ? "Digit" : "Key"}${letter}`;
    const fire = (type: string, keyCode: number) => {
      const init = { key, code, keyCode, which: keyCode, bubbles: true, cancelable: true, composed: true };
      return field.dispatchEvent(new KeyboardEvent(type, init));
    };
    const keyCode = letter ? letter.charCodeAt(0) : key === " " ? 32 : 0;
    const isTyped = fire("keydown", keyCode) && fire("keypress", key.codePointAt(0)!);
    // Not every browser asks the page before a command; the page is asked here, once, and may do it itself.
    if (isTyped && isAllowed(field, part)) watch.insertText(part);
    fire("keyup", keyCode);
  }

  /** As from the clipboard, into what has the focus; false when the page does not care for that itself. */
  function paste(text: string): boolean {
    const field = focused();
    if (!field || (field as HTMLElement).isContentEditable) return false;
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", text);
    return !field.dispatchEvent(
      new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true, composed: true }),
    );
  }

  const isAllowed = (field: Element, data: string) =>
    field.dispatchEvent(
      new InputEvent("beforeinput", {
        data,
        inputType: "insertText",
        bubbles: true,
        cancelable: true,
        composed: true,
      }),
    );

  /** Where lines are elements, the browser leaves the caret somewhere in the last of those that it inserted. */
  function caretToEnd(element: Element): void {
    const field = fieldOf(element);
    if (!field) return;
    if (isTextField(field)) {
      const input = field as HTMLInputElement;
      // Numbers, mail addresses and the like have no selection; their caret is at the end after a focus by script.
      if (input.selectionStart !== null) input.setSelectionRange(input.value.length, input.value.length);
    } else if (field.isContentEditable) {
      getSelection()?.selectAllChildren(field);
      getSelection()?.collapseToEnd();
    }
  }

  function kindOf(element: Element | null): FieldKind {
    const field = element && fieldOf(element);
    if (!field) return { isSingleBox: false, isEditor: false, isPlain: false, isSecret: false, before: null };
    const isSingleBox = field instanceof HTMLInputElement && field.maxLength === 1;
    // The field that an editor reads the keyboard with is as wide as its caret.
    const isKeyboard = field instanceof HTMLTextAreaElement && field.getBoundingClientRect().width < 4;
    const isEditor = !isTextField(field) || field !== element || isKeyboard;
    return {
      isSingleBox,
      isEditor,
      isPlain: !isSingleBox && !isEditor,
      isSecret: field instanceof HTMLInputElement && field.type === "password",
      before: heldBy(field),
    };
  }

  const lines = (text: string) => text.replace(/\r\n?/g, "\n").replace(/\u00a0/g, " ");

  /** What a field holds now; null where that cannot be read. */
  function heldBy(element: Element): string | null {
    const field = fieldOf(element);
    if (!field) return null;
    if (field instanceof HTMLSelectElement)
      return [...field.selectedOptions].map((option) => option.label.trim()).join("\n");
    if (isTextField(field)) return lines((field as HTMLInputElement).value);
    return field.isContentEditable ? lines(field.innerText).replace(/\n$/, "") : null;
  }

  /** The boxes of a code, from this one on. */
  function boxesFrom(box: Element): HTMLInputElement[] {
    const isBox = (one: Element): one is HTMLInputElement =>
      one instanceof HTMLInputElement &&
      (one.maxLength === 1 || one.value.length <= 1) &&
      dom.boxOf(one).visible;
    let around: Element | null = box.parentElement;
    // The nearest ancestor with more than one of them holds the whole code.
    while (around && [...around.querySelectorAll("input")].filter(isBox).length < 2)
      around = around.parentElement;
    const boxes = [...(around ?? document.body).querySelectorAll("input")].filter(isBox);
    return boxes.slice(Math.max(0, boxes.indexOf(box as HTMLInputElement)));
  }

  const boxesValue = (box: Element, count: number) =>
    boxesFrom(box)
      .slice(0, count)
      .map(({ value }) => value)
      .join("");

  /** Most pages go to the next box when one is filled; where a page does not, this does. */
  function leaveBox(first: Element, index: number): void {
    const boxes = boxesFrom(first);
    const current = boxes[index];
    if (current && focused() === current && current.value !== "") boxes[index + 1]?.focus();
  }

  return { prepareType, insert, paste, fieldOf, focused, caretToEnd, kindOf, heldBy, boxesValue, leaveBox };
}

export type Fields = ReturnType<typeof createFields>;
