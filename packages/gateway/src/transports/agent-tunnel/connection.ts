import { LEAVING_METHOD, RpcErrorCode, type RpcMessage } from "@model-gateway/protocol/agent.ts";
import { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import { SocketChannel } from "@model-gateway/protocol/tunnel/socket-channel.ts";
import type { ServerSocket } from "@model-gateway/wire/websocket";
import type { Clock } from "../../kernel/clock.ts";
import { ServiceError } from "../../kernel/errors.ts";

/** How long a node may take to accept an order; it reports the result later. */
const ANSWER_TIMEOUT_MS = 10_000;
const REQUESTS_WAITING_MAX = 256;
const REASON_BYTES_MAX = 120;
const DETAIL_CHARS_MAX = 500;

interface PendingOrder {
  resolve(result: unknown): void;
  reject(error: ServiceError): void;
  cancelTimeout(): void;
}

/** One node's WebSocket: orders as JSON-RPC requests, inference as tunnelled HTTP. */
export class AgentConnection {
  readonly #socket: ServerSocket<unknown>;
  readonly #clock: Clock;
  readonly #channel: SocketChannel;
  readonly tunnel: TunnelClient;
  readonly #waiting = new Map<number, PendingOrder>();
  #lastId = 0;
  #over = false;

  constructor({ socket, clock }: { socket: ServerSocket<unknown>; clock: Clock }) {
    this.#socket = socket;
    this.#clock = clock;
    this.#channel = new SocketChannel({
      send: (message) => this.#check(socket.sendBinary(message)),
      bufferedBytes: () => socket.getBufferedAmount(),
    });
    this.tunnel = new TunnelClient(this.#channel);
  }

  get over(): boolean {
    return this.#over;
  }

  request(method: string, params: Record<string, unknown>): Promise<unknown> {
    const refuse = (message: string) => Promise.reject(new ServiceError("app_error", message));
    if (this.#over) return refuse("The agent node is no longer connected; try again");
    if (this.#waiting.size >= REQUESTS_WAITING_MAX)
      return refuse("The agent node has too many unanswered orders; try again later");
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const cancelTimeout = this.#clock.after(ANSWER_TIMEOUT_MS, () => {
        this.#waiting.delete(id);
        reject(new ServiceError("app_error", "The agent node does not answer; see agents.status"));
      });
      this.#waiting.set(id, { resolve, reject, cancelTimeout });
      this.send({ jsonrpc: "2.0", id, method, params });
    });
  }

  leaving(): void {
    this.send({ jsonrpc: "2.0", method: LEAVING_METHOD, params: {} });
  }

  send(message: RpcMessage): void {
    if (!this.#over) this.#check(this.#socket.sendText(JSON.stringify(message)));
  }

  /** Handles the node's answer to an order, unless that has timed out. */
  answered({ id, result, error }: RpcMessage): void {
    const waiting = typeof id === "number" ? this.#waiting.get(id) : undefined;
    if (!waiting) return;
    this.#waiting.delete(id as number);
    waiting.cancelTimeout();
    if (!error) {
      waiting.resolve(result);
      return;
    }
    const kind = error.code === RpcErrorCode.invalidParams ? "invalid_params" : "app_error";
    const detail = error.message.slice(0, DETAIL_CHARS_MAX);
    waiting.reject(new ServiceError(kind, `The agent node refused: ${detail}`));
  }

  drained(): void {
    this.#channel.drained();
  }

  close(code: number, reason: string): void {
    if (this.#over) return;
    this.ended(reason);
    this.#socket.close(code, reason.slice(0, REASON_BYTES_MAX));
  }

  ended(reason: string): void {
    if (this.#over) return;
    this.#over = true;
    this.tunnel.close(`the connection to the node ended: ${reason}`);
    this.#channel.close();
    for (const { reject, cancelTimeout } of this.#waiting.values()) {
      cancelTimeout();
      reject(new ServiceError("app_error", "The agent node's connection ended; try again"));
    }
    this.#waiting.clear();
  }

  /** 0: the message was dropped, so the node would miss it. */
  #check(sentBytes: number): void {
    if (sentBytes === 0 && !this.#over) this.close(1013, "the node does not read what it is sent");
  }
}
