/** Things that happened by themselves (a dialog, a popup, a download, a crash), reported with the next result. */

export type NoticeKind = "dialog" | "popup" | "download" | "crash" | "closed" | "blocked" | "hang" | "form";

export interface Notice {
  kind: NoticeKind;
  text: string;
}

const noticesMax = 50;

export class Notices {
  #list: Notice[] = [];

  add(kind: NoticeKind, text: string): void {
    this.#list.push({ kind, text });
    if (this.#list.length > noticesMax) this.#list.shift();
  }

  /** Hands over what has not been reported yet. */
  take(): Notice[] {
    const taken = this.#list;
    this.#list = [];
    return taken;
  }
}
