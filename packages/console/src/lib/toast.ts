import { Store } from "./store.ts";

export interface Toast {
  id: number;
  text: string;
  tone: "good" | "bad";
}

const SHOWN_MS = 5_000;
const TOASTS_MAX = 4;
let nextId = 1;
export const toasts = new Store<readonly Toast[]>([]);

export function dismiss(id: number): void {
  toasts.set(toasts.get().filter((toast) => toast.id !== id));
}

export function toast(text: string, tone: Toast["tone"] = "good"): void {
  const id = nextId++;
  toasts.set([...toasts.get(), { id, text, tone }].slice(-TOASTS_MAX));
  setTimeout(() => dismiss(id), SHOWN_MS);
}

export const toastError = (error: unknown) =>
  toast(error instanceof Error ? error.message : String(error), "bad");
