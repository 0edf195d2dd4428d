interface Routable {
  readonly method: string;
  /** May have `{name}` segments. */
  readonly path: string;
}

interface Pattern<Route> {
  route: Route;
  expression: RegExp;
  names: string[];
}

export interface RouteMatch<Route> {
  route: Route;
  path: Record<string, string>;
}

const NO_PARAMETERS: Record<string, string> = {};

/** Finds the route of a request: exact paths with one lookup, `{name}` patterns by trying them in order. */
export class Router<Route extends Routable> {
  #exact = new Map<string, Route>();
  #patterns: Pattern<Route>[] = [];

  constructor(routes: readonly Route[]) {
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

  find(method: string, path: string): RouteMatch<Route> | null {
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

  /** The methods that have a route for the path; none means that the path does not exist. */
  methodsOf(path: string): string[] {
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
