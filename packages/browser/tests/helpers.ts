/** A running tool on a real browser behind its HTTP door, and small sites to point it at. */
import { startDebugServer } from "../src/http/server.ts";
import { Session, type SessionOptions } from "../src/session.ts";
import { chromium, type TestEngine } from "./engines.ts";

export { until } from "@model-gateway/testing/until.ts";

export interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: answers are asserted field by field.
  body: any;
}

export interface Tool {
  url: string;
  session: Session;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  post(path: string, body?: object): Promise<Answer>;
  delete(path: string): Promise<Answer>;
  /** The page as YAML. */
  snapshot(query?: string): Promise<string>;
  /** The ref of the first snapshot line that contains a text. */
  ref(text: string): Promise<string>;
  evaluate(expression: string): Promise<unknown>;
  stop(): Promise<void>;
}

export function startTool(
  { engine = chromium, ...options }: Partial<SessionOptions> & { engine?: TestEngine } = {},
  token: string | null = null,
): Tool {
  const session = new Session({ env: engine.env, backend: engine.name, ...options });
  const server = startDebugServer({ session, port: 0, token });
  async function ask(path: string, init: RequestInit): Promise<Answer> {
    const response = await fetch(server.url + path, init);
    return { status: response.status, body: await response.json() };
  }
  const tool: Tool = {
    url: server.url,
    session,
    get: (path, headers) => ask(path, { headers }),
    post: (path, body = {}) =>
      ask(path, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      }),
    delete: (path) => ask(path, { method: "DELETE" }),
    snapshot: async (query = "") => {
      const { status, body } = await tool.get(`/a11y${query}`);
      if (status !== 200) throw new Error(JSON.stringify(body));
      return body.snapshot;
    },
    ref: async (text) => {
      const yaml = await tool.snapshot();
      const line = yaml.split("\n").find((each) => each.includes(text) && each.includes("[ref="));
      const ref = /\[ref=(\w+)\]/.exec(line ?? "")?.[1];
      if (!ref) throw new Error(`no ref for ${text} in\n${yaml}`);
      return ref;
    },
    evaluate: async (expression) => {
      const { status, body } = await tool.post("/evaluate", { expression });
      if (status !== 200) throw new Error(JSON.stringify(body));
      return body.value;
    },
    stop: async () => {
      await server.stop();
      await session.close();
    },
  };
  return tool;
}

export { chromiumPath } from "./engines.ts";
export const testEnv = chromium.env;

type Page = string | ((request: Request) => Response | Promise<Response>);

export interface Site {
  url: string;
  port: number;
  stop(): Promise<void>;
}

/** Serves HTML by path on every loopback address, so that 127.0.0.1 and localhost are two sites. */
export function startSite(pages: Record<string, Page>): Site {
  const server = Bun.serve({
    port: 0,
    hostname: "0.0.0.0",
    idleTimeout: 0,
    fetch: (request) => {
      const { pathname } = new URL(request.url);
      if (pathname === "/favicon.ico") return new Response(null, { status: 204 });
      const page = pages[pathname];
      if (page === undefined) return new Response("not here", { status: 404 });
      if (typeof page !== "string") return page(request);
      return new Response(`<!doctype html>${page}`, {
        headers: { "content-type": "text/html; charset=utf-8" },
      });
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, port: server.port!, stop: () => server.stop(true) };
}
