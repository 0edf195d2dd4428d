import { useSyncExternalStore } from "react";

/** One value that components can watch. */
export class Store<T> {
  #value: T;
  #listeners = new Set<() => void>();
  constructor(initial: T) {
    this.#value = initial;
  }
  get = (): T => this.#value;
  set = (value: T): void => {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of this.#listeners) listener();
  };
  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
}

export const useStore = <T>(store: Store<T>): T => useSyncExternalStore(store.subscribe, store.get);
