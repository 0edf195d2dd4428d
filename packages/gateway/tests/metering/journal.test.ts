import { describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeLines, encodeEntry } from "../../src/rooms/metering/journal/codec.ts";
import { DAMAGED_FILE } from "../../src/rooms/metering/journal/journal.ts";
import { drain, entry, open, removeDirsAfterEach, temporaryDir } from "./journal-support.ts";

removeDirsAfterEach();

describe("the usage journal", () => {
  test("gives back what was appended, in order, and leaves nothing behind", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const entries = Array.from({ length: 10 }, () => entry());
    for (const one of entries) journal.append(one);
    expect(journal.backlog.rows).toBe(10);
    expect(journal.backlog.bytes).toBeGreaterThan(1000);
    expect(drain(journal)).toEqual(entries);
    expect(journal.backlog).toEqual({ rows: 0, bytes: 0 });
    journal.close();
    expect(readdirSync(dir)).toEqual([]);
  });

  test("after a crash at any byte, every whole line is there and nothing else", () => {
    const entries = Array.from({ length: 4 }, () => entry());
    const lines = entries.map((one) => Buffer.from(encodeEntry(one)));
    const whole = Buffer.concat(lines);
    const name = `usage-${crypto.randomUUID()}-000001.jsonl`;
    const dir = temporaryDir();
    for (let length = 0; length <= whole.length; length++) {
      let end = 0;
      const expected = entries.filter((_, i) => {
        end += lines[i]!.length;
        return end <= length;
      });
      expect(decodeLines(whole.subarray(0, length), 100)).toMatchObject({ entries: expected, damaged: [] });
      // Opening locks files, so the whole way is walked only around the ends of lines and at some places between.
      const atEdge = lines.some(
        (_, i) => Math.abs(Buffer.concat(lines.slice(0, i + 1)).length - length) <= 1,
      );
      if (!atEdge && length % 97 !== 0) continue;
      writeFileSync(join(dir, name), whole.subarray(0, length));
      const journal = open(dir);
      expect(drain(journal)).toEqual(expected);
      journal.close();
      expect(readdirSync(dir)).toEqual([]);
    }
  });

  test("lines count in bytes: with other scripts, with bytes that are no text, and up to the most rows", () => {
    const [a, b] = [entry({ model: "模型 ü" }), entry({ refId: "🚀" })];
    const noText = Buffer.from([0x30, 0xff, 0xc3, 0x0a]);
    const lines = [Buffer.from(encodeEntry(a)), noText, Buffer.from(encodeEntry(b))];
    const bytes = Buffer.concat([...lines, Buffer.from("half")]);
    const damaged = ["0\ufffd\ufffd"];
    const expected = [
      { entries: [], damaged: [] },
      { entries: [a], damaged: [] },
      { entries: [a], damaged },
      { entries: [a, b], damaged },
    ];
    for (const [rowsMax, read] of expected.entries()) {
      const { length } = Buffer.concat(lines.slice(0, rowsMax));
      expect(decodeLines(bytes, rowsMax)).toEqual({ ...read, length });
    }
    expect(decodeLines(bytes, 100)).toEqual(decodeLines(bytes, 3));
  });

  test("a damaged line is set aside for a person and the others go on", () => {
    const dir = temporaryDir();
    const [a, b, c] = [entry(), entry(), entry()];
    const foreign = ["null", "[2]"].map((json) => `${Bun.hash.crc32(json).toString(16)} ${json}\n`).join("");
    const damaged = encodeEntry(b).replace("gateway", "gatewax") + foreign;
    writeFileSync(
      join(dir, `usage-${crypto.randomUUID()}-000001.jsonl`),
      encodeEntry(a) + damaged + encodeEntry(c),
    );
    const journal = open(dir);
    expect(drain(journal)).toEqual([a, c]);
    journal.close();
    expect(readFileSync(join(dir, DAMAGED_FILE), "utf8")).toBe(damaged);
  });

  test("what a dead process left is taken over; what a living one writes is not", () => {
    const dir = temporaryDir();
    const left = entry();
    writeFileSync(join(dir, `usage-${crypto.randomUUID()}-000001.jsonl`), encodeEntry(left));
    const living = open(dir);
    const own = entry();
    living.append(own);
    const other = open(dir);
    expect(drain(other)).toEqual([]);
    expect(drain(living)).toEqual([left, own]);
    other.close();
    living.close();
    expect(readdirSync(dir)).toEqual([]);
  });

  test("a lock that nobody holds is cleared away once it is old", () => {
    const dir = temporaryDir();
    const [old, young] = [`${crypto.randomUUID()}.lock`, `${crypto.randomUUID()}.lock`];
    for (const name of [old, young]) writeFileSync(join(dir, name), "");
    utimesSync(join(dir, old), 0, 0);
    const journal = open(dir);
    expect(readdirSync(dir)).not.toContain(old);
    expect(readdirSync(dir)).toContain(young);
    journal.close();
  });

  test("rows that were not drained wait for the next start", () => {
    const dir = temporaryDir();
    const first = open(dir);
    const one = entry();
    first.append(one);
    first.close();
    const second = open(dir);
    expect(second.backlog.rows).toBe(1);
    expect(drain(second)).toEqual([one]);
    second.close();
  });

  test("a row that the disk refuses waits in memory until it is taken", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    const rows = [entry(), entry(), entry()];
    // A directory that is gone cannot hold a new file.
    rmSync(dir, { recursive: true });
    journal.append(rows[0]!);
    journal.append(rows[1]!);
    expect(journal.backlog.rows).toBe(2);
    expect(drain(journal)).toEqual([]);
    mkdirSync(dir);
    journal.append(rows[2]!);
    expect(drain(journal)).toEqual(rows);
    expect(journal.lost).toBe(0);
    journal.close();
  });

  test("with many rows that the disk refuses there is no room for new spending, until it takes them", () => {
    const dir = temporaryDir();
    const journal = open(dir);
    rmSync(dir, { recursive: true });
    for (let n = 0; n < 5_000; n++) {
      expect(journal.isFull).toBe(false);
      journal.append(entry());
    }
    expect(journal.isFull).toBe(true);
    mkdirSync(dir);
    expect(journal.isFull).toBe(false);
    expect(drain(journal, 4_096)).toHaveLength(5_000);
    expect(journal.lost).toBe(0);
    journal.close();
  });
});
