import { afterAll, describe, expect, test } from "bun:test";
import { existsSync, lstatSync, mkdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SetupError } from "../../src/resolve/errors.ts";
import { extractZip } from "../../src/resolve/zip-extract.ts";
import { tempDir } from "./support.ts";
import { FILE, LINK, makeZip, type ZipInput } from "./zip-writer.ts";

const temp = tempDir();
afterAll(temp.remove);
let count = 0;

/** `zip -r -y - src | cat`: sizes and checksums stand after the data, not before it. */
const streamedZip = [
  "UEsDBAoAAAAAAFYZb10AAAAAAAAAAAAAAAAEABwAc3JjL1VUCQADtCL5arQi+Wp1eAsAAQQAAAAABAAAAABQSwMECg",
  "AIAAAAVhlvXQAAAAAFAAAABQAAAAgAHABzcmMvbGlua1VUCQADtCL5arQi+Wp1eAsAAQQAAAAABAAAAABhLnR4dFBL",
  "Bwi69+vBBQAAAAUAAABQSwMEFAAIAAgAVhlvXQAAAAAAAAAACAcAAAkAHABzcmMvYS50eHRVVAkAA7Qi+Wq0IvlqdX",
  "gLAAEEAAAAAAQAAAAASyvKz1WoyizgShtljDJGGaOMUcYoY+QxAFBLBwgv4WVZGQAAAAgHAABQSwECHgMKAAAAAABW",
  "GW9dAAAAAAAAAAAAAAAABAAYAAAAAAAAABAA7UEAAAAAc3JjL1VUBQADtCL5anV4CwABBAAAAAAEAAAAAFBLAQIeAw",
  "oACAAAAFYZb1269+vBBQAAAAUAAAAIABgAAAAAAAAAAAD/oT4AAABzcmMvbGlua1VUBQADtCL5anV4CwABBAAAAAAE",
  "AAAAAFBLAQIeAxQACAAIAFYZb10v4WVZGQAAAAgHAAAJABgAAAAAAAEAAADtgZUAAABzcmMvYS50eHRVVAUAA7Qi+W",
  "p1eAsAAQQAAAAABAAAAABQSwUGAAAAAAMAAwDnAAAAAQEAAAAA",
].join("");

function save(bytes: Uint8Array): { zip: string; out: string } {
  const base = join(temp.path, String(++count));
  mkdirSync(base);
  writeFileSync(join(base, "a.zip"), bytes);
  return { zip: join(base, "a.zip"), out: join(base, "out") };
}

async function refusal(bytes: Uint8Array): Promise<string> {
  const { zip, out } = save(bytes);
  const error = await extractZip(zip, out).then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(SetupError);
  expect(error.code).toBe("archive_invalid");
  return error.message;
}

