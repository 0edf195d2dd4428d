/** What the tool asks of the agent in a document, and what it is answered; both sides share these signatures. */
import type { ClickRequest, Readiness } from "./act.ts";
import type { Changes } from "./changes.ts";
import type { FieldKind, InsertRequest, TypeRequest } from "./fields.ts";
import type { FormOutcome } from "./forms.ts";
import type { Point } from "./hit.ts";
import type { Rendered } from "./render.ts";
import type { Stored, StoreRequest } from "./store.ts";
import type { Verdict } from "./watch.ts";

export interface SnapshotRequest {
  target: string | null;
  offset: number;
  charsMax: number;
  depthMax: number;
  boxes: boolean;
  /** It comes along with another result. */
  terse: boolean;
  indentChars: number;
  /** Only branches that hold this text. */
  find: string | null;
}

export interface SnapshotAnswer extends Rendered {
  found: boolean;
  /** Last number given out as a ref. */
  lastRef: number;
  /** Elements met that may hold a closed shadow root and have not been asked about. */
  hosts: number;
  /** Asking about all elements at once is cheaper here than one by one. */
  isSmall: boolean;
  /** Elements that were left out and have not been asked about whether scripts listen to them. */
  silent: number;
  isPdf: boolean;
  url: string;
  title: string;
}

export interface Found {
  found: boolean;
  matches: number;
  problem?: string;
  isVisible?: boolean;
  readiness?: Readiness;
  field?: FieldKind;
  lastRef?: number;
}

export interface DomAnswer {
  found: boolean;
  matches: number;
  html: string;
  total: number;
}

export interface PageState {
  url: string;
  title: string;
}

export interface Standing {
  /** Nothing has changed but what was acted on. */
  isBare: boolean;
  /** The page has set a timer since it was acted on, or begun to move. */
  isPending: boolean;
}

/** What an action led to, as the document sees it. */
export interface After extends PageState, Verdict, FormOutcome, Standing {
  changes: Changes;
  /** Of the field that was asked for. */
  value: string | null;
  lastRef: number;
}

export interface Agent {
  /** New refs count on from here: what was given out elsewhere under the same prefix is not given out again. */
  countFrom(lastRef: number): void;
  snapshot(request: SnapshotRequest): SnapshotAnswer;
  find(target: string): Found;
  click(target: string, request: ClickRequest): Found;
  /** Before a click at a position on the page, whatever element is there. */
  expectAnywhere(clicks: number, timeoutMs: number): void;
  verdict(): Verdict;
  isHovered(target: string): boolean;
  hasDragBegun(): boolean;
  /** The drop position: the element's middle, or a place in it, even if something covers it. */
  placeOf(target: string, position: Point | null): Point | null;
  size(): { width: number; height: number };
  focusOn(target: string): void;
  frame(): Promise<void>;
  type(target: string, request: TypeRequest): Found;
  /** The text of a plain field that `type` found ready; what is left of it has to be sent as input. */
  insert(target: string, text: string, request: InsertRequest): string;
  /** Into what has the focus; false when the page does not take it. */
  paste(text: string): boolean;
  /** What has the focus: a field, a document inside of this one, something else, or nothing. */
  focus(): { kind: "field" | "frame" | "other" | "none"; field: FieldKind };
  /** Null: the element that has the focus. */
  heldBy(target: string | null): string | null;
  boxesValue(target: string | null, count: number): string;
  leaveBox(target: string | null, index: number): void;
  caretToEnd(target: string): void;
  /** The file field that it is or that belongs to it. */
  fileField(target: string): Element | null;
  /** True when it is visible, absent and so on, as wanted by wait-for-selector. */
  isInState(
    target: string,
    state: "visible" | "hidden" | "attached" | "detached",
  ): Found & { reached: boolean };
  settled(target: string, timeoutMs: number): Promise<boolean>;
  changed(timeoutMs: number): Promise<void>;
  /** Waits until nothing changes or moves; true when nothing did at all. */
  quiet(timeoutMs: number): Promise<boolean>;
  state(): PageState;
  /** Before an action: what the page is compared with afterwards. */
  prepare(): { lastRef: number };
  /**
   * After an action, once the frame that follows it is drawn. What missed its target is told at once. `field` asks
   * for the value of a field too.
   */
  after(changesCharsMax: number, field: { target: string | null } | null): Promise<After>;
  /** What has changed since the last report; `again`: since the one before that. */
  changes(charsMax: number, again: boolean): Changes & Standing & PageState & { lastRef: number };
  /** Waits until more changes than what was acted on, or nothing more is to come of the page itself. */
  reaction(timeoutMs: number): Promise<void>;
  html(target: string | null, offset: number, charsMax: number): DomAnswer;
  rect(target: string): { x: number; y: number; width: number; height: number } | null;
  storage(request: StoreRequest | null): Stored;
  /** Draws texts that hold one of the values as dots; without values, as before. */
  mask(values: string[]): void;
  isFrameHit(frame: Element, x: number, y: number): string | null;
  framePlace(frame: Element): { x: number; y: number; scaleX: number; scaleY: number };
  element(target: string): Element | null;
  /** Looks through the whole document for elements that may hold a closed shadow root; says how many. */
  scanHosts(): number;
  /** Hands out those elements, and regards them as asked about. */
  takeHosts(): Element[];
  /** Returns how many roots were new. */
  adoptClosedRoots(...roots: ShadowRoot[]): number;
  /** The elements that were left out of the snapshot and may be there to be clicked. */
  silentElements(): Element[];
  /** Told to which elements scripts listen; returns how many of them had been left out. */
  adoptListening(...elements: Element[]): number;
}
