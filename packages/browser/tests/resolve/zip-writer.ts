import { crc32, deflateRawSync } from "node:zlib";

/** One entry of a test archive; everything that a hostile archive could say can be said. */
export interface ZipInput {
  name: string;
  data?: string | Uint8Array;
  /** Type and permissions; null for an archive made on a system without them. */
  mode?: number | null;
  stored?: boolean;
  crc32?: number;
  announcedBytes?: number;
  method?: number;
  flags?: number;
}

export const FILE = 0o100000;
export const LINK = 0o120000;

interface Written {
  local: Buffer;
  central: Buffer;
}

function writeEntry(input: ZipInput, offset: number): Written {
  const name = Buffer.from(input.name);
  const data = Buffer.from(input.data ?? "");
  const body = input.stored ? data : deflateRawSync(data);
  const mode = input.mode === undefined ? FILE | 0o644 : input.mode;
  const common = Buffer.alloc(26);
  common.writeUInt16LE(20, 0);
  common.writeUInt16LE(input.flags ?? 0, 2);
  common.writeUInt16LE(input.method ?? (input.stored ? 0 : 8), 4);
  common.writeUInt32LE(input.crc32 ?? crc32(data), 10);
  common.writeUInt32LE(body.length, 14);
  common.writeUInt32LE(input.announcedBytes ?? data.length, 18);
  common.writeUInt16LE(name.length, 22);
  const tail = Buffer.alloc(14);
  tail.writeUInt32LE(mode === null ? 0 : (mode << 16) >>> 0, 6);
  tail.writeUInt32LE(offset, 10);
  return {
    local: Buffer.concat([Buffer.from("PK\x03\x04", "latin1"), common, name, body]),
    central: Buffer.concat([
      Buffer.from("PK\x01\x02", "latin1"),
      Buffer.from([20, mode === null ? 0 : 3]),
      common,
      tail,
      name,
    ]),
  };
}

export function makeZip(inputs: ZipInput[], comment = ""): Buffer {
  const locals: Buffer[] = [];
  const centrals: Buffer[] = [];
  let offset = 0;
  for (const input of inputs) {
    const { local, central } = writeEntry(input, offset);
    locals.push(local);
    centrals.push(central);
    offset += local.length;
  }
  const directory = Buffer.concat(centrals);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", 0, "latin1");
  end.writeUInt16LE(inputs.length, 8);
  end.writeUInt16LE(inputs.length, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(offset, 16);
  end.writeUInt16LE(comment.length, 20);
  return Buffer.concat([...locals, directory, end, Buffer.from(comment)]);
}

/** A zip laid out like a Chrome for Testing build, with a shell script as the browser. */
export function makeChromeZip(platform: string, version: string, ballastBytes = 0): Buffer {
  const root = `chrome-${platform}`;
  const ballast = Buffer.alloc(ballastBytes);
  // Random bytes do not compress, so the zip is as large as asked for.
  for (let at = 0; at < ballastBytes; at += 65_536)
    crypto.getRandomValues(ballast.subarray(at, Math.min(ballastBytes, at + 65_536)));
  return makeZip([
    { name: `${root}/`, mode: 0o040755 },
    { name: `${root}/ballast.bin`, data: ballast, stored: true },
    {
      name: `${root}/chrome`,
      data: `#!/bin/sh\necho "Google Chrome for Testing ${version}"\n`,
      mode: FILE | 0o4755,
    },
    { name: `${root}/locales/en-US.pak`, data: "pak" },
    { name: `${root}/current`, data: "locales", mode: LINK | 0o777, stored: true },
  ]);
}
