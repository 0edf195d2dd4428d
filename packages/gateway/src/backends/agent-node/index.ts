import { hostProblem, isLoopback, urlHost } from "@model-gateway/protocol/host.ts";
import type { TunnelFetchInit } from "@model-gateway/protocol/tunnel/client.ts";
import { ipFamily } from "@model-gateway/wire/http";
import { nearestTo } from "../../kernel/affinity.ts";
import { ServiceError } from "../../kernel/errors.ts";
import { inBackground } from "../../kernel/log.ts";
import { keepSecret } from "../../kernel/secrets.ts";
import { videos } from "../cloud-video/dialects.ts";
import { createCloudVideo } from "../cloud-video/index.ts";
import {
  type Answer,
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type ChatCall,
  isOverloaded,
  isUnsent,
  type ModelCall,
  type ModelPool,
  type NodeTunnel,
  ownChat,
  POSTED_CAPABILITIES,
  type PostCall,
  type ProbeResult,
  type Replica,
  type VideoCapability,
  type VideoRequest,
  whenAborted,
} from "../contract.ts";
import { external } from "../external/index.ts";
import { whenAnswerEnds } from "./answer-end.ts";
import { TunnelOrigin, tunnelFailure } from "./tunnel-origin.ts";

/** A node that does not answer on its host and port within this time is reached through its tunnel. */
const REACH_TIMEOUT_MS = 2_000;
/** Time for each way to a node to answer a probe, so that one hung engine does not use up the others' time. */
const WAY_TIMEOUT_MS = 5_000;
/** Nodes choose their own keys. Shorter ones are not hidden from logs: they could be ordinary words. */
const NODE_KEY_CHARS_MIN = 16;
const TUNNEL = "agent:";
const SUSPECT_PAUSE_MS = 1_000;

/** How long a call waits for its model to be loaded; then the client is asked to retry. */
const LOADED_WITHIN_MS = { whole: 60_000, stream: 540_000 };
const LOADING_RETRY_SECONDS = 10;
/** Retries until this instance knows that a node has unloaded a model. */
const AGAIN_PAUSE_MS = 250;
const AGAIN_TRIES = 20;

/** A video task keeps its model in use for this time: longer than the pauses between polls. */
const TASK_MS = 90_000;
/** Between the node's name and its own id of a video task. */
const TASK_SEPARATOR = "|";

type Ask<Call, Result> = (way: Way, own: Call, member: Member) => Promise<Result>;
type Way = Backend & { video: VideoCapability };

interface Member {
  name: string;
  via: "direct" | "tunnel";
  ways: Way[];
  ended: AbortSignal;
  isLast: boolean;
  inFlight: number;
  /** It broke a call or a probe and has not answered a probe since: it is called only if no other node is left. */
  isSuspect: boolean;
  taskAtMs: number;
  isAskedForVideos: boolean;
}

export type Resolve = (host: string) => Promise<readonly string[]>;

const resolveBySystem: Resolve = async (host) => {
  const { lookup } = await import("node:dns/promises");
  return (await lookup(host, { all: true })).map(({ address }) => address);
};

export interface AgentPoolOptions {
  modelId: string;
  deps: BackendDeps;
  /** Whether a node may name this machine's own loopback. */
  dialsLoopback: boolean;
  resolve?: Resolve;
}

/** The backend `agent-<model_id>`: calls the session's node or the least busy one, then the next if unreachable. */
export class AgentPool implements ModelPool {
  readonly backend: Backend;
  readonly #members = new Map<string, Member>();
  /** The newest replica of each node; results for older ones are dropped. */
  readonly #wanted = new Map<string, Replica>();
  readonly #secrets = new Map<string, () => void>();
  isStandby = false;
  loadedPercent = 0;
  #underWay = 0;
  #usedMs = 0;
  readonly #waiting = new Set<() => void>();
  #wasFull = false;
  #wantedUntilMs = 0;
  /** Null until an engine has answered: until then a job may try it. */
  #makesVideos: boolean | null = null;

