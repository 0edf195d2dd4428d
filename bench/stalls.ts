/**
 * `bun bench/stalls.ts`: how long one request can keep the event loop from all others. Sends the largest bodies that
 * are accepted, each made to be as costly as the limits allow, and prints the longest stall of each.
 */
import { Stalls } from "@model-gateway/testing/stalls.ts";
import {
  CONTAINERS_MAX,
  ESCAPES_MAX,
  OUTSIDE_STRINGS_CHARS_MAX,
  STRINGS_MAX,
} from "../packages/gateway/src/kernel/json-scan.ts";
import { startGateway } from "./lib/gateway.ts";
import { startServer, stopAll } from "./lib/processes.ts";

const ROUNDS = 5;
const BODY_BYTES = 31 * 1024 * 1024;

const watched = new Stalls();
Object.assign(process.env, watched.env, { BENCH_GATEWAY_FLAGS: `--preload ${watched.preload}` });

const filled = (piece: string, bytes = BODY_BYTES) => piece.repeat(Math.floor(bytes / piece.length));
const times = (count: number, piece: string) => piece.repeat(count).slice(0, -1);
const chat = (messages: string, rest = "") => `{"model":"bench","messages":${messages}${rest}}`;
const user = (content: string) => `[{"role":"user","content":${content}}]`;

/** With this many strings, and as much between them as is allowed. */
const share = Math.floor(BODY_BYTES / STRINGS_MAX) - 3;
const between = " ".repeat(Math.floor(OUTSIDE_STRINGS_CHARS_MAX / STRINGS_MAX) - 2);
const messages = Math.floor(STRINGS_MAX / 4) - 10;

const BODIES: Record<string, [path: string, body: string]> = {
  "a picture": [
    "/v1/chat/completions",
    chat(user(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,${filled("iVBO")}"}}]`)),
  ],
  "one long text": ["/v1/chat/completions", chat(user(`"${filled("some words of a text ")}"`))],
  "one long text in Chinese": ["/v1/chat/completions", chat(user(`"${filled("你好世界", BODY_BYTES / 3)}"`))],
  "as many escapes as allowed": [
    "/v1/chat/completions",
    chat(user(`"${"0123456789abcdef\\n".repeat(ESCAPES_MAX - 10)}"`)),
  ],
  "as many messages as allowed": [
    "/v1/chat/completions",
    chat(`[${times(messages, '{"role":"user","content":"x"},')}]`),
  ],
  "as many long messages as allowed": [
    "/v1/chat/completions",
    chat(`[${times(messages, `{"role":"user","content":"${"y".repeat(share * 4 - 20)}"},`)}]`),
  ],
  "as many members as allowed": [
    "/v1/chat/completions",
    chat(
      user('"hi"'),
      `,"metadata":{${Array.from({ length: Math.floor(STRINGS_MAX / 2) - 10 }, (_, i) => `"k${i}":"v"`).join()}}`,
    ),
  ],
  "strings and white space": [
    "/v1/chat/completions",
    chat(
      user('"hi"'),
      `,"stop":[${times(STRINGS_MAX - 20, `"${"z".repeat(share - between.length)}"${between},`)}]`,
    ),
  ],
  "brackets and numbers": [
    "/v1/chat/completions",
    chat(user('"hi"'), `,"x":[${times(CONTAINERS_MAX - 10, `[${times(18, "1,")}],`)}]`),
  ],
  "token ids": [
    "/v1/embeddings",
    `{"model":"bench","input":[${times(Math.floor((OUTSIDE_STRINGS_CHARS_MAX - 1_000) / 2), "1,")}]}`,
  ],
  "texts to embed": [
    "/v1/embeddings",
    `{"model":"bench","input":[${times(STRINGS_MAX - 20, `"${"w".repeat(share)}",`)}]}`,
  ],
  "messages, through another interface": [
    "/v1/messages",
    `{"model":"bench","max_tokens":10,"messages":[${times(messages, '{"role":"user","content":"x"},')}]}`,
  ],
  "input, through another interface": [
    "/v1/responses",
    `{"model":"bench","input":[${times(messages, '{"role":"user","content":"x"},')}]}`,
  ],
  "a long text, through another interface": [
    "/v1/responses",
    `{"model":"bench","input":"${filled("some words of a text ")}"}`,
  ],
};

const upstream = await startServer("upstream.ts");
const gateway = await startGateway({ upstreamPort: upstream.port, name: "stalls" });

const only = process.argv[2];
console.log("| Body | MiB | Answer | Longest stall, ms | most processor time, ms |\n|---|---|---|---|---|");
try {
  for (const [name, [path, body]] of Object.entries(BODIES)) {
    if (only && !name.includes(only)) continue;
    const stalls = [];
    let status = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const ask = async () => {
        const response = await fetch(`${gateway.url}${path}`, {
          method: "POST",
          headers: { authorization: `Bearer ${gateway.key}`, "content-type": "application/json" },
          body,
        });
        status = response.status;
        const text = await response.text();
        if (status !== 200 && round === 0) console.error(name, text.slice(0, 200));
      };
      stalls.push(await watched.during(ask));
    }
    const wallMs = Math.max(...stalls.map((stall) => stall.wallMs));
    const cpuMs = Math.max(...stalls.map((stall) => stall.cpuMs));
    const mib = (Buffer.byteLength(body) / 2 ** 20).toFixed(1);
    console.log(`| ${name} | ${mib} | ${status} | ${wallMs.toFixed(1)} | ${cpuMs.toFixed(1)} |`);
  }
} finally {
  await stopAll();
  watched.remove();
}
