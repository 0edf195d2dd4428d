/** Names of keys as the web knows them, on a US keyboard. */
import { ToolError } from "../errors.ts";

export interface Key {
  key: string;
  code: string;
  keyCode: number;
  /** What the key types, if anything. */
  text?: string;
  needsShift?: boolean;
}

const named: Record<string, [code: string, keyCode: number, text?: string]> = {
  Enter: ["Enter", 13, "\r"],
  Tab: ["Tab", 9],
  Escape: ["Escape", 27],
  Backspace: ["Backspace", 8],
  Delete: ["Delete", 46],
  Insert: ["Insert", 45],
  ArrowLeft: ["ArrowLeft", 37],
  ArrowUp: ["ArrowUp", 38],
  ArrowRight: ["ArrowRight", 39],
  ArrowDown: ["ArrowDown", 40],
  Home: ["Home", 36],
  End: ["End", 35],
  PageUp: ["PageUp", 33],
  PageDown: ["PageDown", 34],
  Shift: ["ShiftLeft", 16],
  Control: ["ControlLeft", 17],
  Alt: ["AltLeft", 18],
  Meta: ["MetaLeft", 91],
  CapsLock: ["CapsLock", 20],
  ContextMenu: ["ContextMenu", 93],
};
const aliases: Record<string, string> = {
  Return: "Enter",
  Esc: "Escape",
  Space: " ",
  Left: "ArrowLeft",
  Up: "ArrowUp",
  Right: "ArrowRight",
  Down: "ArrowDown",
  Ctrl: "Control",
  Cmd: "Meta",
  Command: "Meta",
  Option: "Alt",
  Del: "Delete",
};
/** Punctuation: code, key code, and the sign with Shift. */
const signs: Record<string, [code: string, keyCode: number, shifted: string]> = {
  "`": ["Backquote", 192, "~"],
  "-": ["Minus", 189, "_"],
  "=": ["Equal", 187, "+"],
  "[": ["BracketLeft", 219, "{"],
  "]": ["BracketRight", 221, "}"],
  "\\": ["Backslash", 220, "|"],
  ";": ["Semicolon", 186, ":"],
  "'": ["Quote", 222, '"'],
  ",": ["Comma", 188, "<"],
  ".": ["Period", 190, ">"],
  "/": ["Slash", 191, "?"],
};
const shiftedDigits = ")!@#$%^&*(";

/** The key that types this character; null for what a US keyboard cannot type. */
export function keyOfCharacter(character: string): Key | null {
  if (character === "\n" || character === "\r") return keyNamed("Enter");
  if (character === "\t") return keyNamed("Tab");
  if (character === " ") return { key: " ", code: "Space", keyCode: 32, text: " " };
  if (/^[a-zA-Z]$/.test(character)) {
    const upper = character.toUpperCase();
    const needsShift = character === upper;
    return { key: character, code: `Key${upper}`, keyCode: upper.charCodeAt(0), text: character, needsShift };
  }
  if (/^\d$/.test(character))
    return { key: character, code: `Digit${character}`, keyCode: 48 + Number(character), text: character };
  const digit = shiftedDigits.indexOf(character);
  if (digit !== -1)
    return { key: character, code: `Digit${digit}`, keyCode: 48 + digit, text: character, needsShift: true };
  for (const [sign, [code, keyCode, shifted]] of Object.entries(signs)) {
    if (character === sign) return { key: sign, code, keyCode, text: sign };
    if (character === shifted) return { key: shifted, code, keyCode, text: shifted, needsShift: true };
  }
  return null;
}

/** Names are written in every way: enter, ESC, arrowdown. One character alone is that character. */
const byLowerCase = new Map(
  [...Object.keys(named), ...Object.keys(aliases)].map((name) => [name.toLowerCase(), aliases[name] ?? name]),
);
const nameOf = (text: string) => (text.length === 1 ? text : (byLowerCase.get(text.toLowerCase()) ?? text));

