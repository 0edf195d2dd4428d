import { describe, expect, test } from "bun:test";
import { appendFileSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { encodeEntry } from "../../src/rooms/metering/journal/codec.ts";
import { SEGMENT_BYTES } from "../../src/rooms/metering/journal/segment.ts";
import { drain, entry, files, open, read, removeDirsAfterEach, temporaryDir } from "./journal-support.ts";

removeDirsAfterEach();

const textOf = (file: string) => readFileSync(file, "utf8");
const lineBytes = Buffer.byteLength(encodeEntry(entry()));
/** An entry whose line has exactly this many bytes. */
const entryOfBytes = (bytes: number) => entry({ model: `m${"m".repeat(bytes - lineBytes)}` });
const instanceFile = (dir: string) => join(dir, `usage-${crypto.randomUUID()}-000001.jsonl`);

/** Runs the worker until it has killed itself: the ids that it printed, and its last figures. */
async function killedWorker(dir: string, rows: number, limits = "") {
  const command = `${limits} exec "$0" "$@"`;
  const worker = Bun.spawn(
    ["/bin/sh", "-c", command, process.execPath, join(import.meta.dir, "journal-worker.ts"), dir, `${rows}`],
    { stdout: "pipe", stderr: "inherit" },
  );
  const lines = (await new Response(worker.stdout).text()).trimEnd().split("\n");
  await worker.exited;
  const figures = JSON.parse(lines.pop()!) as { rows: number; bytes: number; lost: number };
  return { ids: lines, figures, signal: worker.signalCode };
}

describe("a journal file", () => {
  test("has a row when append returns", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = [entry(), entry()];
    for (const row of rows) journal.append(row);
    const file = join(dir, files(dir)[0]!);
    expect(textOf(file)).toBe(rows.map(encodeEntry).join(""));
    expect(statSync(file).size).toBe(journal.backlog.bytes);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    journal.close();
    expect(textOf(file)).toBe(rows.map(encodeEntry).join(""));
  });

  describe("of a service that answers in turns", () => {
    const openInTurns = (dir: string) => {
      const due: (() => void)[] = [];
      const journal = open(dir, { beforeAnswers: (run) => due.push(run) });
      const answer = () => {
        for (const run of due.splice(0)) run();
      };
      return { journal, answer, due: () => due.length };
    };
    const written = (dir: string) =>
      files(dir)
        .map((name) => textOf(join(dir, name)))
        .join("");

    test("has the rows of a turn before its answers are sent", () => {
      const dir = temporaryDir();
      const { journal, answer, due } = openInTurns(dir);
      const rows = [entry(), entry(), entry()];
      for (const row of rows) journal.append(row);
      expect(due()).toBe(1);
      expect(written(dir)).toBe("");
      expect(journal.ownRows).toBe(3);
      answer();
      expect(written(dir)).toBe(rows.map(encodeEntry).join(""));
      const next = entry();
      journal.append(next);
      answer();
      expect(drain(journal, 1_000)).toEqual([...rows, next]);
      journal.close();
    });

    test("does not gather without end", () => {
      const dir = temporaryDir();
      const { journal } = openInTurns(dir);
      const rows = Array.from({ length: 300 }, () => entry());
      for (const row of rows) journal.append(row);
      expect(written(dir).split("\n").length).toBeGreaterThan(200);
      journal.close();
      expect(written(dir)).toBe(rows.map(encodeEntry).join(""));
    });

    test("has them when it is drained before that", () => {
      const dir = temporaryDir();
      const { journal } = openInTurns(dir);
      const rows = [entry(), entry()];
      for (const row of rows) journal.append(row);
      expect(drain(journal, 1_000)).toEqual(rows);
      journal.close();
    });
  });

  test("is filled to its last byte and not beyond", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = Array.from({ length: Math.floor(SEGMENT_BYTES / lineBytes) - 1 }, () => entry());
    rows.push(entryOfBytes(SEGMENT_BYTES - rows.length * lineBytes));
    for (const row of rows) journal.append(row);
    expect(files(dir)).toHaveLength(1);
    const [full] = files(dir);
    expect(Buffer.byteLength(textOf(join(dir, full!)))).toBe(SEGMENT_BYTES);
    const next = entry();
    journal.append(next);
    expect(files(dir)).toHaveLength(2);
    expect(drain(journal, 1_000)).toEqual([...rows, next]);
    expect(files(dir)).toHaveLength(1);
    journal.close();
    expect(readdirSync(dir)).toEqual([]);
  });

  test("gives a row that is longer than the rest of it to the next one", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = Array.from({ length: Math.floor(SEGMENT_BYTES / lineBytes) }, () => entry());
    const left = SEGMENT_BYTES - rows.length * lineBytes;
    rows.push(entryOfBytes(lineBytes + left + 1));
    for (const row of rows) journal.append(row);
    const [first, second] = files(dir).sort();
    expect(textOf(join(dir, second!))).toBe(encodeEntry(rows.at(-1)!));
    expect(textOf(join(dir, first!))).toEndWith("\n");
    expect(journal.backlog).toEqual({ rows: rows.length, bytes: rows.length * lineBytes + left + 1 });
    journal.close();
    const later = open(dir);
    expect(drain(later, 5_000)).toEqual(rows);
    later.close();
  });

  test("may hold one row that is longer than a file", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = [entry(), entry({ model: "模".repeat(SEGMENT_BYTES) }), entry()];
    for (const row of rows) journal.append(row);
    expect(journal.lost).toBe(0);
    journal.close();
    const later = open(dir);
    expect(drain(later)).toEqual(rows);
    later.close();
  });

  test("takes rows while others are drained", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = Array.from({ length: 2_500 }, () => entry());
    for (const row of rows) journal.append(row);
    const taken: unknown[] = [];
    for (let batch = journal.next(); batch; batch = journal.next()) {
      const { entries, damaged, length } = read(batch, 300);
      taken.push(...entries);
      // These come after the batch was read and before it is in the database.
      const more = taken.length > 6_000 ? 0 : 200;
      for (let n = 0; n < more; n++) {
        const row = entry();
        rows.push(row);
        journal.append(row);
      }
      journal.advance(batch, { rows: entries.length, damaged, length });
    }
    expect(taken).toEqual(rows);
    expect(journal.backlog).toEqual({ rows: 0, bytes: 0 });
    journal.close();
    expect(readdirSync(dir)).toEqual([]);
  });

  test("gives a batch again until it is taken", () => {
    const journal = open(temporaryDir());
    const rows = Array.from({ length: 5 }, () => entry());
    for (const row of rows) journal.append(row);
    expect(read(journal.next()!, 2).entries).toEqual(rows.slice(0, 2));
    expect(read(journal.next()!, 1).entries).toEqual(rows.slice(0, 1));
    expect(drain(journal)).toEqual(rows);
    journal.close();
  });

  test("does not grow while the database is away: others follow it, and all are drained in order", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = Array.from({ length: 40_000 }, () => entry());
    for (const row of rows) journal.append(row);
    expect(files(dir).length).toBe(Math.ceil(rows.length / Math.floor(SEGMENT_BYTES / lineBytes)));
    for (const name of files(dir)) expect(statSync(join(dir, name)).size).toBeLessThanOrEqual(SEGMENT_BYTES);
    expect(journal.backlog).toEqual({ rows: rows.length, bytes: rows.length * lineBytes });
    expect(drain(journal, 4_096)).toEqual(rows);
    expect(files(dir)).toHaveLength(1);
    journal.close();
  });
});