  constructor(readonly options: AgentPoolOptions) {
    const config = this.#config(`${TUNNEL}//nodes`, null);
    const clips: VideoCapability = {
      asked: clipsAt(config, options.deps).asked,
      submit: (request, signal) => this.#submit(request, signal),
      poll: (taskId, signal) => this.#onItsNode(taskId, (video, id) => video.poll(id, signal)),
      content: (taskId, range, signal) =>
        this.#onItsNode(taskId, (video, id) => video.content!(id, range, signal)),
      cancel: (taskId, signal) => this.#onItsNode(taskId, (video, id) => video.cancel!(id, signal)),
    };
    const makesVideos = () => this.#makesVideos;
    this.backend = {
      config,
      chat: (call) => this.#spread(call, (way, own) => way.chat!(own)),
      embed: (call) => this.#spread(call, (way, own) => way.embed!(own)),
      post: (path, call) => this.#spread(call, (way, own) => way.post!(path, own)),
      posts: POSTED_CAPABILITIES,
      get video() {
        return makesVideos() === false ? undefined : clips;
      },
      get mayMakeVideos() {
        return makesVideos() === null;
      },
      loadedPercent: () => (this.isStandby && this.size === 0 ? this.loadedPercent : null),
      probe: (signal) => this.#probe(signal),
      close() {},
    };
  }

  get size(): number {
    return this.#members.size;
  }

  usedMs(): number {
    return this.#underWay > 0 ? Number.POSITIVE_INFINITY : this.#usedMs;
  }

  isWanted(): boolean {
    const isAwaited = this.size === 0 && this.options.deps.clock.now() < this.#wantedUntilMs;
    const isWanted = this.#waiting.size > 0 || this.#wasFull || isAwaited;
    this.#wasFull = false;
    return isWanted;
  }

  #put(member: Member): Promise<void> {
    this.#members.set(member.name, member);
    for (const served of this.#waiting) served();
    if (member.isLast) return Promise.resolve();
    return this.#askForVideos(member, member.ways[0]!, AbortSignal.timeout(REACH_TIMEOUT_MS));
  }

  via(agentId: string): "direct" | "tunnel" | null {
    return this.#members.get(agentId)?.via ?? null;
  }

  async set(replica: Replica): Promise<void> {
    const { agentId, tunnel } = replica;
    this.#wanted.set(agentId, replica);
    this.#members.delete(agentId);
    const throughTunnel = tunnel && this.#throughTunnel(replica, tunnel);
    // The tunnel can be used at once; the direct way is preferred as soon as it has answered.
    const known = throughTunnel && this.#put(newMember(replica, "tunnel", [throughTunnel]));
    if (!replica.direct) return known ?? undefined;
    const address = ipFamily(replica.host) !== 0 ? replica.host : await this.#addressOf(replica);
    if (address === null || (isLoopback(address) && !this.options.dialsLoopback)) return;
    const direct = this.#direct({ ...replica, host: address });
    const usable = !throughTunnel || (await this.#answers(direct));
    if (!usable || this.#wanted.get(agentId) !== replica) return;
    const ways = throughTunnel ? [direct, throughTunnel] : [direct];
    const inFlight = this.#members.get(agentId)?.inFlight ?? 0;
    await this.#put({ ...newMember(replica, "direct", ways), inFlight });
  }

  #forgetSecret(agentId: string): void {
    this.#secrets.get(agentId)?.();
    this.#secrets.delete(agentId);
  }

  delete(agentId: string): void {
    this.#forgetSecret(agentId);
    this.#wanted.delete(agentId);
    this.#members.delete(agentId);
  }

  #config(url: string, apiKey: string | null): BackendConfig {
    const { modelId } = this.options;
    return {
      name: `agent-${modelId}`,
      kind: external.kind,
      type: external.kind,
      url,
      apiKey,
      models: [modelId],
    };
  }

  #direct({ agentId, host, port, apiKey }: Replica): Way {
    this.#forgetSecret(agentId);
    this.#secrets.set(agentId, keepSecret(apiKey, NODE_KEY_CHARS_MIN));
    return wayTo(this.#config(`http://${urlHost(host)}:${port}`, apiKey), this.options.deps);
  }

