/** Anthropic's Messages API, from the types of @anthropic-ai/sdk and its documents; it refuses what the real one does. */
import {
  type Block,
  blocksOf,
  CLAUDE_MODELS,
  type ClaudeModel,
  checkRequest,
  contentOf,
  type Json,
  mannerOf,
  refuse,
  TTL_MS,
} from "./anthropic-rules.ts";
import type { BilledTokens } from "./bill.ts";
import {
  type Desk,
  type Exchange,
  type FakeVendor,
  spokenTokens,
  startVendor,
  thinkingTokens,
  type VendorOptions,
  within,
  words,
} from "./model.ts";
import { prefixKeys } from "./prefix-cache.ts";

const LOOK_BACK_BLOCKS = 20;
const BODY_BYTES_MAX = 32 * 1024 * 1024;

export function startAnthropic(options: VendorOptions = {}): FakeVendor {
  return startVendor("sk-ant-api03-fake", options, (desk) => {
    /** Tool calls that were made beside a thinking block, which has to come back with them. */
    const thoughtCalls = new Set<string>();
    return async (exchange) => {
      const { request, reply } = exchange;
      const { pathname: path, searchParams } = new URL(request.path, "http://fake");
      const manner = mannerOf(desk, request.headers);
      if (request.bytes.length > BODY_BYTES_MAX)
        refuse("Request exceeds the maximum size of 33554432 bytes", 413);
      if (request.method === "GET" && path === "/v1/models")
        return reply.json(listing(Number(searchParams.get("limit") ?? 20)));
      if (request.method === "POST" && path === "/v1/messages/count_tokens") {
        checkRequest(request.json, manner, { isCount: true });
        return reply.json({
          input_tokens: blocksOf(request.json).reduce((sum, block) => sum + block.tokens, 0),
        });
      }
      if (request.method !== "POST" || path !== "/v1/messages") refuse("Not Found", 404);
      checkRequest(request.json, manner, { isCount: false });
      await message(desk, thoughtCalls, exchange);
    };
  });
}

function listing(limit: number) {
  const data = Object.keys(CLAUDE_MODELS).map((id) => ({
    id,
    type: "model",
    display_name: id,
    created_at: "2026-01-01T00:00:00Z",
    max_input_tokens: 1_000_000,
    max_tokens: 128_000,
  }));
  const page = data.slice(0, limit);
  return { data: page, has_more: page.length < data.length, first_id: page[0]?.id, last_id: page.at(-1)?.id };
}

/** Thinking comes back as it was made, beside the calls that it led to. */
function checkThinking(desk: Desk, body: Json, blocks: readonly Block[], keys: readonly string[]): void {
  blocks.forEach(({ type, value, message, index }, at) => {
    if (type !== "thinking" && type !== "redacted_thinking") return;
    const where = `messages.${message}.content.${index}`;
    const [text, model, prefix] = desk.seals.open(value.signature ?? value.data) ?? [];
    if (text === undefined || text !== (value.thinking ?? ""))
      refuse(`${where}: Invalid \`signature\` in \`thinking\` block`);
    const isBound = CLAUDE_MODELS[model ?? ""]?.isPreserving && model === body.model;
    if (isBound && prefix !== (keys[at - 1] ?? ""))
      refuse(`${where}: this \`thinking\` block is bound to a different conversation`);
  });
}

function checkKeptThinking(thoughtCalls: ReadonlySet<string>, body: Json): void {
  if (body.thinking?.type === "disabled") return;
  body.messages.forEach((message: Json, at: number) => {
    if (message.role !== "assistant") return;
    const content = contentOf(message);
    const lacks =
      content.some(({ type, id }) => type === "tool_use" && thoughtCalls.has(id)) &&
      !/thinking$/.test(content[0].type);
    if (lacks)
      refuse(
        `messages.${at}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${content[0].type}\`.`,
      );
  });
}

interface CacheUse extends Omit<BilledTokens, "output"> {
  commit(): void;
}

function readCache(desk: Desk, body: Json, blocks: readonly Block[], keys: readonly string[]): CacheUse {
  const { cache } = desk;
  let total = 0;
  const ends = blocks.map(({ tokens }) => {
    total += tokens;
    return total;
  });
  const { cacheTokensMin } = CLAUDE_MODELS[body.model] as ClaudeModel;
  const breakpoints = blocks.flatMap(({ ttl }, at) =>
    ttl !== null && (ends[at] ?? 0) >= cacheTokensMin ? [{ at, ttl }] : [],
  );
  const hits = breakpoints.flatMap(({ at }) => {
    const from = Math.max(0, at - LOOK_BACK_BLOCKS + 1);
    const found = keys.slice(from, at + 1).findLastIndex((key) => cache.has(key));
    return found < 0 ? [] : [from + found];
  });
  const hit = Math.max(-1, ...hits);
  const cached = ends[hit] ?? 0;
  const written = { "5m": 0, "1h": 0 };
  let end = cached;
  for (const { at, ttl } of breakpoints) {
    if (at <= hit) continue;
    written[ttl as "5m" | "1h"] += (ends[at] ?? 0) - end;
    end = ends[at] ?? 0;
  }
  return {
    fresh: total - end,
    cached,
    write5m: written["5m"],
    write1h: written["1h"],
    commit: () => {
      if (hit >= 0) cache.use(keys[hit] ?? "");
      for (const { at, ttl } of breakpoints) if (at > hit) cache.write(keys[at] ?? "", TTL_MS[ttl] ?? 0);
    },
  };
}

