import { RpcClient } from "@model-gateway/wire/json-rpc";
import { z } from "zod";
import { BoundedMap, oneAtATime } from "../../kernel/bounded.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Log } from "../../kernel/log.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import type { BridgeResolver } from "../contract.ts";

const BRIDGE_KEEPALIVE_MS = 15_000;
const CONNECT_TIMEOUT_MS = 5_000;
const CALL_TIMEOUT_MS = 10_000;
const PROBE_TIMEOUT_MS = 2_000;
const ANSWER_CHARS_MAX = 64 * 1024;

export const isBridgeUrl = (url: string): boolean => url.toLowerCase().startsWith("bridge://");

const Connected = z.object({ local_port: z.int().min(1).max(65_535) });

function parseBridgeUrl(url: string): { node: string; service: string } {
  const match = /^bridge:\/\/([^/?#\s]+)\/([^?#\s]+?)\/?$/i.exec(url);
  if (!match)
    fail("bridge_unreachable", `\`url\` must look like bridge://<node>/<service>, not ${url.slice(0, 200)}`);
  return { node: match[1]!, service: match[2]! };
}

interface Watcher {
  /** The port that its owner uses. */
  knownPort: number | null;
}

/** Tunnels to other machines, which the bridge agent opens. */
export class Bridge implements BridgeResolver {
  readonly #agent: RpcClient;
  /** Local ports by URL, as the agent last reported them. */
  readonly #ports = new BoundedMap<string, number>();
  /** Watchers without a port yet; they take that of the next `connect` to their URL. */
  readonly #awaiting = new BoundedMap<string, Watcher>();

  constructor(readonly options: { agentUrl: string; clock: Clock; log: Log }) {
    const { agentUrl, clock } = options;
    this.#agent = new RpcClient({
      url: agentUrl,
      clock,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      messageCharsMax: ANSWER_CHARS_MAX,
    });
  }

  async connect(url: string): Promise<number> {
    const watcher = this.#awaiting.get(url);
    this.#awaiting.delete(url);
    const port = await this.#resolve(url);
    if (watcher) watcher.knownPort ??= port;
    return port;
  }

  async #resolve(url: string): Promise<number> {
    const target = parseBridgeUrl(url);
    try {
      const answer = await this.#agent.call("Bridge.Connect", target, { timeoutMs: CALL_TIMEOUT_MS });
      const parsed = Connected.safeParse(answer);
      if (!parsed.success) throw new Error("it answered without a local_port");
      this.#ports.set(url, parsed.data.local_port);
      return parsed.data.local_port;
    } catch (error) {
      const { message } = error as Error;
      return fail(
        "bridge_unreachable",
        `The bridge agent at ${shownUrl(this.options.agentUrl)} could not reach ${target.node}/${target.service}: ${message.slice(0, 500)}`,
        { cause: error },
      );
    }
  }

  watch({ name, url, onPort }: { name: string; url: string; onPort: (port: number) => void }): () => void {
    const watcher: Watcher = { knownPort: this.#ports.get(url) ?? null };
    if (watcher.knownPort === null) this.#awaiting.set(url, watcher);
    let ended = false;
    let down = false;
    const check = oneAtATime(async () => {
      try {
        const port = await this.#livePort(url);
        down = false;
        if (ended || port === watcher.knownPort) return;
        watcher.knownPort = port;
        this.options.log.info("bridge tunnel moved to a new port", { backend: name, port });
        onPort(port);
      } catch (error) {
        if (!down) this.options.log.warn("bridge tunnel is down", { backend: name, error });
        down = true;
      }
    });
    const stop = this.options.clock.every(BRIDGE_KEEPALIVE_MS, check);
    return () => {
      ended = true;
      if (this.#awaiting.get(url) === watcher) this.#awaiting.delete(url);
      stop();
    };
  }

  /** The tunnel's port if it still answers, else that of a new tunnel. */
  async #livePort(url: string): Promise<number> {
    const port = this.#ports.get(url);
    return port !== undefined && (await portAnswers(port)) ? port : this.#resolve(url);
  }

  close(): void {
    this.#agent.close();
  }
}

function portAnswers(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), PROBE_TIMEOUT_MS);
  Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open(socket) {
        resolve(true);
        socket.end();
      },
      connectError: () => resolve(false),
      data() {},
    },
  }).catch(() => resolve(false));
  return promise.finally(() => clearTimeout(timer));
}
