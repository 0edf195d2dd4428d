import type { HttpMethod, RouteDefinition } from "../kernel/route.ts";

interface Pattern {
  route: RouteDefinition;
  expression: RegExp;
  names: string[];
}

export interface RouteMatch {
  route: RouteDefinition;
  path: Record<string, string>;
}

const NO_PARAMETERS: Record<string, string> = {};

/** Finds the route of a request: exact paths by one look-up, `{name}` patterns by trying the few there are. */
export class Router {
  #exact = new Map<string, RouteDefinition>();
  #patterns: Pattern[] = [];

  constructor(routes: readonly RouteDefinition[]) {
    for (const route of routes) {
      const names = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!);
      if (names.length === 0) {
        this.#exact.set(`${route.method} ${route.path}`, route);
      } else {
        this.#patterns.push({
          route,
          names,
          expression: new RegExp(`^${route.path.replace(/\{\w+\}/g, "([^/]+)")}$`),
        });
      }
    }
  }

  find(method: string, path: string): RouteMatch | null {
    const exact = this.#exact.get(`${method} ${path}`);
    if (exact) return { route: exact, path: NO_PARAMETERS };
    for (const { route, names, expression } of this.#patterns) {
      if (route.method !== method) continue;
      const match = expression.exec(path);
      if (match)
        return { route, path: Object.fromEntries(names.map((name, i) => [name, decode(match[i + 1]!)])) };
    }
    return null;
  }

  /** Methods that the path has routes for: none means that it does not exist. */
  methodsOf(path: string): HttpMethod[] {
    const methods = [...this.#exact.values()]
      .filter((route) => route.path === path)
      .map((route) => route.method);
    for (const { route, expression } of this.#patterns) if (expression.test(path)) methods.push(route.method);
    return methods;
  }
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
