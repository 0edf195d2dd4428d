import { Store } from "./store.ts";

export type Theme = "system" | "light" | "dark";
const KEY = "model-gateway.theme";

const stored = localStorage.getItem(KEY);
export const theme = new Store<Theme>(stored === "light" || stored === "dark" ? stored : "system");
/** Counts changes of what is actually shown, for what is painted on a canvas. */
export const appearance = new Store(0);

export const isDark = (value: Theme): boolean =>
  value === "dark" || (value === "system" && matchMedia("(prefers-color-scheme: dark)").matches);

function apply(): void {
  const value = theme.get();
  if (value === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = value;
  appearance.set(appearance.get() + 1);
}

export function setTheme(value: Theme): void {
  if (value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, value);
  theme.set(value);
  apply();
}

/** What a custom property comes out as under the present theme. */
export function resolvedColor(property: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${property})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
apply();
