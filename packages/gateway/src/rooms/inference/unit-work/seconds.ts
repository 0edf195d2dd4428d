import { nextTurn } from "../../../kernel/turns.ts";

/** Lowest bit rate of usable speech; unknown bytes are assumed to have it. */
const LOWEST_BITS_PER_SECOND = 8_000;
const SAMPLE_RATES = { min: 1_000, max: 192_000 };
/** Studio quality: 192 kHz, two channels, 32 bits. A higher claimed rate does not make a sound shorter. */
const BYTES_PER_SECOND_MAX = 192_000 * 2 * 4;
const CHANNELS_MAX = 32;
const CHUNKS_MAX = 64;
const FRAMES_PER_TURN = 500;

const atRate = (bytes: number, bitsPerSecond: number): number => (bytes * 8) / bitsPerSecond;

export const secondsMax = (file: Buffer): number => atRate(file.length, LOWEST_BITS_PER_SECOND);

/** The length of a sound file. Length fields may lie and are ignored; unknown bytes count at the lowest bit rate. */
export async function secondsOf(file: Buffer): Promise<number> {
  const start = afterTag(file);
  return (
    waveSeconds(file, start) ?? Math.max(await frameSeconds(file, start), await sparseSeconds(file, start))
  );
}

/** The position after an ID3v2 tag, which decoders skip; a tag larger than the file is not one. */
function afterTag(file: Buffer): number {
  if (file.length < 10 || file.toString("latin1", 0, 3) !== "ID3") return 0;
  const end = [6, 7, 8, 9].reduce((sum, at) => sum * 128 + file[at]!, 10);
  return end < file.length && file.subarray(6, 10).every((byte) => byte < 128) ? end : 0;
}

/** The length of a WAV file with plain samples; null for everything else. */
function waveSeconds(file: Buffer, start: number): number | null {
  if (file.toString("latin1", start, start + 4) !== "RIFF") return null;
  if (file.toString("latin1", start + 8, start + 12) !== "WAVE") return null;
  let bytesPerSecond: number | null = null;
  let at = start + 12;
  for (let count = 0; count < CHUNKS_MAX && at + 8 <= file.length; count++) {
    const id = file.toString("latin1", at, at + 4);
    const size = file.readUInt32LE(at + 4);
    if (id === "data") return bytesPerSecond && (file.length - start) / bytesPerSecond;
    if (id === "fmt ") {
      // Decoders disagree on which of two counts.
      if (bytesPerSecond !== null) return null;
      bytesPerSecond = rateOf(file, at + 8);
      if (bytesPerSecond === null) return null;
    }
    at += 8 + size + (size % 2);
  }
  return null;
}

/** Integer and float samples. In other formats a byte can be any length of sound. */
const PLAIN_SAMPLES: ReadonlySet<number> = new Set([1, 3]);

function rateOf(file: Buffer, at: number): number | null {
  if (at + 16 > file.length) return null;
  const channels = file.readUInt16LE(at + 2);
  const rate = file.readUInt32LE(at + 4);
  const bytesPerSecond = file.readUInt32LE(at + 8);
  const frameBytes = file.readUInt16LE(at + 12);
  const bits = file.readUInt16LE(at + 14);
  const isPlain = PLAIN_SAMPLES.has(file.readUInt16LE(at)) && [8, 16, 24, 32, 64].includes(bits);
  const isUsual =
    channels >= 1 && channels <= CHANNELS_MAX && rate >= SAMPLE_RATES.min && rate <= SAMPLE_RATES.max;
  const agrees = frameBytes === (channels * bits) / 8 && bytesPerSecond === rate * frameBytes;
  return isPlain && isUsual && agrees ? Math.min(bytesPerSecond, BYTES_PER_SECOND_MAX) : null;
}

