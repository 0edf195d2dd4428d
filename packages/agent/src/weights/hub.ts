/** Model repositories on a hub (or a mirror of one): what files there are, and which of them an engine needs. */
import { posix } from "node:path";
import { z } from "zod";
import { describeError } from "../errors.ts";
import { shownUrl } from "./format.ts";
import { BusyError, isBusy, pauseAfter } from "./retry.ts";

const LIST_TIMEOUT_MS = 30_000;
const LIST_TRIES_MAX = 4;
const LIST_BYTES_MAX = 16 * 1024 * 1024;
const PREFERRED_VARIANT = "Q4_K_M";

export interface WeightsFile {
  /** Path inside the weights folder, with forward slashes. */
  name: string;
  url: string;
  sha256: string | null;
  sizeBytes: number | null;
}

export interface HubSource {
  kind: "hub";
  repo: string;
  revision: string;
  /** Chooses among GGUF files, such as Q4_K_M. */
  variant: string | null;
  include: string[] | null;
  format: "snapshot" | "gguf";
}

export interface HubAccess {
  mirror: string;
  token: string | null;
  retryDelayMs?: number;
}

const HubListing = z.object({
  sha: z
    .string()
    .regex(/^[A-Za-z0-9._-]+$/)
    .optional(),
  siblings: z
    .array(
      z.object({
        rfilename: z.string(),
        size: z.number().nullish(),
        lfs: z.object({ sha256: z.string().optional(), size: z.number().optional() }).nullish(),
      }),
    )
    .max(20_000),
});

