import { withDeadline } from "../../kernel/clock.ts";
import { CLIP_FIELDS } from "../../kernel/known-fields.ts";
import {
  type Backend,
  type BackendConfig,
  type BackendDeps,
  BackendError,
  type BackendKind,
  type VideoPoll,
  type VideoRequest,
} from "../contract.ts";
import { addressField, KEY_FIELD, modelsField, NAME_FIELD } from "../shared/form.ts";
import { reachability } from "../shared/probe.ts";
import { transportError, wholeBody } from "../shared/upstream-http.ts";
import {
  type ApiCall,
  type ApiReply,
  asObject,
  dashscope,
  isTransientStatus,
  kling,
  minimaxV1,
  minimaxV2,
  type Refusal,
  seedance,
  type VideoDialect,
  videos,
} from "./dialects.ts";

const BY_NAME: Readonly<Record<string, VideoDialect>> = {
  minimax: minimaxV1,
  "minimax-v1": minimaxV1,
  "minimax-v2": minimaxV2,
  dashscope,
  kling,
  seedance,
  videos,
};

const BY_HOST: readonly [RegExp, VideoDialect][] = [
  [/(^|\.)(dashscope(-intl)?|[\w-]+\.maas)\.aliyuncs\.com$/, dashscope],
  [/(^|\.)klingai\.com$/, kling],
  [/(^|\.)volces\.com$/, seedance],
];

/** By the type that the operator gave, else by the host, else MiniMax, whose H3 models use the second version. */
export function chooseDialect(
  { dialect: name = "", url }: { dialect?: string; url: string },
  model = "",
): VideoDialect {
  const host = new URL(url).hostname;
  const dialect = BY_NAME[name] ?? BY_HOST.find(([pattern]) => pattern.test(host))?.[1] ?? minimaxV1;
  return dialect === minimaxV1 && name !== "minimax-v1" && /^minimax-h\d/i.test(model) ? minimaxV2 : dialect;
}

const CALL_TIMEOUT_MS = 60_000;
const REPLY_BYTES_MAX = 1024 * 1024;
const CLIP_BEGINS = { delayMs: CALL_TIMEOUT_MS, late: "the clip did not come in time" };
/** The whole clip, a range, and a range outside the clip. */
const CLIP_STATUSES = [200, 206, 416];
/** Our task id begins with the dialect's name, so a task keeps its dialect if the backend is registered again. */
const SEPARATOR = "|";
const NO_TASK: Refusal = { error: "the upstream named no task", transient: false };
const NO_LISTING: Refusal = { error: "the tasks cannot be listed just now", transient: true };
const NO_CLIP: Refusal = { error: "the clip cannot be had just now", transient: true };

/** A cloud video API: submit a task, poll it, resolve its file. The dialect builds the requests; this sends them. */
export function createCloudVideo(
  config: BackendConfig,
  { fetch, clock }: Pick<BackendDeps, "fetch" | "clock">,
): Backend {
  const base = config.url.replace(/\/+$/, "");

  async function call(dialect: VideoDialect, request: ApiCall, signal: AbortSignal): Promise<ApiReply> {
    const inTime = AbortSignal.any([signal, AbortSignal.timeout(CALL_TIMEOUT_MS)]);
    const response = await send(dialect, request, inTime);
    return { status: response.status, body: await readReply(response) };
  }

  async function send(dialect: VideoDialect, request: ApiCall, signal: AbortSignal): Promise<Response> {
    const { method, path, body, fileField } = request;
    const headers: Record<string, string> = { accept: "application/json", ...request.headers };
    if (body && !fileField) headers["content-type"] = "application/json";
    if (config.apiKey !== null) {
      const nowSeconds = Math.floor(clock.now() / 1000);
      headers.authorization =
        (await dialect.authorization?.(config.apiKey, nowSeconds)) ?? `Bearer ${config.apiKey}`;
    }
    const sent = body && (fileField ? formOf(body, fileField) : JSON.stringify(body));
    try {
      return await fetch(base + path, { method, headers, body: sent, signal, redirect: "manual" });
    } catch (error) {
      const cause = transportError(error, signal);
      if (!(cause instanceof BackendError)) throw cause;
      throw new BackendError(cause.kind, `the video API could not be reached: ${cause.detail}`);
    }
  }

  const refused = (refusal: Refusal, status: number): never => {
    throw new BackendError("upstream", refusal.error, statusOf(refusal, status));
  };

  async function poll(taskId: string, signal: AbortSignal): Promise<VideoPoll> {
    const { dialect, upstreamId } = splitTask(config, taskId);
    const reply = await call(dialect, dialect.poll(upstreamId), signal);
    const reading = dialect.readPoll(asObject(reply.body));
    const refusal = dialect.refusal(reply);
    if (refusal && reading.state !== "failed") return refused(refusal, reply.status);
    if (reading.state !== "file") return reading;
    const fileReply = await call(dialect, dialect.file!(reading.fileId), signal);
    const fileRefusal = dialect.refusal(fileReply);
    if (fileRefusal) return refused(fileRefusal, fileReply.status);
    const file = dialect.readFile!(asObject(fileReply.body));
    if (file.state !== "succeeded") return file;
    const { width, height } = reading;
    return { ...file, result: { ...file.result, ...(width && { width }), ...(height && { height }) } };
  }

  return {
    config,
    video: {
      asked(request) {
        const dialect = chooseDialect(config, request.model);
        // The price does not depend on an image's bytes.
        const images = request.images.map((image) => ({ ...image, dataBase64: "" }));
        const { body = {} } = dialect.submit({ ...request, images });
        const members = { body, implied: dialect.implied?.(request) };
        const known = [...knownTo(dialect), ...(config.fields ?? [])];
        return { members, known, defaultSeconds: dialect.defaultSeconds, unsent: unsentOf(dialect, request) };
      },
      async submit(request: VideoRequest, signal) {
        const dialect = chooseDialect(config, request.model);
        const submission = dialect.submit(request);
        const reply = await call(dialect, submission, signal);
        const refusal = dialect.refusal(reply);
        // With a task id the task exists, even if the submission timed out.
        const mayExist = !refusal || refusal.unclear;
        const id = mayExist ? dialect.taskIdIn(asObject(reply.body), submission) : null;
        return id ? `${dialect.name}${SEPARATOR}${id}` : refused(refusal ?? NO_TASK, reply.status);
      },
      async isServed(signal) {
        const dialect = chooseDialect(config);
        if (!dialect.listing) return true;
        const { status } = await call(dialect, dialect.listing, signal);
        return isTransientStatus(status) ? refused(NO_LISTING, status) : status < 400;
      },
      poll,
      async content(taskId, range, signal) {
        const { dialect, upstreamId } = splitTask(config, taskId);
        const request = dialect.content?.(upstreamId);
        if (!request) return null;
        const headers = { ...request.headers, ...(range && { range }) };
        // The deadline is for the first byte only: a download may take minutes.
        const answer = await withDeadline(clock, CLIP_BEGINS, (soon) =>
          send(dialect, { ...request, headers }, AbortSignal.any([signal, soon])),
        );
        if (CLIP_STATUSES.includes(answer.status)) return answer;
        void answer.body?.cancel();
        return isTransientStatus(answer.status) ? refused(NO_CLIP, answer.status) : null;
      },
      async cancel(taskId, signal) {
        const { dialect, upstreamId } = splitTask(config, taskId);
        if (!dialect.cancel) return;
        const { status } = await call(dialect, dialect.cancel(upstreamId), signal);
        // Other refusals mean that there is nothing left to cancel.
        if (isTransientStatus(status))
          refused({ error: "the task was not cancelled", transient: true }, status);
      },
    },
    probe: (signal) => reachability(fetch, base, signal),
    close() {},
  };
}

