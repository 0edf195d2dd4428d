import { ANSWER_LINGER_MS, answerTooLarge } from "@model-gateway/wire/client";
import { type Answer, BackendError, type Flow, type PieceReader } from "../contract.ts";
import { wholeBody } from "./upstream-http.ts";

export const tooLarge = (bytesMax: number) => new BackendError("transport", answerTooLarge(bytesMax));

export class ResponseAnswer implements Answer, Flow {
  #reader: PieceReader | null = null;
  #body: ReadableStreamDefaultReader<Uint8Array> | null = null;
  #isPumping = false;
  /** Set while paused: lets the pump go on. */
  #go: (() => void) | null = null;
  #paused: Promise<void> | null = null;
  #lingering: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly response: Response,
    readonly signal: AbortSignal,
  ) {}

  get contentType(): string {
    return this.response.headers.get("content-type") ?? "";
  }

  headersLike(names: RegExp): Record<string, string> {
    return Object.fromEntries([...this.response.headers].filter(([name]) => names.test(name)));
  }

  async bytes(bytesMax: number): Promise<Buffer> {
    const { response } = this;
    const declared = Number(response.headers.get("content-length") ?? Number.NaN);
    try {
      if (declared <= bytesMax) return Buffer.from(await response.arrayBuffer());
      const whole = await wholeBody(response, bytesMax);
      if (!whole) throw tooLarge(bytesMax);
      return whole;
    } catch (error) {
      throw this.#reason(error);
    }
  }

  #reason(error: unknown): unknown {
    if (this.signal.aborted) return this.signal.reason;
    if (error instanceof BackendError) return error;
    return new BackendError("transport", `the upstream broke off its answer: ${(error as Error).message}`);
  }

  pipe(reader: PieceReader): Flow {
    this.#reader = reader;
    this.#body = (this.response.body ?? new Blob([]).stream()).getReader();
    return this;
  }

  pause(): void {
    this.#paused ??= new Promise((resolve) => {
      this.#go = resolve;
    });
  }

  resume(): void {
    this.#paused = null;
    this.#go?.();
    this.#go = null;
    if (this.#isPumping) return;
    this.#isPumping = true;
    void this.#pump();
  }

  async #pump(): Promise<void> {
    try {
      for (;;) {
        if (this.#paused) await this.#paused;
        const { done, value } = await this.#body!.read();
        if (done) {
          this.#reader?.end();
          return;
        }
        this.#reader?.piece(value);
        this.#reader?.flush();
      }
    } catch (error) {
      this.#reader?.failed(this.#reason(error));
    } finally {
      clearTimeout(this.#lingering);
    }
  }

  leave(): void {
    this.#reader = null;
    this.#lingering = setTimeout(() => this.cancel(), ANSWER_LINGER_MS);
    this.resume();
  }

  cancel(): void {
    this.#reader = null;
    void this.#body?.cancel().catch(() => {});
  }
}

export const jsonAnswer = (body: object, signal: AbortSignal): Answer =>
  new ResponseAnswer(Response.json(body), signal);
