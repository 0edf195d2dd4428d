import { expect, test } from "bun:test";
import { rate } from "../src/lib/format.ts";
import { leftMsOf, readTransfer } from "../src/lib/transfer.ts";

test("a node's words about a download give its rate and the time left", () => {
  const transfer = readTransfer("1.0 GiB of 3.0 GiB, 100.0 MiB/s");
  expect(transfer).toEqual({
    doneBytes: 1024 ** 3,
    totalBytes: 3 * 1024 ** 3,
    bytesPerSecond: 100 * 1024 ** 2,
  });
  expect(leftMsOf([], transfer)).toBeCloseTo(20_480);
  expect(rate(transfer!.bytesPerSecond!)).toBe("104.9 MB/s");
});

test("without a rate the pace of the samples counts; without any pace nothing is claimed", () => {
  const samples = [
    { atMs: 0, progress: 10 },
    { atMs: 5_000, progress: 20 },
  ];
  expect(leftMsOf(samples, readTransfer("resolving"))).toBe(40_000);
  expect(leftMsOf(samples, readTransfer("10 MiB of 1.0 GiB"))).toBe(40_000);
  expect(leftMsOf(samples.slice(0, 1), null)).toBeNull();
  expect(leftMsOf([samples[0]!, { atMs: 9_000, progress: 10 }], null)).toBeNull();
});
