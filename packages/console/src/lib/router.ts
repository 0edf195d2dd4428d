import { type AnchorHTMLAttributes, createElement, type MouseEvent, useCallback, useMemo } from "react";
import { BASE, pathHere } from "./base.ts";
import { Store, useStore } from "./store.ts";

const here = () => pathHere() + location.search;
const current = new Store(here());
addEventListener("popstate", () => current.set(here()));

/** Marks an entry of the history that was made by opening a sheet or a form over the page. */
const LAYER = { layer: true };
const isLayer = () => (history.state as Partial<typeof LAYER> | null)?.layer === true;

export function navigate(
  to: string,
  { replace = false, state = null }: { replace?: boolean; state?: unknown } = {},
): void {
  if (to === current.get()) return;
  history[replace ? "replaceState" : "pushState"](state, "", BASE + to);
  const samePage = new URL(to, location.href).pathname === new URL(current.get(), location.href).pathname;
  current.set(here());
  if (!samePage) scrollTo(0, 0);
}

export function usePath(): string {
  return useStore(current).split("?")[0]!;
}

/** Names in the query that open something over the page. */
const LAYERS = ["open", "new", "route", "new-route"];

/** The query of the address as state: what can be chosen on a page can be pasted as a link. */
export function useSearch(): [URLSearchParams, (change: Record<string, string | null>) => void] {
  const at = useStore(current);
  const search = useMemo(() => new URLSearchParams(at.split("?")[1] ?? ""), [at]);
  const change = useCallback((fields: Record<string, string | null>) => {
    const next = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(fields)) {
      if (value === null || value === "") next.delete(name);
      else next.set(name, value);
    }
    const text = next.toString();
    const to = `${pathHere()}${text ? `?${text}` : ""}`;
    const opens = LAYERS.some((name) => fields[name]);
    const closes = !opens && LAYERS.some((name) => name in fields);
    // What lies over the page is a step of the history, so that Back closes it; closing it takes the step back.
    if (closes && isLayer()) {
      // Going back takes a moment; a second press of Close must not leave the page.
      history.replaceState(null, "");
      history.back();
    } else
      navigate(to, opens ? { replace: isLayer(), state: LAYER } : { replace: true, state: history.state });
  }, []);
  return [search, change];
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    // Not something that the console made; it names nothing either way.
    return segment;
  }
}

/** Values of `:name` segments when `path` has the form of `pattern`. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.replace(/\/$/, "").split("/");
  if (path !== "/" && wanted.length !== given.length) return null;
  if (path === "/") return pattern === "/" ? {} : null;
  const values: Record<string, string> = {};
  for (const [i, segment] of wanted.entries()) {
    if (segment.startsWith(":")) values[segment.slice(1)] = decoded(given[i]!);
    else if (segment !== given[i]) return null;
  }
  return values;
}

/** A link inside the console; new tabs and modified clicks are left to the browser. */
export function Link({ href = "", onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement>) {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey)
      return;
    event.preventDefault();
    navigate(href);
  };
  return createElement("a", { ...rest, href: BASE + href, onClick: follow });
}
