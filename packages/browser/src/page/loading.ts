/** How far the main document of a page has come, and which ones it has taken the place of. */

export type LoadStage = "commit" | "domcontentloaded" | "load";
const stageOrder: LoadStage[] = ["commit", "domcontentloaded", "load"];
const leftLoadersMax = 20;

const lifecycleStages: Partial<Record<string, LoadStage>> = {
  init: "commit",
  commit: "commit",
  DOMContentLoaded: "domcontentloaded",
  load: "load",
};

export class Loading {
  #loaderId = "";
  #stage: LoadStage = "load";
  /** Loadings whose document has given way to the next one, newest last. */
  #leftLoaderIds: string[] = [];

  /** Told of each lifecycle event. Returns the stage that was reached, or null when the event tells of none. */
  follow(loaderId: string, name: string): LoadStage | null {
    const stage = lifecycleStages[name];
    if (!stage) return null;
    if (stage === "commit") {
      // A new document says "init", one that was there at the start says "commit".
      if (this.#loaderId !== loaderId) this.#begin(loaderId);
      return stage;
    }
    if (this.#loaderId !== loaderId) return "commit";
    this.#stage = stage;
    return stage;
  }

  #begin(loaderId: string): void {
    this.#leftLoaderIds.push(this.#loaderId);
    if (this.#leftLoaderIds.length > leftLoadersMax) this.#leftLoaderIds.shift();
    this.#loaderId = loaderId;
    this.#stage = "commit";
  }

  hasReached(stage: LoadStage, loaderId?: string): boolean {
    const isCurrent = loaderId === undefined || this.#loaderId === loaderId;
    if (!isCurrent && !this.#leftLoaderIds.includes(loaderId)) return false;
    return stageOrder.indexOf(this.#stage) >= stageOrder.indexOf(stage);
  }
}
