import { type AnchorHTMLAttributes, createElement, type MouseEvent, useCallback, useMemo } from "react";
import { Store, useStore } from "./store.ts";

const here = () => location.pathname + location.search;
const current = new Store(here());
addEventListener("popstate", () => current.set(here()));

export function navigate(to: string, { replace = false }: { replace?: boolean } = {}): void {
  if (to === current.get()) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  const samePage = new URL(to, location.href).pathname === new URL(current.get(), location.href).pathname;
  current.set(here());
  if (!samePage) scrollTo(0, 0);
}

export function usePath(): string {
  return useStore(current).split("?")[0]!;
}

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
    navigate(`${location.pathname}${text ? `?${text}` : ""}`, { replace: true });
  }, []);
  return [search, change];
}

/** Values of `:name` segments when `path` has the form of `pattern`. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.replace(/\/$/, "").split("/");
  if (path !== "/" && wanted.length !== given.length) return null;
  if (path === "/") return pattern === "/" ? {} : null;
  const values: Record<string, string> = {};
  for (const [i, segment] of wanted.entries()) {
    if (segment.startsWith(":")) values[segment.slice(1)] = decodeURIComponent(given[i]!);
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
  return createElement("a", { ...rest, href, onClick: follow });
}