const knownTo = ({ extra }: VideoDialect): string[] => [...CLIP_FIELDS, ...extra];

/** The fields of a request that the dialect does not send: it is given marked values to find out. */
function unsentOf(dialect: VideoDialect, request: VideoRequest): string[] {
  const { negativePrompt, images } = request;
  if (!negativePrompt && images.length === 0) return [];
  const mark = (field: string) => `(${field})`;
  const marked = {
    ...request,
    extra: {},
    ...(negativePrompt && { negativePrompt: mark("negative_prompt") }),
    images: images.map((image, i) => ({ ...image, dataBase64: mark(`images.${i}`) })),
  };
  const sent = JSON.stringify(dialect.submit(marked).body);
  const fields = [...(negativePrompt ? ["negative_prompt"] : []), ...images.map((_, i) => `images.${i}`)];
  return fields.filter((field) => !sent.includes(mark(field)));
}

function statusOf({ transient, unclear }: Refusal, status: number): number {
  if (unclear) return 504;
  if (status >= 400) return status;
  return transient ? 500 : 400;
}

function splitTask(config: BackendConfig, taskId: string): { dialect: VideoDialect; upstreamId: string } {
  const separator = taskId.indexOf(SEPARATOR);
  return {
    dialect: chooseDialect({ dialect: taskId.slice(0, separator), url: config.url }),
    upstreamId: taskId.slice(separator + 1),
  };
}

function formOf(body: Record<string, unknown>, fileField: string): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(body)) {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    const [, type, base64] = (name === fileField && /^data:([^;]*);base64,(.*)$/s.exec(text)) || [];
    form.set(name, base64 === undefined ? text : new File([Buffer.from(base64, "base64")], name, { type }));
  }
  return form;
}

/** JSON, or null for anything else. Large integers (file ids) stay text, so that no digit is lost. */
async function readReply(response: Response): Promise<unknown> {
  const whole = await wholeBody(response, REPLY_BYTES_MAX);
  if (!whole) throw new BackendError("upstream", "the answer is larger than 1 MiB", 502);
  try {
    return JSON.parse(whole.toString(), (_, value, context?: { source?: string }) =>
      typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
        ? context?.source
        : value,
    );
  } catch {
    return null;
  }
}

export const cloudVideo: BackendKind = {
  kind: "cloud-video",
  label: "Cloud video",
  speaks: "a vendor's task API; without a vendor's name the dialect follows from the host",
  types: [
    ...["MiniMax", "DashScope", "Kling", "Seedance"].map((vendor) => {
      const name = vendor.toLowerCase();
      return { name, dialect: name, label: `${vendor} video` };
    }),
    { name: "videos", dialect: "videos", label: "Videos on own GPUs (vLLM-Omni, SGLang)" },
  ],
  schemes: ["http:", "https:"],
  capabilities: ["video"],
  modelSources: ["static"],
  known: Object.fromEntries(Object.values(BY_NAME).map((each) => [`${each.name}, clips`, knownTo(each)])),
  fields: [addressField("https://api.minimax.io"), NAME_FIELD, KEY_FIELD, modelsField({ listed: false })],
  create: createCloudVideo,
};
