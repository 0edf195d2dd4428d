/** Pictures that the tool has taken, looked at pixel by pixel. */
import { inflateSync } from "node:zlib";

export interface Picture {
  width: number;
  height: number;
  /** How dark a pixel is, from 0 to 255. */
  dark(x: number, y: number): number;
}

/** PNG with eight bits a channel, as screenshots are. */
export function decodePng(bytes: Buffer): Picture {
  const width = bytes.readUInt32BE(16);
  const height = bytes.readUInt32BE(20);
  const channels = bytes[25] === 6 ? 4 : 3;
  const parts: Buffer[] = [];
  for (let at = 8; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    if (bytes.toString("latin1", at + 4, at + 8) === "IDAT")
      parts.push(bytes.subarray(at + 8, at + 8 + length));
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const stride = width * channels;
  const pixels = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (stride + 1)]!;
    for (let i = 0; i < stride; i++) {
      const left = i >= channels ? pixels[y * stride + i - channels]! : 0;
      const up = y > 0 ? pixels[(y - 1) * stride + i]! : 0;
      const corner = i >= channels && y > 0 ? pixels[(y - 1) * stride + i - channels]! : 0;
      const value = raw[y * (stride + 1) + 1 + i]!;
      pixels[y * stride + i] = value + [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter]!;
    }
  }
  const dark = (x: number, y: number) => {
    const at = (y * width + x) * channels;
    return 255 - Math.round((pixels[at]! + pixels[at + 1]! + pixels[at + 2]!) / 3);
  };
  return { width, height, dark };
}

function paeth(left: number, up: number, corner: number): number {
  const guess = left + up - corner;
  const [a, b, c] = [left, up, corner].map((value) => Math.abs(guess - value)) as [number, number, number];
  if (a <= b && a <= c) return left;
  return b <= c ? up : corner;
}

/** How many corners a regular outline has that runs around the middle: its distance from there rises as often. */
export function cornersIn({ width, height, dark }: Picture): number {
  const [middleX, middleY] = [width / 2, height / 2];
  const reach: number[] = [];
  for (let degree = 0; degree < 360; degree++) {
    const [dx, dy] = [Math.cos((degree * Math.PI) / 180), Math.sin((degree * Math.PI) / 180)];
    let far = 0;
    for (let r = 0; r < Math.min(middleX, middleY) - 1; r += 0.25)
      if (dark(Math.round(middleX + dx * r), Math.round(middleY + dy * r)) > 100) far = r;
    reach.push(far);
  }
  /** How strongly the distance swings so many times in a turn. */
  const swing = (times: number) => {
    const sum = (wave: (angle: number) => number) =>
      reach.reduce((total, far, degree) => total + far * wave((times * degree * Math.PI) / 180), 0);
    return Math.hypot(sum(Math.cos), sum(Math.sin));
  };
  return [3, 4, 5, 6, 7].toSorted((a, b) => swing(b) - swing(a))[0]!;
}
