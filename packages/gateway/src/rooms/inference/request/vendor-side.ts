import type { BackendConfig } from "../../../backends/contract.ts";
import { failField } from "../../../kernel/errors.ts";
import { isObject, objectsIn } from "../../../kernel/json.ts";
import { spendNumber } from "./fields.ts";
import { HISTORIES, type Payload } from "./payload.ts";

/** Tools that the client runs, or that vendors bill only by tokens. Every other tool needs a price. */
const FREE =
  /^(function|custom|namespace|mcp|mcp_toolset|local_shell|apply_patch|browser_toolset_.*|(bash|text_editor|computer|memory|web_fetch|tool_search)(_.*)?|function_?declarations|url_?context|code_?execution|computer_?use)$/i;
/** Chat fields that make the vendor search the web. */
const SEARCHES = ["web_search_options", "search_parameters", "plugins", "enable_search"];
/** Number of calls to hold for if the request does not limit them. */
const CALLS_USUAL = 10;
/** Without version or `_preview`: `web_search_20250305` becomes `web_search`. */
const nameOf = (type: string): string => type.replace(/(_preview)?(_\d[\d_]*)?$/, "");

export interface VendorTool {
  name: string;
  field: string;
  callsMax: number;
  definition: unknown;
}

/** The tools of a request that the vendor runs and bills, at the operator's prices. */
export class VendorTools {
  constructor(
    readonly tools: readonly VendorTool[],
    readonly prices: Readonly<Record<string, number>> = {},
  ) {}

  /** The field of a tool that has no price; null if all have one. */
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
  /** Cost of the named calls. Null: the answer does not show its calls, so all that were allowed count. */
  usdOf(calls: readonly string[] | null): number {
    return calls?.reduce((usd, call) => usd + this.#usdOf(nameOf(call)), 0) ?? this.mostUsd;
  }
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** Every list of tools in a request, with its field; messages and items may add tools later. */
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

/** Cached: both pricing and the check for vendor-kept files need them. */
export const vendorToolsIn = (payload: Payload): readonly VendorTool[] =>
  (payload.vendorTools ??= findTools(payload));

function findTools(payload: Payload): VendorTool[] {
  const found: VendorTool[] = [];
  const limit = () => spendNumber(payload.sent("max_tool_calls"), "max_tool_calls") ?? CALLS_USUAL;
  const add = (tools: unknown, where: string): void => {
    for (const [at, tool] of listOf(tools).entries()) {
      if (!isObject(tool)) continue;
      const { type, max_uses, name, environment } = tool;
      const field = `${where}.${at}`;
      const isLocal = type === "shell" && isObject(environment) && environment.type === "local";
      // Gemini's tools have no type: each member is a tool.
      const names = typeof type === "string" ? [type] : name === undefined ? Object.keys(tool) : [];
      for (const each of names.filter((word) => !isLocal && !FREE.test(word)))
        found.push({
          ...{ name: nameOf(each), field, definition: type === each ? tool : tool[each] },
          callsMax: spendNumber(max_uses, `${field}.max_uses`) ?? limit(),
        });
      add(tool.tools, `${field}.tools`);
    }
  };
  for (const [field, tools] of toolLists(payload)) add(tools, field);
  for (const field of SEARCHES)
    if (payload.sent(field)) found.push({ name: "web_search", field, callsMax: 1, definition: null });
  return found;
}

/** Names of the vendor's tools that an answer, or one event of it, shows as called. */
export function vendorCallsIn(answer: Record<string, unknown>): string[] {
  const { content_block: block, type, item, content, output, candidates } = answer;
  const shown = objectsIn([block, type === "response.output_item.added" && item, content, output].flat());
  const calls = shown.flatMap(({ type, name }) => {
    if (type === "server_tool_use") return [String(name).replace(/^(bash|text_editor)_/, "")];
    const call = /^(?!function|custom_tool|mcp)(.+)_call$/.exec(String(type))?.[1];
    return call ? [call] : [];
  });
  const searches = [candidates].flat().flatMap((candidate) => {
    const grounding = isObject(candidate) ? candidate.groundingMetadata : null;
    return isObject(grounding) && Array.isArray(grounding.webSearchQueries) ? grounding.webSearchQueries : [];
  });
  return [...calls, ...searches.map(() => "googleSearch")];
}

/** References in a tool's definition to something that the vendor keeps. */
const KEPT = /"(vector_store_ids|file_ids|container_id|skill_id|file_?search_?store_?names)":|"container":"/i;

/** The field in which a message refers to a file kept by the vendor. Tool arguments are the client's own data. */
function fileIn(value: unknown): string | null {
  if (Array.isArray(value)) return value.reduce((found, each) => found ?? fileIn(each), null);
  if (!isObject(value) || value.type === "tool_use" || value.functionCall || value.functionResponse)
    return null;
  if (typeof value.file_id === "string") return "file_id";
  const uri = value.fileUri ?? value.file_uri;
  if (typeof uri === "string" && /(^|\/)files\//.test(uri)) return "fileUri";
  // Google would read its storage with the operator's rights.
  if (/^\W*gs:/i.test(JSON.stringify(uri ?? value.url))) return "gs:";
  const { annotations: _, ...others } = value;
  return fileIn(Object.values(others));
}

/** Refuses references to anything the vendor keeps: all users share the operator's account there. */
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
    if (payload.repeatsNamesIn(name))
      failField(
        name,
        "has an object with two members of one name, which may refer to a file: name each once",
      );
  }
}