export function keyNamed(name: string): Key {
  const wanted = nameOf(name);
  const known = named[wanted];
  if (known) return { key: wanted, code: known[0], keyCode: known[1], text: known[2] };
  const functionKey = /^F([1-9]|1\d|2[0-4])$/i.exec(wanted);
  if (functionKey) {
    const key = wanted.toUpperCase();
    return { key, code: key, keyCode: 111 + Number(functionKey[1]) };
  }
  const codeName = /^(?:Key([A-Z])|Digit(\d))$/.exec(wanted);
  const key = keyOfCharacter(codeName ? (codeName[1]?.toLowerCase() ?? codeName[2]!) : wanted);
  if (key) return key;
  // Keyboards of other languages have keys that no code stands for here; the page learns the sign.
  if ([...wanted].length === 1) return { key: wanted, code: "", keyCode: 0, text: wanted };
  throw new ToolError(
    "invalid_request",
    `Unknown key "${name.slice(0, 60)}". Use a character or a name such as Enter, Escape, Tab, ArrowDown, F5, with Control+, Shift+, Alt+ or Meta+ before it, or Wheel+400. To write text, use type.`,
  );
}

export const modifierBits: Record<string, number> = { Alt: 1, Control: 2, Meta: 4, Shift: 8 };

export interface Chord {
  modifiers: string[];
  key: Key;
}

export const primaryModifier = process.platform === "darwin" ? "Meta" : "Control";

/** "Control+Shift+a" as its modifiers and its key; "+" alone and "Control++" mean the plus key. */
export function parseChord(chord: string): Chord {
  const parts = chord.endsWith("+")
    ? [...chord.slice(0, -1).split("+").filter(Boolean), "+"]
    : chord.split("+");
  const last = parts.pop() ?? "";
  const modifiers = parts.map((part) => {
    const name = part.toLowerCase() === "controlormeta" ? primaryModifier : nameOf(part);
    if (!(name in modifierBits))
      throw new ToolError(
        "invalid_request",
        `Unknown modifier "${part}" in "${chord}": use Control, Shift, Alt or Meta.`,
      );
    return name;
  });
  // "Control+A" names the key; only Shift makes it the capital letter.
  const isPlainLetter = /^[A-Z]$/.test(last) && modifiers.length > 0 && !modifiers.includes("Shift");
  return { modifiers, key: keyNamed(isPlainLetter ? last.toLowerCase() : last) };
}

export interface Wheel {
  x: number;
  y: number;
}

export type KeyStep = { chord: Chord } | { wheel: Wheel };

const stepsMax = 200;
const wheelPixelsMax = 100_000;

/** One step of a sequence: a chord, a turn of the wheel (Wheel+400, WheelX-100), either of them repeated (Tab*3). */
function parseStep(step: string): KeyStep[] {
  const repeated = /^(.+)\*(\d{1,3})$/.exec(step);
  const what = repeated?.[1] ?? step;
  const times = repeated ? Number(repeated[2]) : 1;
  const wheel = /^wheel([xy]?)([+-]\d+)$/i.exec(what);
  const pixels = Number(wheel?.[2] ?? 0);
  if (Math.abs(pixels) > wheelPixelsMax)
    throw new ToolError(
      "invalid_request",
      `"${what.slice(0, 60)}" is too far: the wheel turns ${wheelPixelsMax} pixels at most. The keys End and Home go to the ends.`,
    );
  const isSideways = wheel?.[1]?.toLowerCase() === "x";
  const parsed: KeyStep = wheel
    ? { wheel: isSideways ? { x: pixels, y: 0 } : { x: 0, y: pixels } }
    : { chord: parseChord(what) };
  return Array.from({ length: times }, () => parsed);
}

/** "Control+a Delete", "ArrowDown*3 Enter"; a single space is the space bar. */
export function parseKeys(text: string): KeyStep[] {
  const steps = text.trim() === "" ? ["Space"] : text.trim().split(/\s+/);
  const parsed = steps.flatMap(parseStep);
  if (parsed.length > stepsMax)
    throw new ToolError(
      "invalid_request",
      `"${text.slice(0, 60)}" is ${parsed.length} keys; ${stepsMax} are the most at once.`,
    );
  return parsed;
}
