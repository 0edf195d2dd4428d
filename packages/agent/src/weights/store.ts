/** The node's weights on disk. One folder per source; deployments of the same source share one download. */
import { mkdir, readdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { safeFolderName } from "../folder-name.ts";
import { downloadFile } from "./download.ts";
import { type HubAccess, type HubSource, listHubFiles, safeRelativePath, type WeightsFile } from "./hub.ts";

export interface FilesSource {
  kind: "files";
  files: { url: string; sha256: string | null; name: string }[];
}

export type WeightsSource = HubSource | FilesSource;

export interface WeightsProgress {
  doneBytes: number;
  /** Null until every file's size is known. */
  totalBytes: number | null;
}

interface Job {
  promise: Promise<string>;
  abort: AbortController;
  listeners: Set<(progress: WeightsProgress) => void>;
  last: WeightsProgress | null;
}

export interface InspectedFile {
  name: string;
  sizeBytes: number;
  /** Its beginning, as far as it is there. */
  head(bytesMax: number): Promise<Uint8Array>;
}

/** Says that a folder is complete, and with what; written last. */
const MANIFEST = ".complete.json";
const Manifest = z.object({ files: z.array(z.string()).min(1) });

/** Name on disk for a plain URL. */
export function fileNameOf(url: string): string {
  const name = basename(decodeURIComponent(new URL(url).pathname));
  return safeRelativePath(name) ?? "weights";
}

export class WeightsStore {
  readonly #dir: string;
  readonly #access: HubAccess;
  readonly #jobs = new Map<string, Job>();

  constructor(options: { dir: string; access: HubAccess }) {
    this.#dir = options.dir;
    this.#access = options.access;
  }

  /** The path to give to an engine: a folder, or the file where the source is one file or a GGUF. */
  async obtain(
    source: WeightsSource,
    wish: { signal: AbortSignal; onProgress: (progress: WeightsProgress) => void },
  ): Promise<string> {
    const { signal, onProgress } = wish;
    signal.throwIfAborted();
    const key = JSON.stringify(source);
    const running = this.#jobs.get(key);
    const job = running && !running.abort.signal.aborted ? running : this.#start(key, source, running);
    const listener = (progress: WeightsProgress) => onProgress(progress);
    job.listeners.add(listener);
    if (job.last) onProgress(job.last);
    const left = Promise.withResolvers<never>();
    const leave = () => {
      job.listeners.delete(listener);
      if (job.listeners.size === 0) job.abort.abort(signal.reason);
      left.reject(signal.reason);
    };
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await Promise.race([job.promise, left.promise]);
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  /** `abandoned` is an aborted job for the same source; it must let go of the files first. */
  #start(key: string, source: WeightsSource, abandoned: Job | undefined): Job {
    const abort = new AbortController();
    const job: Job = { abort, listeners: new Set(), last: null, promise: Promise.resolve("") };
    const freed = abandoned
      ? abandoned.promise.then(() => undefined).catch(() => undefined)
      : Promise.resolve();
    job.promise = freed
      .then(() => this.#fetch(source, job))
      .finally(() => {
        if (this.#jobs.get(key) === job) this.#jobs.delete(key);
      });
    // Everyone who asked may have left by the time it fails.
    job.promise.catch(() => undefined);
    this.#jobs.set(key, job);
    return job;
  }

  #dirOf(source: WeightsSource): string {
    const label = source.kind === "hub" ? `${source.repo}@${source.revision}` : source.files[0]!.name;
    return join(this.#dir, safeFolderName(label, JSON.stringify(source)));
  }

  /** The files of a source, before or after they were downloaded. */
  async inspect(source: WeightsSource, signal: AbortSignal): Promise<InspectedFile[]> {
    const dir = this.#dirOf(source);
    const present = await readManifest(dir);
    if (present) return inspectPath(dir, present);
    const files = await this.#list(source, signal);
    return Promise.all(files.map((file) => this.#inspectRemote(file, signal)));
  }

  async #inspectRemote({ name, url, sizeBytes }: WeightsFile, signal: AbortSignal): Promise<InspectedFile> {
    const { mirror, token } = this.#access;
    const headers: Record<string, string> =
      token && url.startsWith(`${mirror}/`) ? { authorization: `Bearer ${token}` } : {};
    const ask = (init: { method?: string; range?: string }) =>
      fetch(url, {
        method: init.method,
        signal,
        headers: init.range === undefined ? headers : { ...headers, range: init.range },
      });
    const lengthOf = async () => {
      const answer = await ask({ method: "HEAD" });
      return answer.ok ? Number(answer.headers.get("content-length") ?? 0) : 0;
    };
    return {
      name,
      sizeBytes: sizeBytes ?? (await lengthOf()),
      async head(bytesMax) {
        const answer = await ask({ range: `bytes=0-${bytesMax - 1}` });
        return answer.ok ? firstBytes(answer, bytesMax) : new Uint8Array(0);
      },
    };
  }

  async #fetch(source: WeightsSource, job: Job): Promise<string> {
    const dir = this.#dirOf(source);
    const present = await readManifest(dir);
    if (present) return pathFor(source, dir, present);
    await mkdir(dir, { recursive: true });
    const files = await this.#list(source, job.abort.signal);
    await this.#download(dir, files, job);
    const names = files.map(({ name }) => name);
    await writeFile(join(dir, `${MANIFEST}.new`), JSON.stringify({ files: names }, null, 2));
    await rename(join(dir, `${MANIFEST}.new`), join(dir, MANIFEST));
    return pathFor(source, dir, names);
  }

  async #list(source: WeightsSource, signal: AbortSignal): Promise<WeightsFile[]> {
    if (source.kind === "hub") return listHubFiles(source, this.#access, signal);
    return source.files.map((file) => ({ ...file, sizeBytes: null }));
  }

  async #download(dir: string, files: WeightsFile[], job: Job): Promise<void> {
    const done = new Map<string, number>();
    const totals = new Map<string, number | null>(files.map((file) => [file.name, file.sizeBytes]));
    const report = () => {
      const sizes = [...totals.values()];
      const known = sizes.every((size) => size !== null);
      job.last = {
        doneBytes: sum(done.values()),
        totalBytes: known ? sum(sizes as number[]) : null,
      };
      for (const listener of job.listeners) listener(job.last);
    };
    report();
    for (const file of files) {
      const destination = join(dir, file.name);
      const wholeBytes = await sizeOf(destination);
      if (wholeBytes !== null && (file.sizeBytes === null || file.sizeBytes === wholeBytes)) {
        done.set(file.name, wholeBytes);
        totals.set(file.name, wholeBytes);
        report();
        continue;
      }
      await downloadFile({
        ...file,
        destination,
        token: file.url.startsWith(`${this.#access.mirror}/`) ? this.#access.token : null,
        signal: job.abort.signal,
        onBytes: (doneBytes, totalBytes) => {
          done.set(file.name, doneBytes);
          if (totalBytes !== null) totals.set(file.name, totalBytes);
          report();
        },
      });
    }
  }
}

/** Files on this machine; without names, whatever lies at the path. */
export async function inspectPath(path: string, names?: string[]): Promise<InspectedFile[]> {
  const isFolder = (await stat(path)).isDirectory();
  const found = names ?? (isFolder ? await readdir(path) : [basename(path)]);
  const dir = isFolder ? path : dirname(path);
  return Promise.all(
    found.map(async (name) => ({
      name,
      sizeBytes: (await sizeOf(join(dir, name))) ?? 0,
      head: (bytesMax: number) => Bun.file(join(dir, name)).slice(0, bytesMax).bytes(),
    })),
  );
}

/** A server that does not know ranges sends the whole file, of which the rest is not read. */
async function firstBytes(answer: Response, bytesMax: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of answer.body ?? []) {
    pieces.push(piece);
    bytes += piece.byteLength;
    if (bytes >= bytesMax) break;
  }
  return Buffer.concat(pieces).subarray(0, bytesMax);
}

const sum = (values: Iterable<number>) => [...values].reduce((total, value) => total + value, 0);

function sizeOf(path: string): Promise<number | null> {
  return stat(path).then(
    (info) => info.size,
    () => null,
  );
}

/** The files of a complete folder; null when it is not complete (any more). */
async function readManifest(dir: string): Promise<string[] | null> {
  try {
    const { files } = Manifest.parse(JSON.parse(await readFile(join(dir, MANIFEST), "utf8")));
    const sizes = await Promise.all(files.map((name) => sizeOf(join(dir, name))));
    return sizes.every((size) => size !== null) ? files : null;
  } catch {
    return null;
  }
}

function pathFor(source: WeightsSource, dir: string, names: string[]): string {
  const oneFile = source.kind === "files" ? names.length === 1 : source.format === "gguf";
  return oneFile ? join(dir, names[0]!) : dir;
}
