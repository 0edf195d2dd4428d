/** Unsolicited events (a dialog, a popup, a download, a crash), reported with the next result. */

export type NoticeKind =
  | "dialog"
  | "popup"
  | "download"
  | "crash"
  | "closed"
  | "blocked"
  | "hang"
  | "form"
  | "input"
  | "permission"
  | "print"
  | "file_chooser"
  | "momentary";

export interface Notice {
  kind: NoticeKind;
  text: string;
  /** How often it happened; absent for once. */
  count?: number;
}

const noticesMax = 50;

export class Notices {
  #list: Notice[] = [];
  #left = 0;

  /** What happens again is counted where it was first told. */
  add(kind: NoticeKind, text: string): void {
    const same = this.#list.find((notice) => notice.kind === kind && notice.text === text);
    if (same) {
      same.count = (same.count ?? 1) + 1;
      return;
    }
    this.#list.push({ kind, text });
    if (this.#list.length <= noticesMax) return;
    this.#list.shift();
    this.#left++;
  }

  /** Hands over what has not been reported yet. */
  take(): Notice[] {
    const taken = this.#list;
    if (this.#left > 0)
      taken.unshift({ kind: taken[0]!.kind, text: `${this.#left} earlier events are not listed.` });
    this.#list = [];
    this.#left = 0;
    return taken;
  }
}
