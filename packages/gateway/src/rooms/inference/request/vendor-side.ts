import type { BackendConfig } from "../../../backends/contract.ts";
import { failField } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { spendNumber } from "./field-rules.ts";
import type { Payload } from "./payload.ts";

/** Tools that clients run themselves, or for which vendors ask nothing but tokens. Of all others a price must be known. */
const FREE =
  /^(function|custom|namespace|mcp|mcp_toolset|local_shell|apply_patch|browser_toolset_.*|(bash|text_editor|computer|memory|web_fetch|tool_search)(_.*)?|function_?declarations|url_?context|code_?execution|computer_?use)$/i;
/** Fields of chats that have the vendor search. */
const SEARCHES = ["web_search_options", "search_parameters", "plugins", "enable_search"];
/** Calls that are held for where the request does not limit them. */
const CALLS_USUAL = 10;
/** `web_search_20250305` and `web_search_preview` are `web_search`. */
const nameOf = (type: string): string => type.replace(/(_preview)?(_\d[\d_]*)?$/, "");

export interface VendorTool {
  name: string;
  field: string;
  callsMax: number;
  definition: unknown;
}

/** The tools of a request that a vendor runs and charges for, at the operator's prices. */
export class VendorTools {
  constructor(
    readonly tools: readonly VendorTool[],
    readonly prices: Readonly<Record<string, number>> = {},
  ) {}

  /** The field of one without a price; null: there is none. */
  get unpriced(): string | null {
    const tool = this.tools.find(({ name }) => !Object.hasOwn(this.prices, name));
    return tool ? `\`${tool.field}\` (${tool.name})` : null;
  }
  get mostUsd(): number {
    return this.tools.reduce((usd, { name, callsMax }) => usd + this.#usdOf(name) * callsMax, 0);
  }
  #usdOf(name: string): number {
    return Object.hasOwn(this.prices, name) ? this.prices[name]! : 0;
  }
  /** Of calls by name; null: the answer does not show them, so all that the request allows count as made. */
  usdOf(calls: readonly string[] | null): number {
    return calls?.reduce((usd, call) => usd + this.#usdOf(nameOf(call)), 0) ?? this.mostUsd;
  }
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const objectsIn = (value: unknown): Record<string, unknown>[] => listOf(value).filter(isObject);

/** Every list of tools in a request, with its field: later messages and items may add some. */
function toolLists(payload: Payload): [string, unknown][] {
  const lists: [string, unknown][] = [["tools", payload.sent("tools")]];
  for (const [at, item] of listOf(payload.value("input")).entries())
    if (isObject(item) && item.tools) lists.push([`input.${at}.tools`, item.tools]);
  if (!payload.mayNameVendors) return lists;
  for (const [at, message] of objectsIn(payload.value("messages")).entries())
    for (const block of objectsIn(message.content))
      for (const { tool } of [block, ...objectsIn(block.tool_changes)])
        if (isObject(tool)) lists.push([`messages.${at}.content`, [tool.definition]]);
  return lists;
}

/** Looked for once: for their price, and for what the vendor keeps for them. */
export const vendorToolsIn = (payload: Payload): readonly VendorTool[] =>
  (payload.vendorTools ??= findTools(payload));

function findTools(payload: Payload): VendorTool[] {
  const found: VendorTool[] = [];
  const limit = () => spendNumber(payload.sent("max_tool_calls") ?? null, "max_tool_calls") ?? CALLS_USUAL;
  const add = (tools: unknown, where: string): void => {
    for (const [at, tool] of listOf(tools).entries()) {
      if (!isObject(tool)) continue;
      const { type, max_uses, name, environment } = tool;
      const field = `${where}.${at}`;
      const isLocal = type === "shell" && isObject(environment) && environment.type === "local";
      // Gemini's tools have no type: each member is one.
      const names = typeof type === "string" ? [type] : name === undefined ? Object.keys(tool) : [];
      for (const each of names.filter((word) => !isLocal && !FREE.test(word)))
        found.push({
          ...{ name: nameOf(each), field, definition: type === each ? tool : tool[each] },
          callsMax: spendNumber(max_uses ?? null, `${field}.max_uses`) ?? limit(),
        });
      add(tool.tools, `${field}.tools`);
    }
  };
  for (const [field, tools] of toolLists(payload)) add(tools, field);
  for (const field of SEARCHES)
    if (payload.sent(field)) found.push({ name: "web_search", field, callsMax: 1, definition: null });
  return found;
}

/** The vendor's tools that an answer, or one event of it, shows to have been called: also one whose end nobody waits for. */
export function vendorCallsIn(answer: Record<string, unknown>): string[] {
  const { content_block: block, type, item, content, output, candidates } = answer;
  const shown = [block, type === "response.output_item.added" && item, content, output]
    .flat()
    .filter(isObject);
  const calls = shown.flatMap(({ type, name }) => {
    if (type === "server_tool_use") return [String(name).replace(/^(bash|text_editor)_/, "")];
    const call = /^(?!function|custom_tool|mcp)(.+)_call$/.exec(String(type))?.[1];
    return call ? [call] : [];
  });
  const searches = [candidates].flat().flatMap((candidate) => {
    const told = isObject(candidate) ? candidate.groundingMetadata : null;
    return isObject(told) && Array.isArray(told.webSearchQueries) ? told.webSearchQueries : [];
  });
  return [...calls, ...searches.map(() => "googleSearch")];
}

const HISTORIES = ["messages", "input", "contents"];
/** What a vendor keeps, in the definition of its tool. */
const KEPT = /"(vector_store_ids|file_ids|container_id|skill_id|file_?search_?store_?names)":|"container":"/i;

/** Where a message names a file that the vendor keeps; what tools were called with is the client's own. */
function fileIn(value: unknown): string | null {
  if (Array.isArray(value)) return value.reduce((found, each) => found ?? fileIn(each), null);
  if (!isObject(value) || value.type === "tool_use" || value.functionCall || value.functionResponse)
    return null;
  if (typeof value.file_id === "string") return "file_id";
  const uri = value.fileUri ?? value.file_uri;
  if (typeof uri === "string" && /(^|\/)files\//.test(uri)) return "fileUri";
  // Google reads its storage with the operator's rights.
  if (/^gs:/i.test(String(uri ?? value.url))) return "gs:";
  return Object.keys(value).reduce<string | null>(
    (found, key) => found ?? (key === "annotations" ? null : fileIn(value[key])),
    null,
  );
}

/** Refuses what a vendor keeps under an id: all users of the gateway share the operator's account there. */
export function requireOwnFiles(payload: Payload, { shared_files }: BackendConfig): void {
  if (shared_files) return;
  const words =
    "names something in the operator's account with the vendor, which all users share: send the content itself, or ask an administrator to set `shared_files` on the backend";
  for (const name of ["container", "thread", "cachedContent", "cached_content"])
    if (payload.sent(name) != null) failField(name, words);
  for (const { field, definition } of vendorToolsIn(payload))
    if (KEPT.test(JSON.stringify(definition))) failField(field, words);
  if (!payload.mayNameVendors) return;
  for (const name of HISTORIES) {
    const found = fileIn(payload.value(name));
    if (found) failField(`${name} … ${found}`, words);
  }
}
