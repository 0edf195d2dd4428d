/** The model behind every fake vendor: what it says is scripted, in no vendor's format. */
import { createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type FakeUpstream, type ReceivedRequest, type Reply, startUpstream } from "../upstream.ts";
import { Bill } from "./bill.ts";
import { PrefixCache, tokensOf } from "./prefix-cache.ts";

export interface ModelTurn {
  thinking?: string;
  text?: string;
  calls?: readonly { name: string; args: Record<string, unknown> }[];
}

/** What a script decides by. */
export interface Asked {
  model: string;
  /** Turns of the model that the conversation already has. */
  step: number;
  tools: readonly string[];
}

export type Script = (asked: Asked) => ModelTurn;

/** Thinks and calls the first tool in each of its first turns, then says that it is done. */
export const agentScript =
  (toolTurns = 9): Script =>
  ({ step, tools }) =>
    tools[0] !== undefined && step < toolTurns
      ? {
          thinking: `Step ${step + 1}: the tool knows this.`,
          text: `Looking at part ${step + 1}.`,
          calls: [{ name: tools[0], args: { step: step + 1 } }],
        }
      : { thinking: "Nothing is missing.", text: `Done after ${step + 1} turns.` };

/** The part of a turn that fits the output limit. */
export function within(turn: ModelTurn, tokensMax: number): ModelTurn & { isCut: boolean } {
  let left = tokensMax;
  let isCut = false;
  const take = (text: string | undefined) => {
    if (text === undefined || isCut) return undefined;
    isCut = tokensOf(text) > left;
    const taken = isCut ? text.slice(0, left * 4) : text;
    left -= tokensOf(taken);
    return taken;
  };
  const thinking = take(turn.thinking);
  const text = take(turn.text);
  const calls = turn.calls?.filter((call) => take(JSON.stringify(call)) !== undefined && !isCut);
  return { thinking, text, calls, isCut };
}

export const thinkingTokens = ({ thinking = "" }: ModelTurn): number => tokensOf(thinking);
export const spokenTokens = ({ text = "", calls = [] }: ModelTurn): number =>
  tokensOf(text) + calls.reduce((sum, call) => sum + tokensOf(JSON.stringify(call)), 0);

export const words = (text: string): string[] => text.match(/\S+\s*|\s+/g) ?? [];

/** What only this vendor can have written: signatures and encrypted reasoning. */
export class Seals {
  constructor(readonly secret: string) {}

  #mac(text: string): string {
    return createHmac("sha256", this.secret).update(text).digest("base64");
  }

  seal(...bound: readonly string[]): string {
    const text = Buffer.from(JSON.stringify(bound)).toString("base64");
    return `${text}.${this.#mac(text)}`;
  }

  /** What was sealed; null if it is not from here or was changed. */
  open(seal: unknown): string[] | null {
    const [text = "", mac] = String(seal).split(".");
    return this.#mac(text) === mac ? JSON.parse(Buffer.from(text, "base64").toString()) : null;
  }
}

/** A refusal in the vendor's own form. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly body: unknown,
  ) {
    super(JSON.stringify(body));
  }
}

export interface VendorOptions {
  script?: Script;
  apiKey?: string;
  /** Time for the cache's ends of life. */
  nowMs?: () => number;
  /** Between two pieces of a stream. */
  paceMs?: number;
}

export interface FakeVendor {
  url: string;
  apiKey: string;
  /** What was sent here, other than GET. */
  requests: ReceivedRequest[];
  /** Body bytes of each answer, in the order of `requests`. */
  answers: string[];
  bill: Bill;
  script: Script;
  upstream: FakeUpstream;
  stop(): void;
}

/** What a vendor's file works with. */
export interface Desk extends FakeVendor {
  cache: PrefixCache;
  seals: Seals;
  nextId(prefix: string): string;
  /** Sends events one by one until the client leaves. */
  stream(exchange: Exchange, stream: EventStream): Promise<void>;
}

export interface EventStream {
  pieces: readonly string[];
  headers?: Record<string, string>;
  /** Called before the last piece, or when the client has left, with the share that was sent, from 0 to 1. */
  ended(share: number): void;
}

export interface Exchange {
  request: ReceivedRequest;
  reply: Reply;
}

export type VendorHandler = (exchange: Exchange) => Promise<void>;

/** A server whose refusals are answered in the vendor's form. */
export function startVendor(
  apiKey: string,
  { script = agentScript(), nowMs = Date.now, paceMs = 0, ...options }: VendorOptions,
  handlerOf: (desk: Desk) => VendorHandler,
): FakeVendor {
  const upstream = startUpstream();
  let lastId = 0;
  const desk: Desk = {
    url: upstream.url,
    apiKey: options.apiKey ?? apiKey,
    requests: upstream.requests,
    answers: [],
    bill: new Bill(),
    script,
    upstream,
    stop: () => upstream.stop(),
    cache: new PrefixCache(nowMs),
    seals: new Seals(apiKey),
    nextId: (prefix) => `${prefix}${String(++lastId).padStart(8, "0")}`,
    async stream({ request, reply }, { pieces, headers, ended }) {
      reply.head(200, { "content-type": "text/event-stream; charset=utf-8", ...headers });
      for (const [index, piece] of pieces.entries()) {
        if (request.closedAtMs !== null) return ended(index / pieces.length);
        if (index === pieces.length - 1) ended(1);
        await reply.write(piece);
        await sleep(paceMs);
      }
      await reply.end();
    },
  };
  const handler = handlerOf(desk);
  const answer = async (request: ReceivedRequest, reply: Reply) => {
    const index = request.method === "GET" ? -1 : upstream.requests.indexOf(request);
    const keep = (piece: string | Uint8Array) => {
      if (index >= 0) desk.answers[index] = (desk.answers[index] ?? "") + Buffer.from(piece).toString();
    };
    const kept: Reply = {
      ...reply,
      write: (piece) => {
        keep(piece);
        return reply.write(piece);
      },
      json: (value, status, headers) => {
        keep(JSON.stringify(value));
        return reply.json(value, status, headers);
      },
    };
    try {
      await handler({ request, reply: kept });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      await kept.json(error.body, error.status);
    }
  };
  upstream.answer(answer);
  upstream.listing(answer);
  return desk;
}
