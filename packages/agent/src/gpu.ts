/** What the GPUs of this machine are doing, from `nvidia-smi`, `rocm-smi`, or what macOS says of an Apple GPU. */

import {
  GPU_HISTORY_MAX,
  GPUS_MAX,
  type GpuHistory,
  type GpuReport,
  NAME_CHARS_MAX,
} from "@model-gateway/protocol/agent.ts";
import { describeError } from "./errors.ts";
import type { Log } from "./log.ts";

const QUERY_FIELDS = [
  "index",
  "uuid",
  "name",
  "driver_version",
  "memory.total",
  "memory.used",
  "memory.free",
  "utilization.gpu",
  "temperature.gpu",
  "power.draw",
] as const;
type Field = (typeof QUERY_FIELDS)[number];

const QUERY_TIMEOUT_MS = 3_000;
/** An old reading replaces a failed one for this long; after that the node reports no GPUs. */
const READING_AGE_MAX_MS = 60_000;
const OUTPUT_CHARS_MAX = 64 * 1024;

/** `[N/A]`, `[Not Supported]`, `[Unknown Error]` and the like: the driver has no figure. */
function numberOrNull(text: string): number | null {
  const value = Number(text);
  return text === "" || !Number.isFinite(value) ? null : value;
}

/** A failing driver also reports impossible figures; the gateway would refuse the whole report because of one. */
function withinOrNull(text: string, max = Number.MAX_SAFE_INTEGER): number | null {
  const value = numberOrNull(text);
  return value !== null && value >= 0 && value <= max ? value : null;
}

const named = (text: string): string | null => (text.startsWith("[") ? null : text.slice(0, NAME_CHARS_MAX));

/** Parses the CSV of `--format=csv,noheader,nounits`. Lines that describe no GPU are left out. */
export function parseGpuCsv(csv: string): GpuReport[] {
  const byUuid = new Map<string, GpuReport>();
  for (const line of csv.split("\n")) {
    const cells = line.split(",").map((cell) => cell.trim());
    if (cells.length !== QUERY_FIELDS.length) continue;
    const cell = (field: Field) => cells[QUERY_FIELDS.indexOf(field)]!;
    const index = withinOrNull(cell("index"));
    if (index === null || !Number.isInteger(index)) continue;
    const uuid = named(cell("uuid"));
    byUuid.set(uuid ?? `index-${index}`, {
      index,
      uuid: uuid ?? undefined,
      name: named(cell("name")) ?? "unknown GPU",
      memory_total_mb: withinOrNull(cell("memory.total")),
      memory_used_mb: withinOrNull(cell("memory.used")),
      memory_free_mb: withinOrNull(cell("memory.free")),
      utilization: withinOrNull(cell("utilization.gpu"), 100),
      temperature_c: numberOrNull(cell("temperature.gpu")),
      power_w: numberOrNull(cell("power.draw")),
      driver_version: named(cell("driver_version")),
    });
  }
  return [...byUuid.values()].sort((a, b) => a.index - b.index).slice(0, GPUS_MAX);
}

const ROCM_QUERY = [
  ...["--showproductname", "--showuniqueid", "--showdriverversion", "--showmeminfo", "vram"],
  ...["--showuse", "--showtemp", "--showpower", "--json"],
];
const MB_BYTES = 1024 * 1024;

/** Parses the JSON of `rocm-smi`, whose names differ from version to version and from card to card. */
export function parseRocmJson(json: string): GpuReport[] {
  const { system, ...cards } = JSON.parse(json) as Record<string, Record<string, string>>;
  const reports = Object.entries(cards).flatMap(([card, said]): GpuReport[] => {
    const index = /^card(\d+)$/.exec(card)?.[1];
    if (index === undefined) return [];
    const figure = (...names: string[]) =>
      names.map((name) => withinOrNull(said[name] ?? "")).find((value) => value !== null) ?? null;
    const text = (...names: string[]) =>
      names
        .map((name) => said[name])
        .find((value) => value && value !== "N/A")
        ?.slice(0, NAME_CHARS_MAX);
    const mb = (name: string) => {
      const bytes = figure(name);
      return bytes === null ? null : Math.floor(bytes / MB_BYTES);
    };
    const total = mb("VRAM Total Memory (B)");
    const used = mb("VRAM Total Used Memory (B)");
    return [
      {
        index: Number(index),
        uuid: text("Unique ID"),
        name: text("Card Series", "Card series", "Device Name", "Card SKU") ?? "unknown GPU",
        memory_total_mb: total,
        memory_used_mb: used,
        memory_free_mb: total === null || used === null ? null : Math.max(0, total - used),
        utilization: withinOrNull(said["GPU use (%)"] ?? "", 100),
        temperature_c: figure("Temperature (Sensor edge) (C)", "Temperature (Sensor junction) (C)"),
        power_w: figure("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"),
        driver_version: system?.["Driver version"]?.slice(0, NAME_CHARS_MAX) ?? null,
      },
    ];
  });
  return reports.sort((a, b) => a.index - b.index).slice(0, GPUS_MAX);
}

