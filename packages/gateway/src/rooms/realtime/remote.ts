import type { Requests, Subscription } from "../../bus/contract.ts";
import { type ErrorName, fail, toServiceError } from "../../kernel/errors.ts";

/** The instance that holds the session answers in a millisecond; when none does, there is no such session. */
const ANSWER_WITHIN_MS = 2_000;

const topicOf = (sessionId: string) => `realtime:${sessionId}`;

interface RemoteSessionsOptions {
  instances: Requests | null;
  /** For a session held here: these do what another instance was asked for. */
  send(userId: string, sessionId: string, event: Record<string, unknown>): Promise<void>;
  stop(userId: string, sessionId: string): boolean;
}

type RemoteQuestion = { userId: string; stop: true } | { userId: string; event: Record<string, unknown> };
type RemoteAnswer = { done: boolean } | { error: { kind: ErrorName; message: string } };

/** Sessions that other instances hold, and the answers to other instances about those held here. */
export class RemoteSessions {
  constructor(readonly options: RemoteSessionsOptions) {}

  /** Whether a session that is not here may be elsewhere. */
  get possible(): boolean {
    return this.options.instances !== null;
  }

  async send(userId: string, sessionId: string, event: Record<string, unknown>): Promise<void> {
    const answer = await this.#ask(sessionId, { userId, event });
    if (!answer) fail("not_found", "Realtime session not found; realtime.start opens one");
    if ("error" in answer) fail(answer.error.kind, answer.error.message);
  }

  async stop(userId: string, sessionId: string): Promise<boolean> {
    const answer = await this.#ask(sessionId, { userId, stop: true });
    return answer !== null && "done" in answer && answer.done;
  }

  async #ask(sessionId: string, question: RemoteQuestion): Promise<RemoteAnswer | null> {
    const { instances } = this.options;
    const text = await instances?.ask(topicOf(sessionId), JSON.stringify(question), ANSWER_WITHIN_MS);
    return text ? (JSON.parse(text) as RemoteAnswer) : null;
  }

  /** Answers other instances about a session that is held here, until the subscription ends; null when nobody asks. */
  serve(sessionId: string): Subscription | null {
    const answer = async (text: string) =>
      JSON.stringify(await this.#answer(sessionId, JSON.parse(text) as RemoteQuestion));
    return this.options.instances?.serve(topicOf(sessionId), answer) ?? null;
  }

  async #answer(sessionId: string, question: RemoteQuestion): Promise<RemoteAnswer> {
    try {
      if ("stop" in question) return { done: this.options.stop(question.userId, sessionId) };
      await this.options.send(question.userId, sessionId, question.event);
      return { done: true };
    } catch (error) {
      const { kind, message } = toServiceError(error);
      return { error: { kind, message } };
    }
  }
}
