import { z } from "zod";
import type { Backend, BackendConfig, LocalServer } from "../../backends/contract.ts";
import { oneAtATime } from "../../kernel/bounded.ts";
import { fail } from "../../kernel/errors.ts";
import type { Routing } from "../routing/index.ts";

const PROBE_TIMEOUT_MS = 1_500;
const MODELS_SHOWN_MAX = 50;
const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

export const FoundServer = z.object({
  id: z.string().describe("For backends.adopt"),
  label: z.string(),
  url: z.string(),
  found: z.boolean(),
  models: z.array(z.string()).describe("The first 50"),
  models_total: z.int(),
  detail: z.string().nullable().describe("Why it counts as not found"),
});
export type FoundServer = z.output<typeof FoundServer>;

const urlOf = ({ port }: LocalServer) => `http://127.0.0.1:${port}`;

interface FindOptions {
  /** Only these addresses are tried; callers cannot add any. */
  servers: readonly LocalServer[];
  create(config: BackendConfig): Backend;
  ownPort: number;
}

/** Tries every well-known address on this machine at once; spends no tokens and takes a second or two. */
export function findLocalServers({ servers, create, ownPort }: FindOptions): Promise<FoundServer[]> {
  return Promise.all(
    servers.map(async (server) => {
      const { id, label, type, kind, port } = server;
      const url = urlOf(server);
      const absent = { id, label, url, found: false, models: [], models_total: 0 };
      if (port === ownPort) return { ...absent, detail: "this service itself listens there" };
      const backend = create({ name: id, kind, type, url, apiKey: null, models: [] });
      try {
        const { state, models, detail } = await backend.probe(AbortSignal.timeout(PROBE_TIMEOUT_MS));
        if (state !== "Healthy") return { ...absent, detail: detail ?? "it did not answer" };
        const ids = models.slice(0, MODELS_SHOWN_MAX).map((model) => model.id);
        return { ...absent, found: true, models: ids, models_total: models.length, detail: null };
      } catch (error) {
        return { ...absent, detail: (error as Error).message };
      } finally {
        backend.close();
      }
    }),
  );
}

export class LocalServers {
  constructor(readonly options: Omit<FindOptions, "ownPort"> & { ownPort(): number; routing: Routing }) {}

  readonly #look = oneAtATime(() => findLocalServers({ ...this.options, ownPort: this.options.ownPort() }));

  async detect() {
    const found = await this.#look();
    return found.map((server) => ({ ...server, registered_as: this.#registeredAs(server.url) }));
  }

  /** Tests and registers one of them; changes nothing if it is already registered. */
  async adopt(id: string): Promise<{ name: string }> {
    const { servers, routing } = this.options;
    const server = servers.find((one) => one.id === id);
    if (!server) fail("not_found", `\`server\` must be one of ${servers.map((one) => one.id).join(", ")}`);
    const url = urlOf(server);
    const known = this.#registeredAs(url);
    if (known !== null) return { name: known };
    const entry = await routing.add({ type: server.type, url, name: id });
    return { name: entry.config.name };
  }

  #registeredAs(url: string): string | null {
    const { port } = new URL(url);
    const same = this.options.routing.entries.find(({ config }) => {
      const at = URL.parse(config.url);
      return at?.port === port && LOOPBACK.has(at.hostname);
    });
    return same?.config.name ?? null;
  }
}
