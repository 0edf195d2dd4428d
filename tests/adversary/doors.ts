import type { Instance } from "../cluster/support/cluster.ts";
import { type Flight, REVOKED, STOPPED } from "./flights.ts";

/** A client that expected more and heard nothing for so long goes away. */
const IMPATIENCE_MS = 250;
/** A request without an answer by then is reported as hanging. */
const ANSWER_WITHIN_MS = 15_000;
/** Longer than a mark, and than the sign of an end. */
const TAIL_CHARS = 16;
const WORDS_KEPT = 300;
/** A little longer than an answer waits for someone to listen. */
const UNHEARD_MS = 1_500;

interface Exchange {
  url: string;
  method: "GET" | "POST";
  headers: Record<string, string>;
  body?: string;
  /** For answers that say in their text when they are over, and stay open. */
  end?: RegExp;
}

/**
 * One request over a socket of its own, left at the moment that the flight's plan names. Never throws: what
 * happened is written down in the flight.
 */
export async function exchange(flight: Flight, { url, method, headers, body, end }: Exchange): Promise<void> {
  const { outcome } = flight;
  const abort = new AbortController();
  let isOver = false;
  const leave = () => {
    if (isOver || abort.signal.aborted) return;
    outcome.left = true;
    abort.abort();
  };
  const late = setTimeout(() => {
    outcome.words = "no answer in time";
    leave();
  }, ANSWER_WITHIN_MS);
  const impatience = watchForLeaving(flight, leave);
  try {
    const response = await fetch(url, { method, headers, body, signal: abort.signal, keepalive: false });
    outcome.status = response.status;
    outcome.requestId = response.headers.get("x-request-id");
    const lowered = response.headers.get("x-service-max-tokens");
    if (lowered !== null) outcome.loweredTo = Number(lowered);
    const decoder = new TextDecoder();
    let tail = "";
    for await (const chunk of response.body ?? []) {
      const text = tail + decoder.decode(chunk, { stream: true });
      flight.see(text);
      if (outcome.words.length < WORDS_KEPT) outcome.words += text.slice(0, WORDS_KEPT);
      // At the end of a stream, behind the words that are kept.
      if (text.includes(REVOKED) && !outcome.words.includes(REVOKED)) outcome.words += ` … ${REVOKED}`;
      if (STOPPED.test(text)) outcome.isStopped = true;
      if (end?.test(text)) break;
      // What is looked for may be split between two chunks; the whole of it is seen with the second.
      tail = text.slice(-TAIL_CHARS);
      impatience.heard();
    }
  } catch (error) {
    if (!abort.signal.aborted) outcome.words += ` ${(error as Error).message}`;
  } finally {
    isOver = true;
    clearTimeout(late);
    impatience.stop();
  }
}

/** Calls `leave` at the moment that the plan names; `heard` is told of everything that arrives. */
export function watchForLeaving(flight: Flight, leave: () => void): { heard(): void; stop(): void } {
  const { leave: plan } = flight.asked;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;
  const stop = () => {
    stopped = true;
    clearTimeout(timer);
  };
  if (plan.at === "start") timer = setTimeout(leave, plan.afterMs);
  if (plan.at === "dispatch") void flight.arrived.then(() => !stopped && leave());
  const enough = () => {
    const written = flight.dispatch?.pieces.length ?? 0;
    return flight.outcome.seen.size >= written;
  };
  if (plan.at !== "piece" && plan.at !== "usage") return { heard: () => {}, stop };
  // The upstream waits now. Give what is still on its way to the client a moment to arrive.
  let isHalfway = false;
  const rearm = () => {
    clearTimeout(timer);
    if (!stopped) timer = setTimeout(leave, enough() ? 0 : IMPATIENCE_MS);
  };
  void flight.halfway.then(() => {
    isHalfway = true;
    rearm();
  });
  return { heard: () => isHalfway && rearm(), stop };
}

/** POST to a REST door with a key. */
export const post = (
  flight: Flight,
  instance: Instance,
  path: string,
  key: string,
  body: string,
): Promise<void> =>
  exchange(flight, {
    url: `${instance.url}${path}`,
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body,
  });

interface RpcReply {
  result?: { stream_id?: string; max_tokens?: number };
  error?: { code: number; message: string };
}

/** How chat.send is called. */
export type RpcWay = "post" | "batch" | "socket";

interface Sending {
  instance: Instance;
  /** Notifications may be had from any instance. */
  listenAt: Instance;
  token: string;
  params: readonly string[];
  over: RpcWay;
}

/** `chat.send`, alone or as a batch; each answer is listened to on the notification channel, if there is one. */
export async function send(
  flights: readonly Flight[],
  { instance, listenAt, token, params, over }: Sending,
): Promise<void> {
  const calls = params.map(
    (text, id) => `{"jsonrpc":"2.0","id":${id},"method":"chat.send","params":${text}}`,
  );
  const answer = await (over === "socket"
    ? callOverSocket(instance, token, calls[0]!)
    : callOverPost(instance, token, over === "batch" ? `[${calls.join(",")}]` : calls[0]!));
  const replies = Array.isArray(answer) ? answer : flights.map(() => answer);
  await Promise.all(flights.map((flight, i) => listen(flight, listenAt, token, replies[i] ?? {})));
}

async function callOverPost(instance: Instance, token: string, body: string): Promise<RpcReply | RpcReply[]> {
  const response = await fetch(`${instance.url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body,
  });
  return (await response.json()) as RpcReply | RpcReply[];
}

function callOverSocket(instance: Instance, token: string, call: string): Promise<RpcReply> {
  const socket = new WebSocket(`${instance.url.replace("http", "ws")}/api/rpc?token=${token}`);
  return new Promise((resolve) => {
    socket.onopen = () => socket.send(call);
    socket.onmessage = ({ data }) => {
      resolve(JSON.parse(String(data)) as RpcReply);
      socket.close();
    };
    socket.onclose = () => resolve({});
  });
}

const NOTIFIED_ERROR = /"error":\{"code":(-\d+)/;
const NOTIFIED_END = /"done":true/;

async function listen(
  flight: Flight,
  instance: Instance,
  token: string,
  { result, error }: RpcReply,
): Promise<void> {
  const { outcome } = flight;
  if (error || !result?.stream_id) {
    outcome.status = error?.code ?? 0;
    outcome.words = error?.message ?? "no answer";
    return;
  }
  outcome.loweredTo = result.max_tokens ?? null;
  const { leave } = flight.asked;
  if (leave.at === "start" && leave.afterMs === 0) {
    // Nobody ever listens: after its grace the answer goes on for nobody, and may be stored.
    outcome.status = 200;
    outcome.left = true;
    await Bun.sleep(UNHEARD_MS);
    return;
  }
  await exchange(flight, {
    url: `${instance.url}/api/rpc/events?session=${result.stream_id}`,
    method: "GET",
    headers: { authorization: `Bearer ${token}` },
    end: NOTIFIED_END,
  });
  // One who left before it was heard: the answer waits as if nobody had come, and what it holds is held meanwhile.
  if (outcome.left && outcome.seen.size === 0) await Bun.sleep(UNHEARD_MS);
  const refused = NOTIFIED_ERROR.exec(outcome.words);
  if (refused) outcome.status = Number(refused[1]);
}
