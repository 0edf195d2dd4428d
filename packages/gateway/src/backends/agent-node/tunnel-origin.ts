import type { AnswerReader, TunnelStream } from "@model-gateway/protocol/tunnel/client.ts";
import { type HeadMeta, TunnelError } from "@model-gateway/protocol/tunnel/frames.ts";
import {
  ANSWER_LINGER_MS,
  type Answer,
  type Carrier,
  IncomingAnswer,
  type Origin,
  type OriginOptions,
} from "@model-gateway/wire/client";
import type { Clock } from "../../kernel/clock.ts";
import { BackendError, type BackendErrorKind, type NodeTunnel } from "../contract.ts";

/** An engine behind a node's tunnel. Like `HttpOrigin`, it uses no web streams. */
export class TunnelOrigin implements Origin {
  constructor(readonly options: OriginOptions & { tunnel: NodeTunnel; modelId: string; clock: Clock }) {}

  async post(...[path, body, abort, headers]: Parameters<Origin["post"]>): Promise<Answer> {
    const { tunnel, modelId, clock } = this.options;
    const answer = new TunnelledAnswer(this.options);
    const request = {
      modelId,
      method: "POST" as const,
      path,
      headers: Object.entries({ ...this.options.headers, ...headers }),
      body: typeof body === "string" ? Buffer.from(body) : body,
    };
    try {
      answer.carriedBy(new TunnelCarrier(tunnel.open(request, answer), clock));
    } catch (error) {
      throw tunnelFailure(error);
    }
    abort.whenAborted((reason) => answer.failed(reason));
    return answer.answered;
  }

  close(): void {}
}

class TunnelCarrier implements Carrier {
  readonly hasSent = true;
  #cancelLinger: () => void = () => {};

  constructor(
    readonly stream: TunnelStream,
    readonly clock: Clock,
  ) {}

  pause(): void {
    this.stream.pause();
  }
  resume(): void {
    this.stream.resume();
  }
  linger(): void {
    this.stream.resume();
    this.#cancelLinger = this.clock.after(ANSWER_LINGER_MS, () => this.stream.cancel());
  }
  done(): void {
    this.#cancelLinger();
    this.stream.cancel();
  }
}

class TunnelledAnswer extends IncomingAnswer implements AnswerReader {
  head({ status, headers }: HeadMeta): void {
    const named = (name: string) => headers.find(([each]) => each === name)?.[1] ?? null;
    this.headed({
      status,
      statusText: "",
      contentType: named("content-type") ?? "",
      retryAfter: named("retry-after"),
      text: ["", ...headers.map(([name, value]) => `${name}: ${value}`)].join("\n"),
      // A node's content length is not trusted.
      contentLength: null,
    });
  }

  override piece(bytes: Uint8Array): void {
    super.piece(bytes as Buffer);
    this.flush();
  }

  override end(): void {
    super.end();
    this.over(true);
  }

  override failed(error: unknown): void {
    super.failed(tunnelFailure(error));
  }
}

const KINDS: Partial<Record<string, BackendErrorKind>> = { too_many_streams: "busy", tunnel_closed: "gone" };

/** A node that is full or has left is not a failure of the model. */
export function tunnelFailure(error: unknown): unknown {
  if (!(error instanceof TunnelError)) return error;
  return new BackendError(KINDS[error.code] ?? (error.neverStarted ? "connect" : "transport"), error.message);
}
