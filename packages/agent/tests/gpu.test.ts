import { afterAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { GPUS_MAX, GpuReport } from "@model-gateway/protocol/agent.ts";
import { GpuMonitor, parseAppleText, parseGpuCsv, parseRocmJson } from "../src/gpu.ts";
import { createLog } from "../src/log.ts";

const fixture = (name: string) => Bun.file(join(import.meta.dir, "fixtures", "nvidia-smi", name)).text();
const dir = mkdtempSync(join(tmpdir(), "gpu-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

/** A stand-in for nvidia-smi. */
function program(name: string, script: string): string {
  const path = join(dir, name);
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

function monitor(command: string | null, now?: () => number) {
  const lines: string[] = [];
  const log = createLog((line) => lines.push(line));
  return { lines, gpus: new GpuMonitor({ log, command, now }) };
}

test("AMD's GPUs, in the words that rocm-smi has for two unlike ones", async () => {
  const path = join(import.meta.dir, "fixtures", "rocm-smi", "two-cards.json");
  const gpus = parseRocmJson(await Bun.file(path).text());
  expect(gpus).toEqual([
    {
      ...{ index: 0, uuid: "0x0000000000000001", name: "Radeon RX 7900 XTX", driver_version: "6.7.0" },
      ...{ memory_total_mb: 24_560, memory_used_mb: 20_480, memory_free_mb: 4_080 },
      ...{ utilization: 97, temperature_c: 61, power_w: 301 },
    },
    {
      ...{ index: 1, name: "D7000000", driver_version: "6.7.0" },
      ...{ memory_total_mb: 8_192, memory_used_mb: 100, memory_free_mb: 8_092 },
      ...{ utilization: 0, temperature_c: 39, power_w: 12.5 },
    },
  ]);
  const { gpus: read } = monitor(program("rocm-smi", `cat ${path}`));
  expect(await read.read()).toEqual(gpus);
  for (const gpu of gpus) expect(GpuReport.safeParse(gpu).success).toBe(true);
});

describe("an Apple GPU, in the words of ioreg, sysctl and vm_stat", () => {
  const apple = async (name: string) =>
    parseAppleText(await Bun.file(join(import.meta.dir, "fixtures", "apple", name)).text());

  test("has the share of the memory that macOS lets it have", async () => {
    const gpus = await apple("m4-max.txt");
    // 3/4 of 64 GB; what programs hold of it is not free.
    expect(gpus).toEqual([
      {
        ...{ index: 0, name: "Apple M4 Max", utilization: 16 },
        ...{ memory_total_mb: 49_152, memory_used_mb: 2_254, memory_free_mb: 31_232 },
      },
    ]);
    // 2/3 of 16 GB on a smaller one, without a word of the limit in an older macOS.
    expect(await apple("m1-full.txt")).toEqual([
      {
        ...{ index: 0, name: "Apple M1", utilization: 98 },
        ...{ memory_total_mb: 10_922, memory_used_mb: 4_096, memory_free_mb: 512 },
      },
    ]);
    for (const gpu of gpus) expect(GpuReport.safeParse(gpu).success).toBe(true);
  });

  test("keeps to a limit that the operator set, and says nothing that was not said", async () => {
    const text = await Bun.file(join(import.meta.dir, "fixtures", "apple", "m4-max.txt")).text();
    const raised = parseAppleText(text.replace("wired_limit_mb: 0", "wired_limit_mb: 57344"));
    expect(raised[0]).toMatchObject({ memory_total_mb: 57_344 });
    expect(parseAppleText(text.replace(/"Device Util[^,]*,/, ""))[0]).toMatchObject({ utilization: null });
    expect(parseAppleText(text.split("hw.memsize")[0]!)[0]).toMatchObject({
      ...{ memory_total_mb: null, memory_free_mb: null, memory_used_mb: 2_254 },
    });
    for (const other of [
      "",
      "No such class\n",
      '+-o IOGPU  <class IOGPU>\n{\n"PerformanceStatistics" = {}\n',
    ])
      expect(parseAppleText(other)).toEqual([]);
  });
});

test("the last hour is remembered, one point a minute, with the highest figures of each", async () => {
  let nowMs = 0;
  const line = (used: number, load: string) => `0, GPU-0, one, 580, 1000, ${used}, 0, ${load}, 38, 125.9`;
  const { gpus } = monitor(program("changes", `cat ${dir}/now`), () => nowMs);
  const read = async (atMs: number, text: string) => {
    nowMs = atMs;
    writeFileSync(join(dir, "now"), text);
    await gpus.read();
  };
  await read(0, line(100, "[N/A]"));
  await read(10_000, line(500, "90"));
  await read(20_000, line(300, "10"));
  await read(60_000, line(200, "20"));
  const point = (minute: number, utilization: number | null, memory_used_mb: number) => ({
    minute,
    gpus: [{ index: 0, utilization, memory_used_mb }],
  });
  expect(gpus.history()).toEqual([point(0, 90, 500), point(1, 20, 200)]);
  for (let minute = 2; minute < 62; minute++) await read(minute * 60_000, line(minute, "1"));
  expect([gpus.history().length, gpus.history()[0]]).toEqual([60, point(2, 1, 2)]);
});

describe("the output of nvidia-smi", () => {
  test("as an H200 gave it, idle and at work", async () => {
    const idle = {
      index: 0,
      uuid: "GPU-00000000-0000-0000-0000-000000000001",
      name: "NVIDIA H200",
      driver_version: "580.159.04",
      memory_total_mb: 143771,
      memory_used_mb: 0,
      memory_free_mb: 143156,
      utilization: 0,
      temperature_c: 38,
      power_w: 125.9,
    };
    const busy = {
      memory_used_mb: 1395,
      memory_free_mb: 141762,
      utilization: 100,
      temperature_c: 59,
      power_w: 655.87,
    };
    expect(parseGpuCsv(await fixture("h200-idle.csv"))).toEqual([idle]);
    expect(parseGpuCsv(await fixture("h200-busy.csv"))).toEqual([{ ...idle, ...busy }]);
  });

  test("of several GPUs, in order, with what the driver does not know as null", async () => {
    const gpus = parseGpuCsv(await fixture("mixed.csv"));
    expect(gpus.map(({ index, utilization }) => [index, utilization])).toEqual([
      [0, 100],
      [1, null],
      [2, 3],
      [3, null],
    ]);
    expect(gpus[2]).toMatchObject({ name: "NVIDIA GB10", memory_total_mb: null, memory_used_mb: null });
    expect(gpus[3]).toMatchObject({ temperature_c: null, power_w: null });
    for (const gpu of gpus) expect(GpuReport.safeParse(gpu).success).toBe(true);
  });

  test("with figures that cannot be gives null for them, so that the rest still counts", () => {
    const line = (index: string, memory: string, utilization: string) =>
      `${index}, GPU-${index}, ${"N".repeat(400)}, 580, ${memory}, ${memory}, ${memory}, ${utilization}, 38, 125.9`;
    const gpus = parseGpuCsv(
      [line("0", "-1", "4294967295"), line("1.5", "1", "1"), line("2", "5", "-3")].join("\n"),
    );
    expect(
      gpus.map(({ index, memory_total_mb, utilization }) => [index, memory_total_mb, utilization]),
    ).toEqual([
      [0, null, null],
      [2, 5, null],
    ]);
    for (const gpu of gpus) expect(GpuReport.safeParse(gpu).success).toBe(true);
    const many = Array.from({ length: 100 }, (_, i) => line(String(i), "1", "1")).join("\n");
    expect(parseGpuCsv(many).length).toBe(GPUS_MAX);
  });

  test("that is no list of GPUs gives none", () => {
    for (const text of [
      "",
      "\n",
      "No devices were found\n",
      "a, b, c\n",
      "NVIDIA-SMI has failed because …\n",
    ])
      expect(parseGpuCsv(text)).toEqual([]);
  });
});

describe("reading GPUs", () => {
  test("runs the program and asks for the fields that are parsed", async () => {
    const path = join(import.meta.dir, "fixtures", "nvidia-smi", "mixed.csv");
    const { gpus, lines } = monitor(program("works", `echo "$@" > ${dir}/asked; cat ${path}`));
    expect((await gpus.read()).length).toBe(4);
    expect(await Bun.file(join(dir, "asked")).text()).toBe(
      "--query-gpu=index,uuid,name,driver_version,memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu,power.draw --format=csv,noheader,nounits\n",
    );
    expect(lines).toEqual([]);
  });

  test("says once that there is no nvidia-smi", async () => {
    const { gpus, lines } = monitor(null);
    expect([await gpus.read(), await gpus.read()]).toEqual([[], []]);
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain("no nvidia-smi, rocm-smi or ioreg found: this node reports no GPUs");
  });

  test("keeps the last reading for a minute when the driver fails, and says why", async () => {
    let nowMs = 0;
    const path = join(import.meta.dir, "fixtures", "nvidia-smi", "h200-idle.csv");
    const script = `if [ -e ${dir}/broken ]; then echo "couldn't communicate with the NVIDIA driver"; exit 9; fi; cat ${path}`;
    const { gpus, lines } = monitor(program("breaks", script), () => nowMs);
    expect((await gpus.read()).length).toBe(1);
    writeFileSync(join(dir, "broken"), "");
    nowMs = 59_000;
    expect((await gpus.read()).length).toBe(1);
    nowMs = 61_000;
    expect(await gpus.read()).toEqual([]);
    expect(lines.length).toBe(1);
    expect(lines[0]).toContain("code 9: couldn't communicate with the NVIDIA driver");
  });

  test("gives up on a program that hangs", async () => {
    const { gpus, lines } = monitor(program("hangs", "exec sleep 60"));
    expect(await gpus.read()).toEqual([]);
    expect(lines[0]).toContain("did not answer within 3 s");
  });
});
