/** Real key events. They are sent in one go: the browser keeps their order, and only the last one is waited for. */
import type { CdpSession } from "../cdp/connection.ts";
import { type Chord, type Key, keyNamed, keyOfCharacter, modifierBits } from "./keys.ts";

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
  // On a Mac the editing commands are the system's, which sees none of these keys.
  const isSelectAll = key.key === "a" && (modifiers & modifierBits.Meta!) !== 0;
  const commands = isSelectAll ? { commands: ["selectAll"] } : {};
  return [
    session.send(
      "Input.dispatchKeyEvent",
      { type: typesText ? "keyDown" : "rawKeyDown", ...shared, ...text, ...commands },
      timeoutMs,
    ),
    session.send("Input.dispatchKeyEvent", { type: "keyUp", ...shared }, timeoutMs),
  ];
}

export async function pressChord(
  session: CdpSession,
  { modifiers, key }: Chord,
  timeoutMs: number,
): Promise<void> {
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