describe("what a dead process left", () => {
  test("kill -9 right after the last of many rows loses none of them", async () => {
    const dir = temporaryDir();
    const { ids, signal } = await killedWorker(dir, 30_000);
    expect(signal).toBe("SIGKILL");
    expect(ids).toHaveLength(30_000);
    const journal = open(dir);
    expect(drain(journal, 4_096).map(({ requestId }) => requestId)).toEqual(ids);
    journal.close();
    expect(readdirSync(dir)).toEqual([]);
  });

  test("a row that a process was killed over is dropped, and the others are read", () => {
    const dir = temporaryDir();
    const rows = [entry(), entry()];
    const torn = Buffer.from(encodeEntry(entry()));
    for (const length of [1, 8, 9, 100, torn.length - 1]) {
      const file = instanceFile(dir);
      writeFileSync(file, rows.map(encodeEntry).join(""));
      appendFileSync(file, torn.subarray(0, length));
      truncateSync(file, SEGMENT_BYTES);
      const journal = open(dir);
      expect(drain(journal)).toEqual(rows);
      journal.close();
      expect(readdirSync(dir)).toEqual([]);
    }
  });

  test("a file of zeros, as a power cut may leave one, is cleared away", () => {
    const dir = temporaryDir();
    writeFileSync(instanceFile(dir), Buffer.alloc(SEGMENT_BYTES));
    const journal = open(dir);
    expect(drain(journal)).toEqual([]);
    expect(files(dir)).toEqual([]);
    journal.close();
  });

  test("a file without room at its end, larger than one of today, is read", () => {
    const dir = temporaryDir();
    const rows = Array.from({ length: 3 * Math.ceil(SEGMENT_BYTES / lineBytes) }, () => entry());
    writeFileSync(instanceFile(dir), rows.map(encodeEntry).join(""));
    const journal = open(dir);
    expect(drain(journal, 4_096)).toEqual(rows);
    journal.close();
    expect(readdirSync(dir)).toEqual([]);
  });
});

test("a disk without room for another file takes single rows as long as it can; the rest waits in memory", async () => {
  const dir = temporaryDir();
  // The largest file that the shell allows, in blocks of 512 bytes, stands in for the room that is left.
  const roomBytes = 300 * 512;
  const { ids, figures, signal } = await killedWorker(dir, 1_000, "ulimit -f 300;");
  expect(signal).toBe("SIGKILL");
  expect(ids).toHaveLength(1_000);
  expect(figures).toMatchObject({ rows: 1_000, lost: 0 });
  const written = Math.floor(roomBytes / lineBytes);
  expect(figures.bytes).toBe(written * lineBytes);
  const journal = open(dir);
  expect(drain(journal, 256).map(({ requestId }) => requestId)).toEqual(ids.slice(0, written));
  journal.close();
});