async function message(desk: Desk, thoughtCalls: Set<string>, exchange: Exchange): Promise<void> {
  const { request, reply } = exchange;
  const body = request.json;
  const blocks = blocksOf(body);
  const keys = prefixKeys(
    body.model,
    blocks.map(({ text }) => text),
  );
  checkThinking(desk, body, blocks, keys);
  checkKeptThinking(thoughtCalls, body);
  const model = CLAUDE_MODELS[body.model] as ClaudeModel;
  const use = readCache(desk, body, blocks, keys);
  const tools = body.tool_choice?.type === "none" ? [] : (body.tools ?? []);
  const asked = desk.script({
    model: body.model,
    step: body.messages.filter(({ role }: Json) => role === "assistant").length,
    tools: tools.map(({ name }: Json) => name),
  });
  const isThinking = body.thinking && body.thinking.type !== "disabled";
  const turn = within({ ...asked, thinking: isThinking ? asked.thinking : undefined }, body.max_tokens);
  const shown = model.isAdaptiveOnly && body.thinking?.display !== "summarized" ? "" : turn.thinking;
  const content: Json[] = [];
  if (turn.thinking !== undefined) {
    const signature = desk.seals.seal(shown ?? "", body.model, keys.at(-1) ?? "");
    content.push({ type: "thinking", thinking: shown, signature });
  }
  if (turn.text) content.push({ type: "text", text: turn.text, citations: null });
  for (const { name, args } of turn.calls ?? []) {
    const id = desk.nextId("toolu_");
    if (turn.thinking !== undefined) thoughtCalls.add(id);
    content.push({ type: "tool_use", id, name, input: args, caller: { type: "direct" } });
  }
  const output = thinkingTokens(turn) + spokenTokens(turn);
  const usage = {
    input_tokens: use.fresh,
    cache_creation_input_tokens: use.write5m + use.write1h,
    cache_read_input_tokens: use.cached,
    cache_creation: { ephemeral_5m_input_tokens: use.write5m, ephemeral_1h_input_tokens: use.write1h },
    output_tokens: output,
    output_tokens_details: { thinking_tokens: thinkingTokens(turn) },
    server_tool_use: null,
    service_tier: "standard",
    speed: "standard",
    inference_geo: "global",
  };
  const id = desk.nextId("msg_");
  const stop_reason = turn.isCut ? "max_tokens" : turn.calls?.length ? "tool_use" : "end_turn";
  const answer = {
    ...{ id, type: "message", role: "assistant", model: body.model, content, container: null },
    ...{ stop_reason, stop_sequence: null, stop_details: null, usage },
  };
  const headers = {
    "request-id": desk.nextId("req_"),
    "anthropic-ratelimit-requests-limit": "1000",
    "anthropic-ratelimit-requests-remaining": "999",
  };
  use.commit();
  const { commit, ...parts } = use;
  const charge = (share: number) =>
    desk.bill.add({ id, model: body.model, ...parts, output: Math.ceil(output * share) }, model.rates);
  if (body.stream) return desk.stream(exchange, { pieces: events(answer), headers, ended: charge });
  charge(1);
  await reply.json(answer, 200, headers);
}

function events({ content, stop_reason, usage, ...message }: Json): string[] {
  const event = (value: Json) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`;
  const start = { ...usage, output_tokens: 1, output_tokens_details: null };
  const { cache_creation, service_tier, speed, inference_geo, ...last } = usage;
  const delta = { stop_reason, stop_sequence: null, stop_details: null, container: null };
  return [
    event({
      type: "message_start",
      message: { ...message, content: [], stop_reason: null, usage: start },
    }),
    event({ type: "ping" }),
    ...content.flatMap((block: Json, index: number) => [
      event({ type: "content_block_start", index, content_block: opened(block) }),
      ...deltas(block).map((delta) => event({ type: "content_block_delta", index, delta })),
      event({ type: "content_block_stop", index }),
    ]),
    event({ type: "message_delta", delta, usage: last }),
    event({ type: "message_stop" }),
  ];
}

function opened(block: Json): Json {
  if (block.type === "thinking") return { ...block, thinking: "", signature: "" };
  if (block.type === "text") return { ...block, text: "" };
  return { ...block, input: {} };
}

function deltas(block: Json): Json[] {
  if (block.type === "thinking")
    return [
      ...words(block.thinking).map((thinking) => ({ type: "thinking_delta", thinking })),
      { type: "signature_delta", signature: block.signature },
    ];
  if (block.type === "text") return words(block.text).map((text) => ({ type: "text_delta", text }));
  const json = JSON.stringify(block.input);
  const half = Math.ceil(json.length / 2);
  return ["", json.slice(0, half), json.slice(half)].map((partial_json) => ({
    type: "input_json_delta",
    partial_json,
  }));
}