/** Three tools that need no rights: the GPU, how much memory there is, and how much of it is free. */
const APPLE_QUERY =
  `ioreg -r -d 1 -w 0 -c IOAccelerator | grep -E '[+]-o |"(PerformanceStatistics|model)" ='; ` +
  "sysctl hw.memsize iogpu.wired_limit_mb; vm_stat";
/** Without a limit of the operator's, macOS lets the GPU have this much of the memory. */
const APPLE_SHARE = { small: 2 / 3, large: 3 / 4, largeFromMb: 36 * 1024 };

/** Parses what `APPLE_QUERY` prints. The memory is the machine's: what programs hold of it is not free for models. */
export function parseAppleText(text: string): GpuReport[] {
  const figure = (pattern: RegExp) => withinOrNull(pattern.exec(text)?.[1] ?? "");
  const totalBytes = figure(/^hw\.memsize: (\d+)$/m);
  const machineMb = totalBytes === null ? null : Math.floor(totalBytes / MB_BYTES);
  const { small, large, largeFromMb } = APPLE_SHARE;
  const limitMb =
    figure(/^iogpu\.wired_limit_mb: (\d+)$/m) ||
    (machineMb && Math.floor(machineMb * (machineMb > largeFromMb ? large : small)));
  const pageBytes = figure(/page size of (\d+) bytes/);
  const pages = ["free", "inactive", "speculative", "purgeable"].map((kind) =>
    figure(new RegExp(`^Pages ${kind}: +(\\d+)\\.$`, "m")),
  );
  const idleMb =
    pageBytes === null || pages[0] === null
      ? null
      : Math.floor((pages.reduce<number>((sum, each) => sum + (each ?? 0), 0) * pageBytes) / MB_BYTES);
  // An entry of another accelerator, such as an external display's, has no figures.
  const entries = text.split(/^\+-o /m).filter((entry) => /"PerformanceStatistics" = \{"/.test(entry));
  return entries.slice(0, GPUS_MAX).map((entry, index) => {
    const said = (name: string) => new RegExp(`"${name}"=(\\d+)`).exec(entry)?.[1] ?? "";
    // With its closing quote: "In use system memory (driver)" is another figure.
    const usedBytes = withinOrNull(said("In use system memory"));
    const usedMb = usedBytes === null ? null : Math.floor(usedBytes / MB_BYTES);
    const ownMb = limitMb === null || usedMb === null ? null : Math.max(0, limitMb - usedMb);
    return {
      index,
      name: /"model" = <?"([^"]+)"/.exec(entry)?.[1]?.slice(0, NAME_CHARS_MAX) ?? "Apple GPU",
      memory_total_mb: limitMb,
      memory_used_mb: usedMb,
      memory_free_mb: ownMb === null || idleMb === null ? ownMb : Math.min(ownMb, idleMb),
      utilization: withinOrNull(said("Device Utilization %"), 100),
    };
  });
}

/** Megabytes by process id, over all GPUs; lines of another form are left out. */
export function parseProcessCsv(csv: string): Map<number, number> {
  const found = new Map<number, number>();
  for (const line of csv.split("\n")) {
    const cells = line.split(",").map((cell) => withinOrNull(cell.trim()));
    const [pid, mb] = cells;
    if (cells.length === 2 && pid != null && mb != null) found.set(pid, (found.get(pid) ?? 0) + mb);
  }
  return found;
}

const CSV = "--format=csv,noheader,nounits";
const NVIDIA = "nvidia-smi";
const ROCM = "rocm-smi";
const IOREG = "ioreg";
const nameOf = (command: string): string => [ROCM, IOREG].find((name) => command.endsWith(name)) ?? NVIDIA;