  /** Looks the host up once, so that its name cannot point elsewhere later. Null: it may not be dialled. */
  async #addressOf({ agentId, host }: Replica): Promise<string | null> {
    const { resolve = resolveBySystem, deps } = this.options;
    const addresses = await resolve(host).catch(() => []);
    const problem = addresses.map(hostProblem).find((each) => each !== null);
    if (problem) deps.log.warn("a node's host is not dialled", { agent_id: agentId, host, problem });
    return problem ? null : (addresses[0] ?? null);
  }

  /** The node's end of the tunnel adds the engine's key. */
  #throughTunnel({ agentId }: Replica, tunnel: NodeTunnel): Way {
    const { deps, modelId } = this.options;
    const base = `${TUNNEL}//${agentId}`;
    return wayTo(this.#config(base, null), {
      ...deps,
      openOrigin: (options) => new TunnelOrigin({ ...options, tunnel, modelId, clock: deps.clock }),
      fetch: async (url, init) => {
        try {
          return await tunnel.fetch(modelId, url.slice(base.length), init as TunnelFetchInit);
        } catch (error) {
          throw tunnelFailure(error);
        }
      },
    });
  }

  async #answers(direct: Backend): Promise<boolean> {
    const { models } = await direct.probe(AbortSignal.timeout(REACH_TIMEOUT_MS));
    return models.some(({ id }) => id === this.options.modelId);
  }

  /** A model on demand may be unloaded during a call; the call then waits for it again. */
  async #spread<Call extends ModelCall, Result extends object>(
    call: Call,
    ask: Ask<Call, Result>,
  ): Promise<Result> {
    for (let tries = 1; ; tries++) {
      if (this.isStandby && this.size === 0) await this.#untilServed(call);
      try {
        return await this.#spreadOnce(call, ask);
      } catch (error) {
        if (error instanceof BackendError && error.kind === "busy") this.#wasFull = true;
        else if (this.isStandby && isUnsent(error) && tries < AGAIN_TRIES && !call.signal.aborted) {
          await new Promise<void>((resolve) => this.options.deps.clock.after(AGAIN_PAUSE_MS, resolve));
          continue;
        }
        throw error;
      }
    }
  }

  /** Fails while the model is not loaded, so that a waiting job does not count as running. */
  async #submit(request: VideoRequest, signal: AbortSignal): Promise<string> {
    if (this.isStandby && this.size === 0) {
      this.#wantedUntilMs = this.options.deps.clock.now() + TASK_MS;
      this.#usedUntil(TASK_MS);
      throw this.#isLoading();
    }
    const call = ownChat({ model: request.model }, signal);
    const { taskId } = await this.#spread(call, async ({ video }, own, member) => {
      member.taskAtMs = this.options.deps.clock.now();
      return { taskId: member.name + TASK_SEPARATOR + (await video.submit(request, own.signal)) };
    });
    this.#usedUntil(TASK_MS);
    return taskId;
  }

  /** A video task stays on the node that took it. */
  async #onItsNode<T>(taskId: string, ask: (video: VideoCapability, id: string) => Promise<T>): Promise<T> {
    const end = taskId.indexOf(TASK_SEPARATOR);
    const member = this.#members.get(taskId.slice(0, end));
    if (member) this.#usedUntil(TASK_MS);
    let failure = new BackendError("gone", "the node that has this task is away");
    for (const { video } of member?.ways ?? []) {
      try {
        return await ask(video, taskId.slice(end + 1));
      } catch (error) {
        if (!isUnsent(error)) throw error;
        failure = error;
      }
    }
    throw failure;
  }

  #usedUntil(afterMs: number): void {
    this.#usedMs = Math.max(this.#usedMs, this.options.deps.clock.now() + afterMs);
  }

  #isLoading(): ServiceError {
    return new ServiceError("unavailable", `${this.options.modelId} is being loaded; try again`, {
      retryAfterSeconds: LOADING_RETRY_SECONDS,
    });
  }

  #untilServed(call: ModelCall): Promise<void> {
    const { modelId, deps } = this.options;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const isStream = "stream" in call && call.stream === true;
    const waitMs = LOADED_WITHIN_MS[isStream ? "stream" : "whole"];
    const cancel = deps.clock.after(waitMs, () => reject(this.#isLoading()));
    // Not sent yet, so a client that leaves now owes nothing.
    call.whenAborted(() => reject(new BackendError("connect", `${modelId} was not loaded yet`)));
    this.#waiting.add(resolve);
    return promise.finally(() => {
      cancel();
      this.#waiting.delete(resolve);
    });
  }

  async #spreadOnce<Call extends ModelCall, Result extends object>(
    call: Call,
    ask: Ask<Call, Result>,
  ): Promise<Result> {
    let refusal = new BackendError("connect", `no node serves ${this.options.modelId} now`);
    const all = [...this.#members.values()];
    const staying = all.filter(({ isLast }) => !isLast);
    const members = (staying.length > 0 ? staying : all).sort(
      (a, b) =>
        Number(a.isSuspect) - Number(b.isSuspect) || a.inFlight - b.inFlight || a.taskAtMs - b.taskAtMs,
    );
    const able = members.filter(({ isSuspect }) => !isSuspect);
    const session = able.length > 1 ? (call.session?.() ?? null) : null;
    if (session !== null) {
      const home = nearestTo(session, able, (member) => member);
      members.sort((a, b) => Number(b === home) - Number(a === home));
    }
    for (const member of members) {
      for (const way of member.ways) {
        member.inFlight++;
        this.#underWay++;
        const over = () => {
          member.inFlight--;
          this.#underWay--;
          this.#usedUntil(0);
        };
        // A tunnel ends with its node's connection; a direct call must be aborted.
        const own = way.config.url.startsWith(TUNNEL) ? call : untilEnded(call, member.ended);
        try {
          const answer = await ask(way, own, member);
          // With a single node there is nothing to balance, so the body is not watched.
          if (isAnswer(answer) && (members.length > 1 || this.isStandby))
            return whenAnswerEnds(answer, own.signal, over) as Result & Answer;
          over();
          return answer;
        } catch (failure) {
          const error = asFull(failure);
          over();
          if (members.length > 1 && isAboutNode(error)) this.#suspect(member);
          if (!isUnsent(error)) throw error;
          // If any node is only full, the client should hear that rather than that another is away.
          if (refusal.kind !== "busy") refusal = error;
        }
      }
    }
    throw refusal;
  }

  /** Sends no calls to a node until it has answered a probe. */
  #suspect(member: Member): void {
    if (member.isSuspect) return;
    member.isSuspect = true;
    this.#askLater(member);
  }

  #askLater(member: Member): void {
    const { clock, log } = this.options.deps;
    clock.after(SUSPECT_PAUSE_MS, () => {
      if (this.#members.get(member.name) !== member) return;
      const asked = this.#ask(member, NEVER).then(({ state }) => {
        if (state !== "Healthy") this.#askLater(member);
      });
      inBackground(log, "a probe of a node", asked);
    });
  }

  /** Healthy if one node answers. The model has our id, whatever the engine calls it. */
  #probe(signal: AbortSignal): Promise<ProbeResult> {
    const models = [{ id: this.options.modelId }];
    const members = [...this.#members.values()];
    return new Promise((resolve) => {
      let left = members.length;
      const settle = (result: ProbeResult) => resolve({ ...result, models });
      if (left === 0 && this.isStandby) settle({ state: "Healthy", models });
      else if (left === 0) settle({ state: "Unhealthy", models, detail: "no node serves it now" });
      for (const member of members)
        void this.#ask(member, signal).then((result) => {
          left--;
          if (result.state === "Healthy" || left === 0) settle(result);
        });
    });
  }

  async #ask(member: Member, signal: AbortSignal): Promise<ProbeResult> {
    let last: ProbeResult = { state: "Unhealthy", models: [] };
    for (const way of member.ways) {
      const deadline = AbortSignal.any([signal, AbortSignal.timeout(WAY_TIMEOUT_MS)]);
      last = await way.probe(deadline);
      if (last.state !== "Healthy") continue;
      if (!member.isAskedForVideos) await this.#askForVideos(member, way, deadline);
      break;
    }
    if (last.state === "Healthy") member.isSuspect = false;
    else if (this.#members.size > 1) this.#suspect(member);
    return last;
  }

  async #askForVideos(member: Member, { video }: Way, signal: AbortSignal): Promise<void> {
    try {
      this.#makesVideos = await video.isServed!(signal);
      member.isAskedForVideos = true;
    } catch {
      // The next probe asks again.
    }
  }
}

