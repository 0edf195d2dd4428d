import {
  CloseCode,
  EstimateResult,
  HEARTBEAT_INTERVAL_MS,
  HEARTBEATS_MISSED_MAX,
  MODELS_MAX,
  type ProgressParams,
  type ServingOptions,
} from "@model-gateway/protocol/agent.ts";
import type { z } from "zod";
import type { Backend, ModelPool } from "../../backends/contract.ts";
import { callInstance, serveCalls } from "../../bus/contract.ts";
import { isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { inBackground } from "../../kernel/log.ts";
import type { Needs } from "../foundation.ts";
import type { Routing } from "../routing/index.ts";
import { Command, type Question } from "./command.ts";
import { DeployStreams } from "./deploy-streams.ts";
import { byRoom, type Candidate, type Fit, Fleet, hasRoom, refusalOf } from "./fleet.ts";
import { InstanceTunnels } from "./instance-tunnels.ts";
import { Presence } from "./presence.ts";
import { type AgentRecord, toRecord } from "./records.ts";
import { Serving } from "./serving.ts";
import { type AgentIdentity, type AgentLink, comingModels, NodeSession, type NodeState } from "./session.ts";
import { AgentStore } from "./store.ts";

const OFFLINE_AFTER_MS = HEARTBEATS_MISSED_MAX * HEARTBEAT_INTERVAL_MS;
const SWEEP_MS = 1_000;
/** A node that was let in has this long to say hello. */
const HELLO_TIMEOUT_MS = 15_000;
/** How often `last_seen` is written to the database; live figures come from memory. */
const SEEN_WRITE_MS = 60_000;
/** How long a node without requests has to connect elsewhere when its instance stops. */
const MOVED_WITHIN_MS = 3_000;
/** How long a drained node keeps serving while its models start elsewhere. */
const MOVED_ELSEWHERE_MS = 600_000;
/** By then announcements have reached the other instances. */
const ANNOUNCED_MS = 100;
const TOKEN_BYTES = 32;
const commandsOf = (instance: string) => `agents-commands:${instance}`;
/** Longer than a node has for its own answer, so that its refusal is what the caller sees. */
const ANSWER_TIMEOUT_MS = 15_000;
/** How many stray models a node is told to stop per heartbeat. */
const STRAYS_AT_ONCE = 5;

export interface AgentsOptions
  extends Needs<"db" | "bus" | "instances" | "events" | "clock" | "ids" | "leases" | "log"> {
  /** Backends of nodes are not persisted. One that yields gets no model that a registered backend serves. */
  backends: Pick<Routing, "adopt" | "recheck" | "dismiss" | "router">;
  createPool(modelId: string): ModelPool;
}

export interface Order {
  modelId: string;
  agentId?: string;
  besideBackends: boolean;
  serving: ServingOptions;
}

export class Agents {
  readonly store: AgentStore;
  readonly #sessions = new Map<string, NodeSession>();
  readonly #seenWrittenMs = new Map<string, number>();
  readonly #serving: Serving;
  readonly #streams: DeployStreams;
  readonly #presence: Presence;
  readonly #tunnels: InstanceTunnels;
  /** Called when the room closes. */
  readonly #ends: (() => void)[] = [];
  /** Models that are served always or on demand, wherever there is room. */
  readonly fleet: Fleet;
  #isRetiring = false;
  #placing: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(readonly options: AgentsOptions) {
    const { db, instances: requests, clock, ids } = options;
    const instance = ids.uuid();
    this.store = new AgentStore(db);
    this.#serving = new Serving(options);
    this.#streams = new DeployStreams(options);
    this.#presence = new Presence({
      ...options,
      instance,
      silenceMaxMs: OFFLINE_AFTER_MS,
      onAsked: () => this.#announceAll(),
      accepts: (state) => this.#yieldsTo(state),
      onRemote: ({ instance: holder, state }) => {
        const tunnel = this.#tunnels.via(holder, state.agentId);
        this.#serve(state, { id: `${holder} ${state.epoch}`, tunnel });
      },
      onRemoteGone: ({ instance: holder, state: { agentId, isLeaving } }, isElsewhere) => {
        // The node is moving: routing switches to its new connection, and requests on the old one finish.
        if (isLeaving && isElsewhere) return;
        this.#serving.removeNode(agentId);
        this.#tunnels.drop(holder, agentId);
      },
      onLeft: (holder, agentId) => this.#tunnels.drop(holder, agentId),
      onDeregistered: (agentId) => this.#onDeregistered(agentId),
    });
    const execute = (command: unknown) => this.#execute(Command.parse(command));
    if (requests) this.#ends.push(serveCalls(requests, commandsOf(instance), execute));
    this.#tunnels = new InstanceTunnels({
      ...options,
      instance,
      local: (agentId) => this.#sessions.get(agentId)?.link.tunnel ?? null,
    });
    this.#ends.push(clock.every(SWEEP_MS, () => this.#sweep()));
    this.fleet = new Fleet({ ...options, serving: this.#serving, agents: this });
  }

  async register(machine: { name: string; version: string }): Promise<{ agent_id: string; token: string }> {
    const { ids, clock } = this.options;
    const agentId = ids.uuid();
    const token = `agent-${ids.secret(TOKEN_BYTES)}`;
    await this.store.insert({
      id: agentId,
      ...machine,
      token_hash: sha256Hex(token),
      created_at: isoTime(clock.now()),
    });
    return { agent_id: agentId, token };
  }

  async deregister(agentId: string): Promise<void> {
    if (!(await this.store.remove(agentId))) notFound(agentId);
    this.#presence.announceDeregistered(agentId);
    await this.#serving.dismissed();
  }

  async list(): Promise<AgentRecord[]> {
    return (await this.store.list()).map((row) => this.#record(row));
  }

  async status(agentId: string): Promise<AgentRecord> {
    return this.#record((await this.store.get(agentId)) ?? notFound(agentId));
  }

  /** Orders a model onto a node; the returned stream reports its progress. */
  deploy(userId: string, order: Order): Promise<string> {
    if (order.agentId) return this.#deploy(userId, order);
    // One after the other, so that each placement sees what earlier ones have taken.
    const deployed = this.#placing.then(() => this.#deploy(userId, order));
    this.#placing = deployed.catch(() => {});
    return deployed;
  }

  async #deploy(userId: string, { modelId, besideBackends, serving, ...order }: Order): Promise<string> {
    const { backends, clock, ids } = this.options;
    const owner = besideBackends ? null : backends.router.ownerOf(modelId);
    if (owner !== null)
      fail(
        "app_error",
        `${modelId} is served by the backend ${owner}; with \`beside_backends\`: true the node gets a share of its requests`,
      );
    const agentId = order.agentId
      ? await this.#requireOnline(order.agentId)
      : await this.#roomiest(modelId, serving);
    const earlier = await this.store.deployments(agentId);
    if (!earlier.has(modelId) && earlier.size >= MODELS_MAX)
      fail("app_error", `The node has ${MODELS_MAX} models, the most that are deployed to one; stop some`);
    const streamId = ids.uuid();
    await this.store.recordDeployment(agentId, modelId, { besideBackends, now: isoTime(clock.now()) });
    try {
      const deployment = { agentId, modelId, streamId, besideBackends, serving, userId };
      await this.#command({ kind: "deploy", ...deployment });
    } catch (error) {
      if (!earlier.has(modelId)) await this.store.removeDeployment(agentId, modelId);
      throw error;
    }
    return streamId;
  }

  async fits(modelId: string, serving: ServingOptions): Promise<Fit[]> {
    const takers = this.#online().filter(({ state }) => state.draining === undefined);
    const asked = takers.map(async (node) => {
      const question = { method: "agent.estimate", params: { model_id: modelId, ...serving } } as const;
      const said = this.ask(node.state.agentId, question, EstimateResult);
      const unknown = ({ message: why }: Error) => ({ estimate: null, room_mb: null, why });
      return { ...node, ...(await said.catch(unknown)) };
    });
    return byRoom(await Promise.all(asked));
  }

  /** A node's answer to a question; unknown if the node's version does not support it. */
  async ask<Said>(agentId: string, question: Pick<Question, "method" | "params">, answer: z.ZodType<Said>) {
    const command = { kind: "ask", agentId: await this.#requireOnline(agentId), ...question } as const;
    const { success, data } = answer.safeParse(await this.#command(command));
    return success
      ? data
      : fail("app_error", "The agent node's answer is not understood; update its program");
  }

  /** `gently`: running requests finish first. */
  async stop(agentId: string, modelId: string, { gently = false } = {}): Promise<void> {
    await this.#requireOnline(agentId);
    // First stop routing to it, whatever the node answers.
    await this.store.removeDeployment(agentId, modelId);
    await this.#command({ kind: "stop", agentId, modelId, gently });
  }

  /** Gives the node nothing new, and its models to other nodes, or takes that back. */
  async drain(agentId: string, isOn: boolean): Promise<void> {
    await this.#requireOnline(agentId);
    await this.#command({ kind: "drain", agentId, isOn });
  }

  async authenticate(token: string): Promise<AgentIdentity | null> {
    const row = await this.store.byTokenHash(sha256Hex(token));
    return row && { agentId: row.id, name: row.name, deployed: await this.store.deployments(row.id) };
  }

  /** Accepts a node's connection, which replaces an earlier one of the same node. */
  connect(identity: AgentIdentity, link: AgentLink): NodeSession {
    const session = new NodeSession({ ...identity, link, clock: this.options.clock, events: this.events });
    const earlier = this.#sessions.get(identity.agentId);
    this.#sessions.set(identity.agentId, session);
    earlier?.close(CloseCode.replaced, "replaced by a newer connection");
    return session;
  }

  figures() {
    const online = this.states();
    const models = online.flatMap((state) => state.models.map(({ model_id }) => model_id));
    return {
      agents_online: online.length,
      gpu_nodes: online.filter(({ gpus }) => gpus.length > 0).length,
      models_deployed: new Set(models).size,
    };
  }

  /** The backend `agent-<model_id>`, if it is routable on this instance. */
  backend(modelId: string): Backend | null {
    return this.#serving.backend(modelId);
  }

  /** Moves nodes to other instances, if there are any. Each connection stays until its node has a new one and is idle. */
  retire({ othersStay }: { othersStay: boolean }): void {
    const { clock } = this.options;
    this.#isRetiring = true;
    const beganMs = clock.elapsed();
    if (othersStay) for (const session of this.#sessions.values()) session.note({ isLeaving: true });
    if (othersStay) this.#announceAll();
    // Tell the others first: otherwise they drop their requests through here when the node appears elsewhere.
    const tellNodes = () => {
      if (othersStay) for (const { link } of this.#sessions.values()) link.leaving();
    };
    const close = () => {
      const mayStay = othersStay && clock.elapsed() - beganMs < MOVED_WITHIN_MS;
      for (const session of [...this.#sessions.values()])
        if (session.link.tunnel.openStreams === 0 && (session.isSuperseded || !mayStay))
          session.close(1001, "this instance is stopping");
    };
    close();
    this.#ends.push(clock.after(ANNOUNCED_MS, tellNodes), clock.every(SWEEP_MS / 10, close));
  }

  close(): void {
    for (const session of [...this.#sessions.values()]) session.close(1001, "this instance is stopping");
    this.#closed = true;
    for (const end of this.#ends) end();
    this.fleet.close();
    this.#presence.close();
    this.#tunnels.close();
  }

  readonly events = {
    hello: (session: NodeSession): void => {
      const { agentId } = session;
      this.#presence.forget(agentId, { isElsewhere: true });
      const routable = this.#serve(session.state!, here(session));
      this.#streams.reconcile(session.state!, routable);
      void this.#claim(session);
    },
    /** The node's state changed; `news` is the cause, unless it was a heartbeat. */
    changed: (session: NodeSession, news: ProgressParams | null): void => {
      if (session.isSuperseded) return;
      const state = session.state!;
      const routable = this.#serve(state, here(session));
      if (news) this.#streams.progress(session.agentId, news, routable);
      else if (session.heardAtMs - (this.#seenWrittenMs.get(session.agentId) ?? 0) >= SEEN_WRITE_MS)
        this.#writeSeen(session.agentId);
      this.#announce(state);
    },
    firstReady: ({ agentId }: NodeSession, modelId: string): void => {
      const recorded = this.store.wasReady(agentId, modelId);
      inBackground(this.options.log, "recording that a model was served", recorded);
    },
    /** The node reports models that are not deployed to it: a stop was lost, or the claim is false. */
    strays: ({ agentId, link }: NodeSession, modelIds: string[]): void => {
      const { log } = this.options;
      const models = modelIds.slice(0, STRAYS_AT_ONCE);
      log.warn("a node has models that are not deployed to it; it is told to end them", { agentId, models });
      for (const model_id of models)
        inBackground(log, "ending a stray model", link.request("agent.stop", { model_id, gently: true }));
    },
    draining: (session: NodeSession): Promise<void> => this.#drain(session),
    ended: (session: NodeSession): void => {
      const { agentId, state } = session;
      if (this.#sessions.get(agentId) === session) this.#sessions.delete(agentId);
      if (!state) return;
      if (!session.isSuperseded) {
        this.#serving.removeNode(agentId);
        this.#streams.lost(agentId);
      }
      if (state.epoch > 0) this.#presence.announceGone(state);
      this.#writeSeen(agentId);
      this.options.log.info("node disconnected", { agent_id: agentId, name: state.name });
    },
  };

  /** Resolves when the node's models are served elsewhere, as far as they can be, and its requests have ended. */
  async #drain(session: NodeSession): Promise<void> {
    const { clock } = this.options;
    const untilMs = clock.elapsed() + MOVED_ELSEWHERE_MS;
    const isOff = () => session.over || session.state?.draining === undefined;
    session.setDraining("moving");
    await this.#until(() => isOff() || clock.elapsed() >= untilMs || !this.#isMoving(session.state!));
    if (isOff()) return;
    session.setDraining("empty");
    await this.#until(() => isOff() || session.link.tunnel.openStreams === 0);
  }

  /** Whether one of its models is still starting on another node and served by no other. */
  #isMoving({ agentId, models }: NodeState): boolean {
    const others = this.states().filter((each) => each.agentId !== agentId && each.draining === undefined);
    return models.some(
      ({ model_id }) =>
        !others.some((each) => each.models.some((other) => other.model_id === model_id)) &&
        (this.fleet.isKept(model_id)
          ? others.length > 0
          : others.some((each) => comingModels(each).includes(model_id))),
    );
  }

  #until(isSo: () => boolean): Promise<void> {
    if (isSo()) return Promise.resolve();
    return new Promise((resolve) => {
      const stop = this.options.clock.every(SWEEP_MS / 10, () => {
        if (!isSo() && !this.#closed) return;
        stop();
        resolve();
      });
    });
  }

  /** Makes this connection the node's newest for every instance. */
  async #claim(session: NodeSession): Promise<void> {
    const { clock, log } = this.options;
    const { agentId, state } = session;
    const { version, host, name } = state!;
    try {
      const now = isoTime(clock.now());
      const epoch = await this.store.claimEpoch(agentId, { version, host, now });
      if (session.over) return;
      if (epoch === null) {
        session.close(CloseCode.deregistered, "this node was deregistered");
        return;
      }
      session.note({ epoch });
      // Reread: an order may have come between the node's admission and this connection.
      session.setDeployed(await this.store.deployments(agentId));
      if (session.over) return;
      this.#announce(session.state!);
      log.info("node connected", { agent_id: agentId, name, host, version });
    } catch (error) {
      if (this.#closed) return;
      log.error("recording a node's connection failed", { agent_id: agentId, error });
      session.close(1011, "the gateway could not record the connection");
    }
  }

  /** Without an epoch, other instances could not tell a connection from an older one. */
  #announce(state: NodeState): void {
    if (state.epoch > 0 && !this.#closed) this.#presence.announce(state);
  }

  #announceAll(): void {
    for (const { state } of this.#sessions.values())
      if (state && state.epoch > 0 && !this.#closed) this.#presence.announceNow(state);
  }

  /** If two instances hold a node, the newer connection wins; the older one ends once its requests have finished. */
  #yieldsTo({ agentId, epoch }: NodeState): boolean {
    const mine = this.#sessions.get(agentId);
    if (!mine?.state) return true;
    if (mine.state.epoch === 0 || mine.state.epoch > epoch) return false;
    if (this.#isRetiring) mine.isSuperseded = true;
    else mine.close(CloseCode.replaced, "replaced by a newer connection");
    return true;
  }

  /** Updates routing to what the node serves now; awaiting it is optional. */
  #serve(...update: Parameters<Serving["update"]>): Promise<void> {
    const routable = this.#serving.update(...update);
    inBackground(this.options.log, "routing to a node's models", routable);
    return routable;
  }

  #onDeregistered(agentId: string): void {
    this.#streams.removed(agentId);
    this.#seenWrittenMs.delete(agentId);
    this.#sessions.get(agentId)?.close(CloseCode.deregistered, "this node was deregistered");
    this.#serving.endNode(agentId);
  }

  #sweep(): void {
    const now = this.options.clock.now();
    for (const session of [...this.#sessions.values()]) {
      if (!session.state && now - session.openedAtMs >= HELLO_TIMEOUT_MS)
        session.close(1008, "no agent.hello came");
      else if (now - session.heardAtMs >= OFFLINE_AFTER_MS)
        session.close(1001, `no heartbeat for ${OFFLINE_AFTER_MS / 1000} s`);
    }
    this.#presence.sweep();
  }

  #writeSeen(agentId: string): void {
    if (this.#closed) return;
    const { clock, log } = this.options;
    this.#seenWrittenMs.set(agentId, clock.now());
    inBackground(log, "recording a node's last heartbeat", this.store.seen(agentId, isoTime(clock.now())));
  }

  /** Every node that is online, wherever it is connected. */
  #online(): Candidate[] {
    const now = this.options.clock.now();
    const here = [...this.#sessions.values()].flatMap(({ state, reserved, heardAtMs }) =>
      state && now - heardAtMs < OFFLINE_AFTER_MS ? { state, reserved } : [],
    );
    const elsewhere = [...this.#presence.remote.values()].flatMap(({ state, heardAtMs }) =>
      now - heardAtMs < OFFLINE_AFTER_MS ? { state, reserved: new Set<string>() } : [],
    );
    return [...here, ...elsewhere];
  }

  states(): NodeState[] {
    return this.#online().map(({ state }) => state);
  }

  #stateOf(agentId: string): NodeState | null {
    return this.#online().find(({ state }) => state.agentId === agentId)?.state ?? null;
  }

  async #roomiest(modelId: string, serving: ServingOptions): Promise<string> {
    const fits = await this.fits(modelId, serving);
    if (fits.length === 0) fail("app_error", "No agent node is online; start one, or see agents.list");
    return (fits.find(hasRoom) ?? fail("app_error", refusalOf(modelId, fits))).state.agentId;
  }

  async #requireOnline(agentId: string): Promise<string> {
    if (this.#stateOf(agentId)) return agentId;
    const { name } = (await this.store.get(agentId)) ?? notFound(agentId);
    fail("app_error", `Agent node ${name} is offline; start its program, or name another node`);
  }

  async #command(command: Command): Promise<unknown> {
    const { agentId } = command;
    const elsewhere = this.#sessions.has(agentId) ? undefined : this.#presence.remote.get(agentId);
    if (!elsewhere) return this.#execute(command);
    const topic = commandsOf(elsewhere.instance);
    const answer = await callInstance(this.options.instances, topic, command, ANSWER_TIMEOUT_MS);
    if (!answer)
      fail("app_error", "The instance that holds the node's connection does not answer; try again");
    return answer.result;
  }

  async #execute(command: Command): Promise<unknown> {
    const { agentId } = command;
    const session = this.#sessions.get(agentId);
    if (!session?.state) fail("app_error", "The agent node is no longer online; try again");
    if (command.kind === "drain") {
      if (command.isOn) inBackground(this.options.log, "draining a node", this.#drain(session));
      else session.setDraining(undefined);
      return undefined;
    }
    if (command.kind === "ask") return session.link.request(command.method, command.params);
    const { modelId } = command;
    if (command.kind === "stop") {
      session.withdraw(modelId);
      await this.#serving.dismissed();
      const gently = command.gently || undefined;
      return session.link.request("agent.stop", { model_id: modelId, gently });
    }
    const { serving, streamId, userId, besideBackends } = command;
    const wasDeployed = session.deploy(modelId, besideBackends);
    this.#streams.open({ streamId, userId, agentId, modelId });
    session.reserved.add(modelId);
    try {
      const order = { model_id: modelId, stream_id: streamId, ...serving };
      return await session.link.request("agent.deploy", order);
    } catch (error) {
      this.#streams.drop(streamId);
      session.reserved.delete(modelId);
      if (!wasDeployed) session.withdraw(modelId);
      throw error;
    }
  }

  #record(row: Parameters<typeof toRecord>[0]): AgentRecord {
    return toRecord(row, this.#stateOf(row.id), (modelId) => this.#serving.via(row.id, modelId));
  }
}

/** Replicas end with their session, so the connection never changes within one. */
const here = ({ link }: NodeSession) => ({ id: "here", tunnel: link.tunnel });

function notFound(agentId: string): never {
  fail("not_found", `Agent not found: ${agentId}; agents.list shows the ids`);
}
