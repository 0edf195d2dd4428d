import type { VideoPoll, VideoRequest } from "../contract.ts";

export interface ApiCall {
  method: "GET" | "POST" | "DELETE";
  path: string;
  headers?: Record<string, string>;
  body?: Record<string, unknown>;
  /** The body is sent as a form; this field of it is a data URL, and sent as a file. */
  fileField?: string;
}

export interface ApiReply {
  status: number;
  body: unknown;
}

/** `transient`: worth a retry; otherwise the task has failed. `unclear`: the request may have taken effect anyway. */
export type Refusal = { error: string; transient: boolean; unclear?: boolean };
/** `file`: the task is done, but its address has to be asked for separately. */
export type PollReading = VideoPoll | { state: "file"; fileId: string; width?: number; height?: number };

/** How one vendor words a video task. Pure: only the backend talks to the network. */
export interface VideoDialect {
  name: string;
  /** Seconds of a video when the request names no duration. */
  defaultSeconds: number;
  /** Names that `extra` may have, besides `CLIP_FIELDS`. */
  extra: readonly string[];
  submit(request: VideoRequest): ApiCall;
  /** What the vendor reads from a submission besides the fields that set length and size. */
  implied?(request: VideoRequest): Json;
  /** Null: the call was taken. */
  refusal(reply: ApiReply): Refusal | null;
  taskIdIn(body: Json, call: ApiCall): string | null;
  poll(taskId: string): ApiCall;
  /** Also read where the poll was refused: a task that has failed may be told that way. */
  readPoll(body: Json): PollReading;
  file?(fileId: string): ApiCall;
  readFile?(body: Json): VideoPoll;
  /** Where clips stay with the server. */
  content?(taskId: string): ApiCall;
  /** What a server that has this API answers well, and for nothing. */
  listing?: ApiCall;
  cancel?(taskId: string): ApiCall;
  /** The value of the Authorization header; a bearer of the key unless the vendor wants something else. */
  authorization?(apiKey: string, nowSeconds: number): Promise<string>;
}

type Json = Record<string, unknown>;

export const asObject = (value: unknown): Json =>
  typeof value === "object" && value !== null ? (value as Json) : {};
/** Ids may come as numbers; they are only ever passed back as text. */
export const asText = (value: unknown): string | null =>
  typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : null;
export const asNumber = (value: unknown): number | undefined => {
  const number = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
};

/** Refused by its status, in the first of these words that is there. */
export function refusalByStatus({ status }: ApiReply, ...words: readonly unknown[]): Refusal | null {
  if (status < 400) return null;
  const error = words.map(asText).find((text) => text !== null) ?? `status ${status}`;
  return { error, transient: isTransientStatus(status) };
}

export const isTransientStatus = (status: number): boolean =>
  status === 429 || status === 408 || status >= 500;

export const dataUrl = ({ mimeType, dataBase64 }: VideoRequest["images"][number]): string =>
  `data:${mimeType};base64,${dataBase64}`;

/** The short side in the vendor's wording, e.g. `768P`; undefined when the request names no size. */
export function resolutionName({ width, height }: VideoRequest, suffix: "P" | "p"): string | undefined {
  const side = Math.min(width ?? height ?? 0, height ?? width ?? 0);
  return side > 0 ? `${side}${suffix}` : undefined;
}

const greatestDivisor = (a: number, b: number): number => (b === 0 ? a : greatestDivisor(b, a % b));

/** `16:9` for 1280 x 720. */
export function ratioName({ width, height }: VideoRequest): string | undefined {
  if (!width || !height) return undefined;
  const divisor = greatestDivisor(width, height);
  return `${width / divisor}:${height / divisor}`;
}

/** Text plus images as content parts, the way MiniMax v2 and Seedance take them. */
export function contentParts(request: VideoRequest): Json[] {
  const roles = ["first_frame", "last_frame"];
  const images = request.images.slice(0, roles.length).map((image, i) => ({
    type: "image_url",
    image_url: { url: dataUrl(image) },
    role: roles[i],
  }));
  return [{ type: "text", text: request.prompt }, ...images];
}

/** The operator's `extra` goes in first, so it can add fields but not replace what the request says. */
export function withExtra(extra: Json, fields: Json): Json {
  const set = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return { ...extra, ...set };
}

/** The result of a finished task, or its failure when the upstream names no file. */
export function succeeded(
  url: unknown,
  facts: { width?: number; height?: number; durationSeconds?: number; expiresAt?: string } = {},
  made: Json = {},
): VideoPoll {
  const address = asText(url);
  if (!address || !/^https?:\/\//.test(address))
    return { state: "failed", error: "the upstream finished without a file" };
  return {
    state: "succeeded",
    result: {
      url: address,
      mime_type: "video/mp4",
      ...(facts.width && { width: facts.width }),
      ...(facts.height && { height: facts.height }),
      ...(facts.durationSeconds && { duration_seconds: facts.durationSeconds }),
      ...(facts.expiresAt && { expires_at: facts.expiresAt }),
    },
    made: withExtra({}, made),
  };
}

/** A status of the vendors that say queued / running / succeeded / failed / cancelled / expired. */
export function readTaskStatus(task: Json, finished: () => VideoPoll): VideoPoll {
  const status = String(task.status ?? "").toLowerCase();
  const { message, code } = asObject(task.error);
  if (status === "succeeded") return finished();
  if (status === "failed" || status === "cancelled" || status === "expired") {
    return { state: "failed", error: asText(message) ?? asText(code) ?? `the upstream reports ${status}` };
  }
  // An unknown status does not end the job: the overall deadline does.
  return { state: "pending" };
}
