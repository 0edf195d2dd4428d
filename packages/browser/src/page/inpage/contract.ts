/** What the agent in a document is asked, and what it answers. */
import type { Readiness } from "./act.ts";
import type { Changes } from "./changes.ts";
import type { FieldKind } from "./fields.ts";
import type { FormOutcome } from "./forms.ts";
import type { Rendered } from "./render.ts";
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

interface PageState {
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