describe("unpacking", () => {
  test("keeps contents, modes and links, and drops set-user-id", async () => {
    const large = Buffer.alloc(3_000_000, "abcdefgh");
    const { zip, out } = save(
      makeZip(
        [
          { name: "app/", mode: 0o040755 },
          { name: "app/run", data: "#!/bin/sh\n", mode: FILE | 0o4755 },
          { name: "app/deep/er/data.bin", data: large, mode: FILE | 0o640 },
          { name: "app/stored", data: "plain", stored: true },
          { name: "app/empty", data: "" },
          { name: "app/empty-stored", data: "", stored: true },
          { name: "app/ünï", data: "name" },
          { name: "app/Current", data: "deep/er", mode: LINK | 0o777 },
          { name: "app/dos", data: "made elsewhere", mode: null },
        ],
        "a comment with PK\x05\x06 in it",
      ),
    );
    const progress: number[] = [];
    const result = await extractZip(zip, out, { onProgress: (done) => progress.push(done) });
    expect(result.files).toBe(9);
    expect(progress.at(-1)).toBe(result.bytes);
    expect(lstatSync(join(out, "app/run")).mode & 0o7777).toBe(0o755);
    expect(lstatSync(join(out, "app/deep/er/data.bin")).mode & 0o7777).toBe(0o640);
    expect(readFileSync(join(out, "app/deep/er/data.bin")).equals(large)).toBe(true);
    expect(readFileSync(join(out, "app/stored"), "utf8")).toBe("plain");
    expect(readFileSync(join(out, "app/ünï"), "utf8")).toBe("name");
    expect(lstatSync(join(out, "app/empty")).size + lstatSync(join(out, "app/empty-stored")).size).toBe(0);
    expect(readlinkSync(join(out, "app/Current"))).toBe("deep/er");
    expect(lstatSync(join(out, "app/dos")).mode & 0o777).toBe(0o755);
  });

  test("reads an archive that the zip program wrote as a stream", async () => {
    const { zip, out } = save(Buffer.from(streamedZip, "base64"));
    await extractZip(zip, out);
    expect(readFileSync(join(out, "src/a.txt"), "utf8")).toBe("from zip\n".repeat(200));
    expect(lstatSync(join(out, "src/a.txt")).mode & 0o777).toBe(0o755);
    expect(readlinkSync(join(out, "src/link"))).toBe("a.txt");
  });

  const unsafeNames = [
    "../evil",
    "/etc/evil",
    "a/../../evil",
    "a//b",
    "./a",
    "a\\..\\b",
    "C:evil",
    "a\0b",
    "",
  ];
  test.each(unsafeNames)("refuses the name %j", async (name) => {
    expect(await refusal(makeZip([{ name, data: "x" }]))).toContain("not a safe path");
    expect(existsSync(join(temp.path, "evil"))).toBe(false);
  });

  const hostile: [string, ZipInput[], string][] = [
    ["a link out", [{ name: "a", data: "../../etc/passwd", mode: LINK | 0o777 }], "out of the archive"],
    ["an absolute link", [{ name: "a", data: "/etc/passwd", mode: LINK | 0o777 }], "out of the archive"],
    ["a link to nothing", [{ name: "a", data: "nowhere", mode: LINK | 0o777 }], "leads nowhere"],
    [
      "links that lead out through one another",
      [
        { name: "p/q/file", data: "x" },
        { name: "p/q/b", data: "../../", mode: LINK | 0o777 },
        { name: "p/q/a", data: "b/../../../tmp", mode: LINK | 0o777 },
      ],
      "out of the archive",
    ],
    [
      "a file below a link",
      [
        { name: "a", data: "b", mode: LINK | 0o777 },
        { name: "a/x", data: "x" },
      ],
      "cannot be used",
    ],
    [
      "a name twice",
      [
        { name: "a/B", data: "1" },
        { name: "a/b", data: "2" },
      ],
      "twice",
    ],
    ["a device", [{ name: "a", data: "", mode: 0o020666 }], "neither a file"],
    ["a wrong checksum", [{ name: "a", data: "abc", crc32: 1 }], "damaged"],
    ["more data than announced", [{ name: "a", data: "x".repeat(1e6), announcedBytes: 10 }], "larger than"],
    ["less data than announced", [{ name: "a", data: "abc", announcedBytes: 10 }], "damaged"],
    [
      "a bomb",
      [
        { name: "a", data: "", announcedBytes: 0xfffffff0 },
        { name: "b", announcedBytes: 0xfffffff0 },
      ],
      "unpacks to more",
    ],
    ["an unknown method", [{ name: "a", data: "x", method: 14 }], "method 14"],
    ["encryption", [{ name: "a", data: "x", flags: 1 }], "encrypted"],
    ["broken deflate data", [{ name: "a", data: "abc", stored: true, method: 8 }], "cannot be used"],
  ];
  test.each(hostile)("refuses %s", async (_, inputs, why) => {
    expect(await refusal(makeZip(inputs))).toContain(why);
  });

  test("refuses entries that share their data, and files that are no zip or cut off", async () => {
    const zip = makeZip([
      { name: "a", data: "x".repeat(100), stored: true },
      { name: "b", data: "y" },
    ]);
    const overlapping = Buffer.from(zip);
    const second = overlapping.lastIndexOf(Buffer.from("PK\x01\x02", "latin1"));
    overlapping.writeUInt32LE(0, second + 42);
    expect(await refusal(overlapping)).toContain("overlaps");
    expect(await refusal(Buffer.from("<html>not found</html>".repeat(10)))).toContain("not a zip file");
    expect(await refusal(zip.subarray(0, zip.length - 30))).toContain("not a zip file");
    expect(await refusal(Buffer.alloc(0))).toContain("too short");
  });
});
