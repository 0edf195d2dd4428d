import { type Client, ConnectionError } from "@model-gateway/client";
import manifest from "../../../package.json" with { type: "json" };
import { callableModels } from "../../commands/backends.ts";
import type { Connection } from "../../connection.ts";
import type { Finding } from "./checks.ts";

const TIMEOUT_MS = 5_000;
/** Of a job that nobody has: the answer tells an accepted key (404) from one that is not (401). */
const NO_JOB = "/v1/video/generations/00000000-0000-4000-8000-000000000000";
const LISTED_MAX = 10;

const found = (check: string, state: Finding["state"], message: string, remedy?: string): Finding => ({
  check,
  state,
  message,
  ...(remedy && { remedy }),
});

const reasonOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

async function checkReached({ url }: Connection): Promise<Finding> {
  try {
    const response = await fetch(`${url}/v1/health`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    const body = (await response.json()) as { version?: string; build_hash?: string };
    if (body.build_hash === undefined) throw new Error("something else answers there");
    if (body.version === manifest.version)
      return found("service", "ok", `${url} runs version ${body.version}`);
    return found(
      "service",
      "warning",
      `${url} runs version ${body.version}, this command line is ${manifest.version}`,
      "use the command line of the same version",
    );
  } catch (error) {
    return found(
      "service",
      "failed",
      `${url} cannot be used: ${reasonOf(error)}`,
      "check the address (--url), and on that machine run: model-gateway doctor",
    );
  }
}

/** Whether strangers get what they need to sign in, and whether anybody can. */
async function checkEntrance({ url }: Connection): Promise<Finding> {
  const response = await fetch(`${url}/api/setup`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  const body = (await response.json()) as { first_run?: boolean; error?: { message: string } };
  if (!response.ok) return found("host name", "failed", body.error?.message ?? `HTTP ${response.status}`);
  if (body.first_run)
    return found(
      "accounts",
      "warning",
      "nobody has an account yet",
      "open the console, or run: model-gateway login --register",
    );
  return found("accounts", "ok", "people can sign in");
}

async function checkSession(connection: Connection): Promise<Finding> {
  if (!connection.isSignedIn)
    return found(
      "session",
      "warning",
      `nobody is signed in at ${connection.url}`,
      "run: model-gateway login",
    );
  try {
    const { email } = await (await connection.signedIn()).call("auth.me");
    return found("session", "ok", `signed in as ${email}`);
  } catch (error) {
    if (error instanceof ConnectionError) throw error;
    return found(
      "session",
      "failed",
      `the session has ended: ${reasonOf(error)}`,
      "run: model-gateway login",
    );
  }
}

async function checkKey({ url, key }: Connection): Promise<Finding[]> {
  if (key === null) return [];
  const { status } = await fetch(url + NO_JOB, {
    headers: { authorization: `Bearer ${key}` },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (status === 401)
    return [
      found("key", "failed", "the API key is not accepted", "make another: model-gateway keys create <name>"),
    ];
  return [found("key", "ok", "the API key is accepted")];
}

async function checkModels(connection: Connection): Promise<Finding> {
  const models = await callableModels(connection);
  if (models.length === 0)
    return found(
      "models",
      "failed",
      "no model can be called",
      "register a backend: model-gateway backends detect --add, or backends add <url>",
    );
  return found("models", "ok", `${models.length} can be called`);
}

/** What an administrator may see of the backends. */
async function checkBackends(client: Client): Promise<Finding[]> {
  const { backends } = await client.call("backends.list");
  const unwell = backends.filter(({ state, enabled }) => enabled && state !== "Healthy");
  if (unwell.length === 0) return [found("backends", "ok", `${backends.length} registered, none in trouble`)];
  return unwell
    .slice(0, LISTED_MAX)
    .map(({ name, state, last_error }) =>
      found("backends", "warning", `${name} is ${state}${last_error ? `: ${last_error}` : ""}`),
    );
}

/** The service at an address, from outside: as a user of the command line sees it. */
export async function examineService(connection: Connection): Promise<Finding[]> {
  const reached = await checkReached(connection);
  if (reached.state === "failed") return [reached];
  const session = await checkSession(connection);
  const isAdmin = session.state === "ok" && connection.client.session?.user.is_admin;
  return [
    reached,
    await checkEntrance(connection),
    session,
    ...(await checkKey(connection)),
    await checkModels(connection),
    ...(isAdmin ? await checkBackends(connection.client) : []),
  ];
}
