import { describe, expect, test } from "bun:test";
import { compareWithLdd, elfFilesIn } from "./ldd.ts";

/** Runs ldd on so many files at once; it is a shell script that starts the loader for each. */
const PARALLEL = 4;
/** A machine with far more programs is sampled, evenly over the alphabet. */
const FILES_MAX = 1000;

describe("the scan and ldd", () => {
  test("agree on every program in /usr/bin, path by path", async () => {
    const all = elfFilesIn("/usr/bin");
    const step = Math.ceil(all.length / FILES_MAX);
    const files = all.filter((_, index) => index % step === 0);
    const differences: string[] = [];
    let next = 0;
    const work = async () => {
      for (let file = files[next++]; file; file = files[next++]) {
        const comparison = await compareWithLdd(file);
        for (const difference of comparison.differences) differences.push(`${file}: ${difference}`);
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, work));
    expect(files.length).toBeGreaterThan(0);
    expect(differences).toEqual([]);
  });
});
