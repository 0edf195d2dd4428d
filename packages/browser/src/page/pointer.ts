/** The mouse or the finger of a page: where it is, what it holds, and what it drags. */
import type { CdpSession, EventParams } from "../cdp/connection.ts";
import { modifierBits } from "./keys.ts";

export type MouseButton = "left" | "right" | "middle";

export interface Point {
  x: number;
  y: number;
}

export interface ButtonInput {
  button: MouseButton;
  modifiers: readonly string[];
}

type DragData = EventParams<"Input.dragIntercepted">["data"];
type MouseEventType = "mouseMoved" | "mousePressed" | "mouseReleased";

const buttonBits: Record<MouseButton, number> = { left: 1, right: 2, middle: 4 };
/** The browser hands the data of a drag over right after the page's dragstart. */
const dragDataMsMax = 1_000;

function bitsOf(modifiers: readonly string[]): number {
  return modifiers.reduce((bits, name) => bits | (modifierBits[name] ?? 0), 0);
}

export class Pointer {
  readonly #session: CdpSession;
  at: Point = { x: 0, y: 0 };
  /** The button that is down, between a press and its release. */
  held: MouseButton | null = null;
  isTouch = false;
  #drag: DragData | null = null;
  #hasEntered = false;
  #onDrag: () => void = () => {};

  constructor(session: CdpSession) {
    this.#session = session;
    session.on("Input.dragIntercepted", ({ data }) => {
      this.#drag = data;
      this.#hasEntered = false;
      this.#onDrag();
    });
  }

  #mouse(
    type: MouseEventType,
    options: ButtonInput & { clicks: number },
    timeoutMs: number,
  ): Promise<unknown> {
    const button = type === "mouseMoved" ? (this.held ?? "none") : options.button;
    const buttons = type === "mouseReleased" ? 0 : button === "none" ? 0 : buttonBits[button];
    const modifiers = bitsOf(options.modifiers);
    return this.#session.send(
      "Input.dispatchMouseEvent",
      { type, ...this.at, modifiers, clickCount: options.clicks, button, buttons },
      timeoutMs,
    );
  }

  #touch(type: "touchStart" | "touchMove" | "touchEnd", modifiers: readonly string[], timeoutMs: number) {
    const touchPoints = type === "touchEnd" ? [] : [this.at];
    return this.#session.send(
      "Input.dispatchTouchEvent",
      { type, touchPoints, modifiers: bitsOf(modifiers) },
      timeoutMs,
    );
  }

  /** All events are sent in one go: the browser keeps their order, and only their end is waited for. */
  async click(at: Point, options: ButtonInput & { clicks: number }, timeoutMs: number): Promise<void> {
    const sent: Promise<unknown>[] = [];
    if (this.held) sent.push(this.release(options, timeoutMs));
    this.at = at;
    if (!this.isTouch) sent.push(this.#mouse("mouseMoved", { ...options, clicks: 0 }, timeoutMs));
    for (let clicks = 1; clicks <= options.clicks; clicks++) {
      if (this.isTouch) {
        sent.push(this.#touch("touchStart", options.modifiers, timeoutMs));
        sent.push(this.#touch("touchEnd", options.modifiers, timeoutMs));
      } else {
        sent.push(this.#mouse("mousePressed", { ...options, clicks }, timeoutMs));
        sent.push(this.#mouse("mouseReleased", { ...options, clicks }, timeoutMs));
      }
    }
    await Promise.all(sent);
  }

  async move(at: Point, modifiers: readonly string[], timeoutMs: number): Promise<void> {
    this.at = at;
    if (this.#drag) await this.#dragOver(modifiers, timeoutMs);
    else if (this.isTouch) {
      // A finger that does not touch is nowhere.
      if (this.held) await this.#touch("touchMove", modifiers, timeoutMs);
    } else await this.#mouse("mouseMoved", { button: "left", modifiers, clicks: 0 }, timeoutMs);
  }

  /** A tiny movement on the spot. */
  async stir(timeoutMs: number): Promise<void> {
    const { x, y } = this.at;
    await this.move({ x: x + 1, y }, [], timeoutMs);
    await this.move({ x, y }, [], timeoutMs);
  }

  async press(options: ButtonInput, timeoutMs: number): Promise<void> {
    this.#drag = null;
    // Without this the browser itself would drag, on a desktop that is not there.
    this.#session.tell("Input.setInterceptDrags", { enabled: true });
    const sent = this.isTouch
      ? this.#touch("touchStart", options.modifiers, timeoutMs)
      : this.#mouse("mousePressed", { ...options, clicks: 1 }, timeoutMs);
    this.held = options.button;
    await sent;
  }

  async release({ modifiers }: Pick<ButtonInput, "modifiers">, timeoutMs: number): Promise<void> {
    const button = this.held ?? "left";
    this.held = null;
    try {
      if (this.#drag) await this.#drop(modifiers, timeoutMs);
      else if (this.isTouch) await this.#touch("touchEnd", modifiers, timeoutMs);
      else await this.#mouse("mouseReleased", { button, modifiers, clicks: 1 }, timeoutMs);
    } finally {
      this.#session.tell("Input.setInterceptDrags", { enabled: false });
    }
  }

  async wheel(at: Point, { x: deltaX, y: deltaY }: Point, timeoutMs: number): Promise<void> {
    this.at = at;
    await this.#session.send(
      "Input.dispatchMouseEvent",
      { type: "mouseWheel", ...at, deltaX, deltaY },
      timeoutMs,
    );
  }

  /** Once the page has let a drag begin: waits for what it carries. */
  async dragBegan(): Promise<void> {
    if (this.#drag) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, dragDataMsMax);
      this.#onDrag = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #dragEvent(type: "dragEnter" | "dragOver" | "drop", modifiers: readonly string[], timeoutMs: number) {
    return this.#session.send(
      "Input.dispatchDragEvent",
      { type, ...this.at, data: this.#drag!, modifiers: bitsOf(modifiers) },
      timeoutMs,
    );
  }

  async #dragOver(modifiers: readonly string[], timeoutMs: number): Promise<void> {
    if (!this.#hasEntered) await this.#dragEvent("dragEnter", modifiers, timeoutMs);
    this.#hasEntered = true;
    await this.#dragEvent("dragOver", modifiers, timeoutMs);
  }

  async #drop(modifiers: readonly string[], timeoutMs: number): Promise<void> {
    try {
      // What has come under the pointer since the last movement is only entered at first, which few pages accept.
      await this.#dragOver(modifiers, timeoutMs);
      await this.#dragEvent("drop", modifiers, timeoutMs);
    } finally {
      this.#drag = null;
    }
  }

  /** Files from outside, let fall at a place. */
  async dropFiles(at: Point, files: string[], timeoutMs: number): Promise<void> {
    const copy = 1;
    this.at = at;
    this.#drag = { items: [], files, dragOperationsMask: copy };
    this.#hasEntered = false;
    await this.#drop([], timeoutMs);
  }
}