const NEVER = new AbortController().signal;

const wayTo = (config: BackendConfig, deps: BackendDeps): Way =>
  Object.assign(external.create(config, deps), { video: clipsAt(config, deps) });

const clipsAt = (config: BackendConfig, deps: BackendDeps): VideoCapability =>
  createCloudVideo({ ...config, dialect: videos.name }, deps).video!;

const newMember = ({ agentId, ended, isLast }: Replica, via: Member["via"], ways: Way[]): Member => ({
  name: agentId,
  via,
  ways,
  ended,
  isLast,
  inFlight: 0,
  isSuspect: false,
  taskAtMs: 0,
  isAskedForVideos: false,
});

function untilEnded<Call extends ModelCall>(call: Call, ended: AbortSignal): Call {
  const signal = AbortSignal.any([call.signal, ended]);
  const { model, body, requestId, stream, contentType } = call as Call & Partial<ChatCall & PostCall>;
  const own = { model, body, requestId, stream, contentType, signal };
  const aborted: Call["whenAborted"] = (run) => whenAborted(signal, run);
  return { ...own, whenAborted: aborted } as unknown as Call;
}

/** An engine that is full has not begun the call, so it may go to another node, or wait. */
const asFull = (error: unknown): unknown =>
  error instanceof BackendError && isOverloaded(error) ? new BackendError("busy", error.message) : error;

const isAnswer = (result: object): result is Answer => "pipe" in result;

const isAboutNode = (error: unknown): boolean =>
  error instanceof BackendError && (error.kind === "connect" || error.kind === "transport");
