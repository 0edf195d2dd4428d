import { carried, chatBody, embedBody, geminiPath, sendParams } from "./bodies.ts";
import { type ClipJob, film } from "./clips.ts";
import { post, send } from "./doors.ts";
import type { Asked, Flight, Payer } from "./flights.ts";
import {
  type AnswerPlan,
  type BatchStep,
  type ChatRequest,
  type ChatStep,
  type EmbedStep,
  MODEL_NUMBERS,
  type Plot,
  type RushStep,
  type Step,
  type VideoStep,
  type VoiceStep,
  type WorkStep,
} from "./plot.ts";
import { Population, type Someone } from "./population.ts";
import type { Stage } from "./stage.ts";
import { WORK_NUMBERS } from "./upstream/work.ts";
import { speak } from "./voices.ts";
import { type WorkJob, work } from "./works.ts";

/** The other models are for the probes. */
const REQUESTS_MAX = MODEL_NUMBERS - 76;
const PATHS = {
  chat: "/v1/chat/completions",
  cursor: "/v1/chat/completions",
  responses: "/v1/responses",
  messages: "/v1/messages",
  gemini: "/v1beta/models",
  completions: "/v1/completions",
  ollama: "/api/chat",
  generate: "/api/generate",
  raw: "/api/generate",
} as const;
const EMBED_PATHS = { embeddings: "/v1/embeddings", ollama: "/api/embed" } as const;

/** One plot, played: who took part, and every request with what both of its ends saw. */
export class Round {
  readonly flights: Flight[] = [];
  readonly clips: ClipJob[] = [];
  readonly works: WorkJob[] = [];

  private constructor(
    readonly stage: Stage,
    readonly plot: Plot,
    readonly population: Population,
  ) {}

  static async play(stage: Stage, plot: Plot): Promise<Round> {
    const round = new Round(stage, plot, await new Population(stage).settle(plot));
    const queue = plot.steps.values();
    const lane = async () => {
      for (const step of queue) if (round.#hasRoomFor(step)) await round.#take(step);
    };
    await Promise.all(Array.from({ length: plot.atOnce }, lane));
    return round;
  }

  #room = REQUESTS_MAX;

  /** Leaves out what would need more models than there are. */
  #hasRoomFor(step: Step): boolean {
    const requests = step.do === "rush" ? step.times : step.do === "batch" ? step.sends.length : 1;
    if (requests > this.#room) return false;
    this.#room -= requests;
    return true;
  }

  /** Every model number is in use. */
  get isFull(): boolean {
    return this.flights.length >= MODEL_NUMBERS;
  }

  open(payer: Payer, asked: Asked): Flight {
    if (this.isFull) throw new Error("a round has more requests than there are models");
    const flight = this.stage.flights.open(this.flights.length, payer, asked);
    this.flights.push(flight);
    return flight;
  }

  async #take(step: Step): Promise<void> {
    switch (step.do) {
      case "chat":
        return step.via === "send" || step.via === "socket" ? this.#send(step) : this.#chat(step, step.via);
      case "batch":
        return this.#batch(step);
      case "rush":
        return this.#rush(step);
      case "embed":
        return this.#embed(step);
      case "topup":
        return this.population.topUp(step.points);
      case "allocate":
        return this.population.allocate(this.population.person(step.to), step.points);
      case "discount":
        return this.#discount(this.population.person(step.who), step.multiplier);
      case "revoke":
        return this.population.revoke(this.population.person(step.who));
      case "disband":
        return this.population.disband();
      case "voice":
        return this.#voice(step);
      case "video":
        return this.#video(step);
      case "work":
        return this.#work(step);
    }
  }

  /** What was stored can be read later: it counts as delivered, whether or not anyone listened. */
  async readConversations(): Promise<void> {
    for (const { token, conversationId } of this.population.people) {
      const stored = await this.stage
        .at(0)
        .rpc("conversations.get", { conversation_id: conversationId }, token);
      const text = JSON.stringify(stored);
      for (const flight of this.flights) flight.see(text);
    }
  }

  /** What goes on in a conversation says again what was asked there before. */
  #asked(step: ChatStep, { conversationId }: Someone, surface: string): Asked {
    const asked = askedOf(step, step.via, surface);
    if (!step.conversation) return asked;
    const promptTokens = asked.promptTokens + (this.#conversationTokens.get(conversationId) ?? 0);
    this.#conversationTokens.set(conversationId, promptTokens);
    return { ...asked, promptTokens };
  }

  async #chat(step: ChatStep, via: keyof typeof PATHS): Promise<void> {
    const someone = this.population.person(step.who);
    const { key, payer } = await this.population.key(someone, step.key);
    const flight = this.open(payer, this.#asked(step, someone, step.stream ? `${via} stream` : via));
    const body = chatBody(step, { flight, conversationId: conversationOf(step, someone) });
    const path = via === "gemini" ? geminiPath(step, flight) : PATHS[via];
    await post(flight, this.stage.at(step.instance), path, key, body);
  }

