/** Real input events. They are sent in one go: the browser keeps their order, and only the last one is waited for. */
import type { CdpSession } from "../cdp/connection.ts";
import { type Key, keyNamed, keyOfCharacter, modifierBits, parseChord } from "./keys.ts";

export type MouseButton = "left" | "right" | "middle";

export interface ClickInput {
  x: number;
  y: number;
  button: MouseButton;
  modifiers: string[];
  doubleClick: boolean;
}

const buttonBits: Record<MouseButton, number> = { left: 1, right: 2, middle: 4 };

function bitsOf(modifiers: readonly string[]): number {
  return modifiers.reduce((bits, name) => bits | (modifierBits[name] ?? 0), 0);
}

export async function clickAt(session: CdpSession, input: ClickInput, timeoutMs: number): Promise<void> {
  const { x, y, button, doubleClick } = input;
  const modifiers = bitsOf(input.modifiers);
  const sent: Promise<unknown>[] = [];
  const mouse = (type: "mouseMoved" | "mousePressed" | "mouseReleased", clickCount: number) =>
    sent.push(
      session.send(
        "Input.dispatchMouseEvent",
        {
          type,
          x,
          y,
          modifiers,
          clickCount,
          button: type === "mouseMoved" ? "none" : button,
          buttons: type === "mousePressed" ? buttonBits[button] : 0,
        },
        timeoutMs,
      ),
    );
  mouse("mouseMoved", 0);
  for (let count = 1; count <= (doubleClick ? 2 : 1); count++) {
    mouse("mousePressed", count);
    mouse("mouseReleased", count);
  }
  await Promise.all(sent);
}

function keyEvents(session: CdpSession, key: Key, modifiers: number, timeoutMs: number): Promise<unknown>[] {
  const typesText =
    key.text !== undefined &&
    (modifiers & (modifierBits.Control! | modifierBits.Meta! | modifierBits.Alt!)) === 0;
  const shared = {
    modifiers: modifiers | (key.needsShift ? modifierBits.Shift! : 0),
    key: key.key,
    code: key.code,
    windowsVirtualKeyCode: key.keyCode,
  };
  const text = typesText ? { text: key.text, unmodifiedText: key.text } : {};
  return [
    session.send(
      "Input.dispatchKeyEvent",
      { type: typesText ? "keyDown" : "rawKeyDown", ...shared, ...text },
      timeoutMs,
    ),
    session.send("Input.dispatchKeyEvent", { type: "keyUp", ...shared }, timeoutMs),
  ];
}

export async function pressChord(session: CdpSession, chord: string, timeoutMs: number): Promise<void> {
  const { modifiers, key } = parseChord(chord);
  const sent: Promise<unknown>[] = [];
  let held = 0;
  const modifierEvent = (type: "rawKeyDown" | "keyUp", name: string) => {
    const { code, keyCode } = keyNamed(name);
    sent.push(
      session.send(
        "Input.dispatchKeyEvent",
        { type, key: name, code, windowsVirtualKeyCode: keyCode, modifiers: held },
        timeoutMs,
      ),
    );
  };
  for (const name of modifiers) {
    held |= modifierBits[name]!;
    modifierEvent("rawKeyDown", name);
  }
  const shifted =
    held & modifierBits.Shift! && /^[a-z]$/.test(key.key) ? keyOfCharacter(key.key.toUpperCase())! : key;
  sent.push(...keyEvents(session, shifted, held, timeoutMs));
  for (const name of modifiers.toReversed()) {
    held &= ~modifierBits[name]!;
    modifierEvent("keyUp", name);
  }
  await Promise.all(sent);
}

/** Key by key, as a person types; what no key types is inserted. */
export async function typeKeys(session: CdpSession, text: string, timeoutMs: number): Promise<void> {
  const sent: Promise<unknown>[] = [];
  for (const character of text) {
    const key = keyOfCharacter(character);
    if (key) sent.push(...keyEvents(session, key, 0, timeoutMs));
    else sent.push(session.send("Input.insertText", { text: character }, timeoutMs));
  }
  await Promise.all(sent);
}
