import { type Client, ConnectionError, RPC_CODE, RpcError } from "@model-gateway/client";
import { type Command, text, UsageError, wholeNumber } from "../command.ts";
import { type Output, plain } from "../output.ts";
import { NARROWING, narrowed } from "./narrowing.ts";

const FOLLOW_EVERY_MS = 2_000;
const LIMIT_DEFAULT = 20;
const OUTCOMES: readonly string[] = ["ok", "refused", "failed", "left"];
/** Requests of which a follower remembers that they were shown: several pages of the longest. */
const SHOWN_MAX = 2_000;

/** One request, from whichever method the service has. */
interface Line {
  id: string;
  at: string;
  outcome: string;
  status: number | null;
  who: string;
  model: string;
  backend: string;
  tokensIn: number;
  tokensOut: number;
  durationMs: number | null;
  /** Why it was not answered. */
  message: string;
}

interface RequestRecord {
  id: string;
  at: string;
  outcome: string;
  status: number;
  code: string | null;
  message: string | null;
  user_email: string | null;
  model: string | null;
  backend: string | null;
  prompt_tokens: number;
  completion_tokens: number;
  duration_ms: number;
}

const fromRecord = (record: RequestRecord): Line => ({
  id: record.id,
  at: record.at,
  outcome: record.outcome,
  status: record.status,
  who: record.user_email ?? "",
  model: record.model ?? "",
  backend: record.backend ?? "",
  tokensIn: record.prompt_tokens,
  tokensOut: record.completion_tokens,
  durationMs: record.duration_ms,
  message: [record.code, record.message].filter(Boolean).join(": "),
});

interface Which {
  limit: number;
  /** What the service's methods take. */
  filter: Awaited<ReturnType<typeof narrowed>> & { outcome?: string };
}

/** Newest first. A service that keeps no records of requests still has the usage rows of those that were answered. */
async function latest(client: Client, { limit, filter }: Which): Promise<Line[]> {
  try {
    const { records } = (await client.callUnknown("requests.list", { limit, ...filter })) as {
      records: RequestRecord[];
    };
    return records.map(fromRecord);
  } catch (error) {
    if (!(error instanceof RpcError && error.code === RPC_CODE.methodNotFound)) throw error;
  }
  const { records } = await client.call("usage.list", { limit });
  return records
    .filter((row) => filter.model === undefined || row.model === filter.model)
    .map((row) => ({
      id: row.id,
      at: row.created_at,
      outcome: "ok",
      status: null,
      who: "",
      model: row.model,
      backend: row.backend,
      tokensIn: row.prompt_tokens,
      tokensOut: row.completion_tokens,
      durationMs: null,
      message: "",
    }));
}

/** Shows requests as they end, until the connection does. Returns at once where the service cannot be watched. */
async function watch(
  client: Client,
  { filter }: Which,
  { show, missed }: { show(lines: readonly Line[]): void; missed(): Promise<void> },
): Promise<void> {
  const renew = (more: object = {}) =>
    client.callUnknown("requests.watch", { ...filter, ...more }) as Promise<{
      stream_id: string;
      renew_after_seconds: number;
    }>;
  const started = await renew().catch((error) => {
    if (error instanceof RpcError && error.code === RPC_CODE.methodNotFound) return null;
    throw error;
  });
  if (!started) return;
  const { stream_id, renew_after_seconds } = started;
  const renewing = setInterval(() => void renew({ stream_id }).catch(() => {}), renew_after_seconds * 1000);
  try {
    // What ended before the watch began.
    await missed();
    for await (const { method, params } of client.events(stream_id))
      if (method === "requests.ended") show(params.records.map(fromRecord));
  } catch (error) {
    // The service is away: it is asked again.
    if (!(error instanceof ConnectionError)) throw error;
  } finally {
    clearInterval(renewing);
  }
}

const clock = (at: string) => at.slice(0, 19).replace("T", " ");

/** Lines that come one by one cannot be fitted to each other, so their columns are fixed. */
function write(output: Output, line: Line, everyone: boolean): void {
  if (output.json) {
    output.write(`${JSON.stringify(line)}\n`);
    return;
  }
  const parts = [
    clock(line.at),
    output.state(line.outcome, line.outcome.padEnd(7)),
    (line.status ?? "").toString().padStart(3),
    ...(everyone ? [plain(line.who).padEnd(24)] : []),
    plain(line.model).padEnd(24),
    plain(line.backend).padEnd(14),
    `${line.tokensIn} in`.padStart(9),
    `${line.tokensOut} out`.padStart(9),
    line.durationMs === null ? "" : `${Math.round(line.durationMs)} ms`.padStart(9),
    line.id,
    plain(line.message),
  ];
  output.write(`${parts.join("  ").trimEnd()}\n`);
}

export const logs: Command = {
  name: "logs",
  summary: "Your latest requests, oldest first; -f goes on as they come",
  examples: [
    "model-gateway logs",
    "model-gateway logs -f",
    "model-gateway logs -f --everyone --outcome failed",
    "model-gateway logs --user ada@example.com",
    "model-gateway logs --model qwen3:8b --json",
  ],
  options: {
    follow: { type: "boolean", short: "f", help: "wait for more" },
    limit: { type: "string", short: "n", help: "how many to begin with, 20 unless given" },
    outcome: { type: "string", help: `one of ${OUTCOMES.join(", ")}` },
    everyone: { type: "boolean", help: "not only your own: for administrators" },
    ...NARROWING,
  },
  async run({ options, output, connection }) {
    const client = await connection.signedIn();
    const outcome = text(options, "outcome");
    if (outcome && !OUTCOMES.includes(outcome))
      throw new UsageError(`--outcome must be one of ${OUTCOMES.join(", ")}`);
    const everyone = Boolean(options.everyone ?? options.user);
    const which: Which = {
      limit: wholeNumber(options, "limit") ?? LIMIT_DEFAULT,
      filter: {
        ...(await narrowed(client, options)),
        ...(everyone && { everyone }),
        ...(outcome && { outcome }),
      },
    };
    const shown = new Set<string>();
    /** Oldest first; each is shown once. */
    const show = (lines: readonly Line[]) => {
      for (const line of lines) {
        if (shown.has(line.id)) continue;
        shown.add(line.id);
        write(output, line, everyone);
      }
      for (const id of shown) {
        if (shown.size <= SHOWN_MAX) break;
        shown.delete(id);
      }
    };
    show((await latest(client, which)).reverse());
    if (shown.size === 0 && !options.follow) output.note("No requests yet");
    // Ends with Ctrl-C. Between two watches, and where the service has none, the list is asked.
    while (options.follow) {
      await watch(client, which, { show, missed: async () => show((await latest(client, which)).reverse()) });
      await Bun.sleep(FOLLOW_EVERY_MS);
      show((await latest(client, which)).reverse());
    }
  },
};