  async #send(step: ChatStep): Promise<void> {
    const someone = this.population.person(step.who);
    const flight = this.open(this.population.signedIn(someone), this.#asked(step, someone, step.via));
    await send([flight], {
      instance: this.stage.at(step.instance),
      listenAt: this.stage.at(step.instance + 1),
      token: someone.token,
      params: [sendParams(step, { flight, conversationId: conversationOf(step, someone) })],
      over: step.via === "socket" ? "socket" : "post",
    });
  }

  async #batch({ who, instance, sends }: BatchStep): Promise<void> {
    const someone = this.population.person(who);
    const payer = this.population.signedIn(someone);
    const flights = sends.map((request) => this.open(payer, askedOf(request, "send", "batch")));
    await send(flights, {
      instance: this.stage.at(instance),
      listenAt: this.stage.at(instance),
      token: someone.token,
      params: sends.map((request, i) => sendParams(request, { flight: flights[i]!, conversationId: null })),
      over: "batch",
    });
  }

  /** One key for all of them: what several hands do at once with what is left of it. */
  async #rush({ who, key: kind, times, request }: RushStep): Promise<void> {
    const { key, payer } = await this.population.key(this.population.person(who), kind);
    const step: ChatStep = { do: "chat", who, instance: 0, key: kind, via: "chat", ...request };
    const surface = request.stream ? "rush stream" : "rush";
    const one = (i: number) => {
      const flight = this.open(payer, askedOf(request, "chat", surface));
      const body = chatBody(step, { flight, conversationId: null });
      return post(flight, this.stage.at(i), PATHS.chat, key, body);
    };
    await Promise.all(Array.from({ length: times }, (_, i) => one(i)));
  }

  async #embed(step: EmbedStep): Promise<void> {
    const { key, payer } = await this.population.key(this.population.person(step.who), step.key);
    const flight = this.open(payer, {
      surface: step.via === "ollama" ? "ollama embed" : "embeddings",
      model: "embed",
      plan: step.plan,
      leave: step.leave,
      promptTokens: step.prompt.tokens,
      members: step.via === "ollama" ? carried(step.members, "ollama") : step.members,
    });
    const path = EMBED_PATHS[step.via];
    await post(flight, this.stage.at(step.instance), path, key, embedBody(step, flight));
  }

  async #voice(step: VoiceStep): Promise<void> {
    const someone = this.population.person(step.who);
    const flight = this.open(this.population.signedIn(someone), {
      surface: "voice",
      model: "voice",
      plan: NO_PLAN,
      leave: { at: "piece", piece: 0 },
      promptTokens: step.instructions,
      members: [],
      responses: step.responses,
    });
    await speak(this.stage, flight, step, someone.token);
  }

  async #video(step: VideoStep): Promise<void> {
    const someone = this.population.person(step.who);
    const { key, payer } =
      step.key === "rpc"
        ? { key: null, payer: this.population.signedIn(someone) }
        : await this.population.key(someone, step.key);
    const canary = this.stage.flights.number();
    this.clips.push(await film(this.stage, step, { canary, payer, key, token: someone.token }));
    this.stage.video.tasks.delete(canary);
  }

  #workNumber = 0;
  readonly #conversationTokens = new Map<string, number>();
  readonly #workCanaries: number[] = [];

  async #work(step: WorkStep): Promise<void> {
    const number = this.#workNumber++;
    if (number >= WORK_NUMBERS.count) return;
    const { key, payer } = await this.population.key(this.population.person(step.who), step.key);
    const canary = this.stage.flights.number();
    this.#workCanaries.push(canary);
    this.works.push(await work(this.stage, step, { number, canary, payer, key }));
  }

  /** Its upstream may read a request after the client has gone, so all of them are known until the round is judged. */
  forget(): void {
    this.stage.flights.forget(this.flights);
    for (const canary of this.#workCanaries) this.stage.upstream.works.delete(canary);
  }

  /** A group admin who is not the platform's gives a member, or himself, another price. */
  async #discount(someone: Someone, multiplier: number): Promise<void> {
    const { groupId, people } = this.population;
    const params = { group_id: groupId, user_id: someone.email, cost_multiplier: multiplier };
    await this.stage
      .at(2)
      .rpc("group.members.update", params, people[0]!.token)
      .catch(() => {});
  }
}

/** What a voice session says is planned response by response. */
const NO_PLAN: AnswerPlan = {
  wants: 0,
  pieceTokens: 1,
  text: "prose",
  member: "audio",
  alike: false,
  report: "honest",
  cached: "none",
  ending: "whole",
};

const askedOf = (
  { model, plan, leave, members, prompt }: ChatRequest,
  via: ChatStep["via"],
  surface: string = via,
): Asked => ({
  surface,
  model,
  plan,
  leave,
  promptTokens: prompt.tokens + prompt.tools + prompt.prediction,
  members: carried(members, via),
});

const conversationOf = ({ conversation }: ChatRequest, { conversationId }: Someone) =>
  conversation ? conversationId : null;