/** `owner/name` or `owner/name:variant`; null for anything else. */
export function parseHubId(id: string): { repo: string; variant: string | null } | null {
  const match = /^([A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*)(?::([\w.-]+))?$/.exec(id);
  return match ? { repo: match[1]!, variant: match[2] ?? null } : null;
}

/** A relative path that stays inside its folder; null when it would not. */
export function safeRelativePath(name: string): string | null {
  if (name === "" || name.includes("\\") || name.includes("\0") || posix.isAbsolute(name)) return null;
  const bad = name.split("/").some((part) => part === "" || part === "." || part === "..");
  return bad ? null : name;
}

/** The files that an engine needs, with pinned addresses. Throws an error that says what to change. */
export async function listHubFiles(
  source: HubSource,
  access: HubAccess,
  signal: AbortSignal,
): Promise<WeightsFile[]> {
  const { repo, revision } = source;
  const hub = shownUrl(access.mirror);
  const response = await askHub(source, access, signal);
  const text = await response.text();
  if (text.length > LIST_BYTES_MAX) throw new Error(`the file list of ${repo} is too large`);
  const listing = HubListing.safeParse(parseJson(text));
  if (!listing.success) throw new Error(`the file list of ${repo} from ${hub} is not understood`);
  const pinned = listing.data.sha ?? revision;
  const files = listing.data.siblings.flatMap(({ rfilename, size, lfs }) => {
    const name = safeRelativePath(rfilename);
    if (!name) return [];
    const encoded = name.split("/").map(encodeURIComponent).join("/");
    return {
      name,
      url: `${access.mirror}/${repo}/resolve/${pinned}/${encoded}`,
      sha256: lfs?.sha256?.toLowerCase() ?? null,
      sizeBytes: lfs?.size ?? size ?? null,
    };
  });
  return chooseFiles(files, source);
}

/** The hub's answer about the repository. A hub that is busy or out of reach is asked again a few times. */
async function askHub(source: HubSource, access: HubAccess, signal: AbortSignal): Promise<Response> {
  const { repo, revision } = source;
  const hub = shownUrl(access.mirror);
  const path = revision === "main" ? `/api/models/${repo}` : `/api/models/${repo}/revision/${revision}`;
  for (let failures = 1; ; failures++) {
    let trouble: Error;
    try {
      const response = await fetch(`${access.mirror}${path}?blobs=true`, {
        headers: access.token ? { authorization: `Bearer ${access.token}` } : {},
        signal: AbortSignal.any([signal, AbortSignal.timeout(LIST_TIMEOUT_MS)]),
      });
      if (response.ok) return response;
      await response.body?.cancel();
      trouble = refusal(response, `${repo} at ${revision}`, hub);
    } catch (error) {
      signal.throwIfAborted();
      trouble = new BusyError(`the hub ${hub} cannot be reached: ${describeError(error)}`);
    }
    if (!(trouble instanceof BusyError) || failures >= LIST_TRIES_MAX) throw trouble;
    await pauseAfter(trouble, { failures, signal, retryDelayMs: access.retryDelayMs });
  }
}

function refusal(response: Response, model: string, hub: string): Error {
  const { status } = response;
  if (status === 401 || status === 403 || status === 404)
    return new Error(
      `the hub ${hub} shows no model ${model} (HTTP ${status}): check the id, and set an access token if the model is gated or private`,
    );
  const message = `the hub ${hub} answered HTTP ${status} for ${model}`;
  return isBusy(response) ? new BusyError(message, response) : new Error(message);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Formats that repeat the weights beside safetensors, and what is no part of a model. */
const REPEATED_WEIGHTS =
  /\.(bin|pt|pth|ckpt|h5|msgpack|onnx|gguf|tflite|ot)$|^(original|onnx|openvino|metal)\//i;
const NO_PART_OF_A_MODEL = /(^|\/)\.git|\.(png|jpe?g|gif|webp|svg|mp4|pdf|md)$|^LICENSE/i;

export function chooseFiles(files: WeightsFile[], source: HubSource): WeightsFile[] {
  const { repo, include } = source;
  if (include) {
    const globs = include.map((pattern) => new Bun.Glob(pattern));
    const chosen = files.filter(({ name }) => globs.some((glob) => glob.match(name)));
    if (chosen.length === 0)
      throw new Error(`no file of ${repo} matches include = ${JSON.stringify(include)}`);
    return chosen;
  }
  if (source.format === "gguf") return chooseGguf(files, source);
  const useful = files.filter(({ name }) => !NO_PART_OF_A_MODEL.test(name));
  const hasSafetensors = useful.some(({ name }) => name.endsWith(".safetensors"));
  // Mistral's repositories hold the weights twice, in the hub's layout and in their maker's.
  const inHubLayout = useful.some(({ name }) => /^model.*\.safetensors$/.test(name));
  const isRepeated = (name: string) =>
    REPEATED_WEIGHTS.test(name) || (inHubLayout && /^consolidated.*\.safetensors$/.test(name));
  const chosen = hasSafetensors ? useful.filter(({ name }) => !isRepeated(name)) : useful;
  if (chosen.length === 0) throw new Error(`${repo} holds no files to serve`);
  return chosen;
}

/** The parts of one split GGUF belong together: their names differ only in -00001-of-00003. */
function chooseGguf(files: WeightsFile[], { repo, variant }: HubSource): WeightsFile[] {
  const groups = new Map<string, WeightsFile[]>();
  for (const file of files) {
    if (!file.name.endsWith(".gguf") || /(^|\/)(mmproj|imatrix)/i.test(file.name)) continue;
    const base = file.name.replace(/-\d{5}-of-\d{5}(?=\.gguf$)/, "");
    groups.set(base, [...(groups.get(base) ?? []), file]);
  }
  const matching = (wanted: string) =>
    [...groups.keys()].filter((base) => base.toLowerCase().includes(wanted.toLowerCase()));
  const names = variant ? matching(variant) : [...groups.keys()];
  const chosen = names.length === 1 ? names[0] : matching(variant ?? PREFERRED_VARIANT)[0];
  if (chosen !== undefined) return groups.get(chosen)!.sort((a, b) => (a.name < b.name ? -1 : 1));
  if (groups.size === 0)
    throw new Error(`${repo} holds no GGUF file: choose a GGUF repository or another engine`);
  const some = [...groups.keys()].slice(0, 12).join(", ");
  throw new Error(
    `which GGUF of ${repo}? Append :variant to the model id, or set include. There are: ${some}`,
  );
}