const KILOBITS: Readonly<Record<string, readonly number[]>> = {
  "1/1": [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
  "1/2": [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
  "1/3": [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  "2/1": [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
  "2/2": [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
  "2/3": [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
};
const HERTZ = [44_100, 48_000, 32_000];

/** Length and size of the MPEG frame at a position; null if there is none. */
function frameAt(file: Buffer, at: number): { seconds: number; bytes: number } | null {
  if (at + 4 > file.length || file[at] !== 0xff || (file[at + 1]! & 0xe0) !== 0xe0) return null;
  const version = (file[at + 1]! >> 3) & 3;
  const layer = 4 - ((file[at + 1]! >> 1) & 3);
  const hertzIndex = (file[at + 2]! >> 2) & 3;
  if (version === 1 || layer === 4 || hertzIndex === 3) return null;
  const isFirst = version === 3;
  const kilobits = KILOBITS[`${isFirst ? 1 : 2}/${layer}`]![file[at + 2]! >> 4] ?? 0;
  if (kilobits === 0) return null;
  const hertz = HERTZ[hertzIndex]! / (isFirst ? 1 : version === 2 ? 2 : 4);
  const samples = layer === 1 ? 384 : layer === 3 && !isFirst ? 576 : 1_152;
  const slotBytes = layer === 1 ? 4 : 1;
  const padding = (file[at + 2]! >> 1) & 1;
  const slots = Math.floor(((samples / 8 / slotBytes) * kilobits * 1_000) / hertz) + padding;
  return { seconds: samples / hertz, bytes: slots * slotBytes };
}

/** Sums the MPEG frames; other bytes count at the lowest bit rate. */
async function frameSeconds(file: Buffer, start: number): Promise<number> {
  let seconds = 0;
  let at = start;
  let count = 0;
  for (let frame = frameAt(file, at); frame; frame = frameAt(file, at)) {
    seconds += frame.seconds;
    at += frame.bytes;
    if (++count % FRAMES_PER_TURN === 0) await nextTurn();
  }
  return seconds + atRate(Math.max(0, file.length - at) + start, LOWEST_BITS_PER_SECOND);
}

/** FLAC and Opus encode silence in very few bytes, so their frames' own lengths are summed, as a decoder does. */
async function sparseSeconds(file: Buffer, start: number): Promise<number> {
  // In a container a frame mark may be a coincidence; only a plain FLAC file reliably states its sample rate.
  const isPlain = file.toString("latin1", start, start + 4) === "fLaC" && file.length > start + 21;
  const usualHertz = isPlain ? file.readUInt32BE(start + 18) >>> 12 : 0;
  let seconds = 0;
  let count = 0;
  const sum = async (mark: string | number, secondsAt: (at: number) => number) => {
    for (let at = file.indexOf(mark); at !== -1; at = file.indexOf(mark, at + 1)) {
      seconds += secondsAt(at);
      if (++count % FRAMES_PER_TURN === 0) await nextTurn();
    }
  };
  if (file.includes("fLaC")) await sum(0xff, (at) => flacSeconds(file, at, usualHertz));
  if (file.includes("OpusHead")) await sum("OggS", (at) => opusSeconds(file, at));
  return seconds;
}

const FLAC_HERTZ = [
  0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000,
];

/** The length of the FLAC frame at a position. Random look-alikes are too rare to exceed the 8 kbit/s estimate. */
function flacSeconds(file: Buffer, at: number, usualHertz: number): number {
  if ((file[at + 1]! & 0xfe) !== 0xf8 || file[at + 3]! & 1) return 0;
  const [size, rate] = [file[at + 2]! >> 4, file[at + 2]! & 15];
  // Unusual sizes and rates follow the frame number, which is coded like UTF-8.
  const sizeAt = at + 4 + Math.max(1, Math.clz32(~(file[at + 4]! << 24)));
  const rateAt = sizeAt + (size === 6 ? 1 : size === 7 ? 2 : 0);
  if (size === 0 || rate === 15 || rateAt + 2 > file.length) return 0;
  const usual = size === 1 ? 192 : size < 6 ? 144 << size : 1 << size;
  const samples = rateAt > sizeAt ? file.readUIntBE(sizeAt, rateAt - sizeAt) + 1 : usual;
  const written = rate === 12 ? file[rateAt]! * 1_000 : file.readUInt16BE(rateAt) * (rate === 14 ? 10 : 1);
  const hertz = FLAC_HERTZ[rate] ?? written;
  return samples / (hertz || usualHertz || SAMPLE_RATES.min);
}

/** The length of the Opus packets that begin in this Ogg page. Silence takes a byte or two for up to 120 ms. */
function opusSeconds(file: Buffer, page: number): number {
  const sizesEnd = Math.min(file.length, page + 27 + (file[page + 26] ?? 0));
  let [ms, at, isNew] = [0, sizesEnd, true];
  for (let sizeAt = page + 27; sizeAt < sizesEnd; sizeAt++) {
    const size = file[sizeAt]!;
    if (isNew && size > 0) ms += packetMs(file[at] ?? 0, file[at + 1] ?? 0);
    at += size;
    isNew = size < 255;
  }
  return ms / 1_000;
}

/** The length of a packet from its first two bytes: frame configuration and frame count. */
function packetMs(kind: number, count: number): number {
  const step = (kind >> 3) & 3;
  const frames = (kind & 3) === 3 ? count & 63 : Math.min(2, (kind & 3) + 1);
  const frameMs =
    kind >= 128 ? 2.5 * 2 ** step : kind >= 96 ? 10 << (step & 1) : step === 3 ? 60 : 10 << step;
  return Math.min(120, frames * frameMs);
}