const READERS: Readonly<Record<string, (command: string) => Promise<GpuReport[]>>> = {
  [NVIDIA]: async (command) =>
    parseGpuCsv(await query(command, [`--query-gpu=${QUERY_FIELDS.join(",")}`, CSV])),
  [ROCM]: async (command) => parseRocmJson(await query(command, ROCM_QUERY)),
  [IOREG]: async () => parseAppleText(await query("/bin/sh", ["-c", APPLE_QUERY])),
};

async function query(command: string, args: readonly string[]): Promise<string> {
  const child = Bun.spawn([command, ...args], {
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      child.kill("SIGKILL");
      reject(new Error(`${nameOf(command)} did not answer within ${QUERY_TIMEOUT_MS / 1000} s`));
    }, QUERY_TIMEOUT_MS);
  });
  const finished = Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  try {
    const [stdout, stderr, code] = await Promise.race([finished, late]);
    if (code === 0) return stdout.slice(0, OUTPUT_CHARS_MAX);
    const said = (stderr.trim() || stdout.trim()).split("\n")[0] ?? "";
    throw new Error(`${nameOf(command)} ended with code ${code}: ${said.slice(0, 300)}`);
  } finally {
    clearTimeout(timer);
    // After a timeout the pipes of a hung program may never close, so we do not wait for them.
    finished.catch(() => undefined);
  }
}

/** Reads the GPUs on demand; each new reason for reading none is logged once. */
export class GpuMonitor {
  readonly #log: Log;
  readonly #command: string | null;
  readonly #now: () => number;
  readonly #history: GpuHistory = [];
  #last: { gpus: GpuReport[]; readAtMs: number } | null = null;
  #lastComplaint = "";
  #inFlight: Promise<GpuReport[]> | null = null;

  constructor(options: { log: Log; command?: string | null; now?: () => number }) {
    this.#log = options.log;
    const { command = Bun.which(NVIDIA) ?? Bun.which(ROCM) ?? Bun.which(IOREG) } = options;
    this.#command = command;
    this.#now = options.now ?? Date.now;
  }

  read(): Promise<GpuReport[]> {
    this.#inFlight ??= this.#read().finally(() => {
      this.#inFlight = null;
    });
    return this.#inFlight;
  }

  /** The last hour, as far as this program saw it. */
  history(): GpuHistory {
    return this.#history;
  }

  #remember(gpus: readonly GpuReport[]): void {
    const minute = Math.floor(this.#now() / 60_000);
    const highest = (a: number | null, b: number | null = null) =>
      a === null || b === null ? (a ?? b) : Math.max(a, b);
    const last = this.#history.at(-1);
    const before = last?.minute === minute ? last.gpus : [];
    const point = {
      minute,
      gpus: gpus.map(({ index, utilization, memory_used_mb }) => {
        const earlier = before.find((each) => each.index === index);
        return {
          index,
          utilization: highest(utilization, earlier?.utilization),
          memory_used_mb: highest(memory_used_mb, earlier?.memory_used_mb),
        };
      }),
    };
    if (last?.minute === minute) this.#history.pop();
    this.#history.push(point);
    if (this.#history.length > GPU_HISTORY_MAX) this.#history.shift();
  }

  /** Empty where the driver does not say: in containers it knows other process ids. */
  async memoryByProcess(): Promise<Map<number, number>> {
    if (!this.#command || nameOf(this.#command) !== NVIDIA) return new Map();
    const apps = query(this.#command, ["--query-compute-apps=pid,used_memory", CSV]);
    return apps.then(parseProcessCsv, () => new Map());
  }

  async #read(): Promise<GpuReport[]> {
    if (!this.#command) {
      this.#complain(`no ${NVIDIA}, ${ROCM} or ${IOREG} found: this node reports no GPUs`);
      return [];
    }
    try {
      const name = nameOf(this.#command);
      const gpus = await READERS[name]!(this.#command);
      this.#remember(gpus);
      if (gpus.length === 0) this.#complain(`${name} lists no GPU`);
      else this.#lastComplaint = "";
      this.#last = { gpus, readAtMs: this.#now() };
      return gpus;
    } catch (error) {
      this.#complain(`GPUs cannot be read: ${describeError(error)}`);
      const fresh = this.#last && this.#now() - this.#last.readAtMs < READING_AGE_MAX_MS;
      return fresh && this.#last ? this.#last.gpus : [];
    }
  }

  #complain(message: string): void {
    if (message === this.#lastComplaint) return;
    this.#lastComplaint = message;
    this.#log.warn(message);
  }
}
