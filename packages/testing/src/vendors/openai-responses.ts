/** OpenAI's Responses API: state, encrypted reasoning and its events. */
import { type Desk, type Exchange, words } from "./model.ts";
import { checkEffort, checkSampling, type Json, modelOf, refuse, run } from "./openai-models.ts";

const FIELDS = new Set([
  ...["access_programs", "background", "context_management", "conversation", "image", "include", "input"],
  ...["instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation"],
  ...["parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"],
  ...["prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream"],
  ...["stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"],
  ...["truncation", "user", "client_metadata"],
]);

/** Items of the model that stand side by side are one turn. */
function modelTurns(items: readonly Json[]): number {
  const isModels = ({ type, role }: Json) =>
    type === "reasoning" || /_call$/.test(type ?? "") || role === "assistant";
  return items.filter((item, at) => isModels(item) && (at === 0 || !isModels(items[at - 1]))).length;
}

interface Stored {
  response: Json;
  /** All that the model has read and said up to here. */
  items: Json[];
}

export class OpenAIResponses {
  readonly #stored = new Map<string, Stored>();
  /** Ids of function calls, and of the reasoning that has to stand before them. */
  readonly #reasoningOf = new Map<string, string>();

  constructor(readonly desk: Desk) {}

  async handle(exchange: Exchange, path: string): Promise<void> {
    const { request, reply } = exchange;
    if (path === "/v1/responses" && request.method === "POST") return this.#create(exchange);
    const id = /^\/v1\/responses\/([^/]+)$/.exec(path)?.[1] ?? "";
    const stored =
      this.#stored.get(id) ??
      refuse(`Response with id '${id}' not found.`, { status: 404, code: "not_found" });
    if (request.method === "GET") return reply.json(stored.response);
    this.#stored.delete(id);
    return reply.json({ id, object: "response", deleted: true });
  }

  #itemsOf(body: Json): Json[] {
    const { input, previous_response_id: previous } = body;
    const given = typeof input === "string" ? [{ role: "user", content: input }] : (input ?? []);
    if (!previous) return given;
    const stored =
      this.#stored.get(previous) ??
      refuse(`Previous response with id '${previous}' not found.`, {
        param: "previous_response_id",
        code: "previous_response_not_found",
      });
    return [...stored.items, ...given];
  }

  #check(body: Json, items: readonly Json[]): void {
    const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
    if (unknown) refuse(`Unknown parameter: '${unknown}'.`, { param: unknown, code: "unknown_parameter" });
    const model = modelOf(body.model);
    const named = body.reasoning?.effort;
    if (named != null) checkEffort(named, model, "reasoning.effort");
    checkSampling(body, named ?? model.effort);
    if (body.tools?.some((tool: Json) => tool.type === "function" && typeof tool.name !== "string"))
      refuse("Missing required parameter: 'tools[0].name'.", {
        param: "tools[0].name",
        code: "missing_required_parameter",
      });
    this.#checkItems(items);
  }

  #checkItems(items: readonly Json[]): void {
    const ids = (types: RegExp) => items.flatMap((item) => (types.test(item.type) ? [item.call_id] : []));
    const [called, answered] = [ids(/_call$/), ids(/_call_output$/)];
    const stray = answered.find((id) => !called.includes(id));
    if (stray)
      refuse(`No tool call found for function call output with call_id ${stray}.`, { param: "input" });
    const missing = called.find((id) => !answered.includes(id));
    if (missing) refuse(`No tool output found for function call ${missing}.`, { param: "input" });
    const thoughts = new Set<string>();
    for (const { type, id, encrypted_content } of items) {
      if (type === "reasoning") {
        thoughts.add(id);
        const isOwn = encrypted_content == null || this.desk.seals.open(encrypted_content)?.[0] === id;
        if (!isOwn)
          refuse(`The encrypted content for item ${id} could not be verified.`, {
            code: "invalid_encrypted_content",
          });
        if (encrypted_content == null && !this.#isStored(id))
          refuse(`Item with id '${id}' not found. Items are not persisted when \`store\` is set to false.`, {
            status: 404,
            param: "input",
          });
      }
      const needed = this.#reasoningOf.get(id);
      if (needed && !thoughts.has(needed))
        refuse(
          `Item '${id}' of type '${type}' was provided without its required 'reasoning' item: '${needed}'.`,
          { param: "input" },
        );
    }
  }

  #isStored(id: string): boolean {
    return [...this.#stored.values()].some(({ items }) => items.some((item) => item.id === id));
  }

  async #create(exchange: Exchange): Promise<void> {
    const { desk } = this;
    const { json: body } = exchange.request;
    const items = this.#itemsOf(body);
    this.#check(body, items);
    const effort = body.reasoning?.effort ?? modelOf(body.model).effort;
    const offered = toolsOf([...(body.tools ?? []), ...items.flatMap(addedTools)]);
    const tools = body.tool_choice === "none" ? [] : offered;
    const instructions = body.instructions ? [{ role: "system", content: body.instructions }] : [];
    const ran = run(desk, {
      body,
      prompt: [...(body.tools ?? []), ...instructions, ...items]
        .map((part) => JSON.stringify(part))
        .join("\n"),
      step: modelTurns(items),
      tools: tools.map(({ name }: Json) => name),
      limit: body.max_output_tokens ?? undefined,
      isReasoning: effort !== null && effort !== "none",
    });
    const output = this.#output(body, offered, ran.turn);
    const isCut = ran.turn.isCut;
    const id = desk.nextId("resp_");
    const usage = {
      input_tokens: ran.promptTokens,
      input_tokens_details: { cached_tokens: ran.cachedTokens, cache_write_tokens: ran.writtenTokens },
      output_tokens: ran.outputTokens,
      output_tokens_details: { reasoning_tokens: ran.reasoningTokens },
      total_tokens: ran.promptTokens + ran.outputTokens,
    };
    const frame = {
      ...{ id, object: "response", created_at: 1_763_000_000, background: false, error: null },
      ...{ model: body.model, instructions: body.instructions ?? null, metadata: body.metadata ?? {} },
      ...{ tools: body.tools ?? [], tool_choice: body.tool_choice ?? "auto", parallel_tool_calls: true },
      ...{ previous_response_id: body.previous_response_id ?? null, store: body.store !== false },
      ...{ reasoning: { effort, summary: null }, text: { format: { type: "text" } }, truncation: "disabled" },
      ...{ temperature: 1, top_p: 1, max_output_tokens: body.max_output_tokens ?? null },
    };
    const open = { ...frame, status: "in_progress", incomplete_details: null, output: [], usage: null };
    const whole = {
      ...frame,
      status: isCut ? "incomplete" : "completed",
      incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
      output,
      usage,
    };
    const ended = (share: number) => {
      ran.charge(id, share);
      if (body.store !== false && share === 1)
        this.#stored.set(id, { response: whole, items: [...items, ...output] });
    };
    const headers = { "x-request-id": desk.nextId("req_"), "x-ratelimit-remaining-requests": "999" };
    if (body.stream) return desk.stream(exchange, { pieces: events(open, whole), headers, ended });
    ended(1);
    await exchange.reply.json(whole, 200, headers);
  }

  #output(
    body: Json,
    offered: readonly Json[],
    { thinking, text, calls = [] }: { thinking?: string; text?: string; calls?: Json },
  ): Json[] {
    const { desk } = this;
    const output: Json[] = [];
    const reasoning = thinking === undefined ? null : desk.nextId("rs_");
    if (reasoning) {
      const summary = body.reasoning?.summary ? [{ type: "summary_text", text: thinking }] : [];
      const encrypted_content = desk.seals.seal(reasoning, thinking ?? "");
      output.push({ id: reasoning, type: "reasoning", summary, encrypted_content });
    }
    if (text) {
      const content = [{ type: "output_text", text, annotations: [], logprobs: [] }];
      output.push({
        id: desk.nextId("msg_"),
        type: "message",
        status: "completed",
        role: "assistant",
        content,
      });
    }
    for (const { name, args } of calls) {
      const id = desk.nextId("fc_");
      const call_id = desk.nextId("call_");
      if (reasoning) this.#reasoningOf.set(id, reasoning);
      const { type, namespace } = offered.find((tool) => tool.name === name);
      const place = { name, ...(namespace && { namespace }) };
      if (type === "custom") {
        output.push({
          id,
          type: "custom_tool_call",
          status: "completed",
          call_id,
          ...place,
          input: args.input,
        });
        continue;
      }
      output.push({
        ...{ id, type: "function_call", status: "completed", call_id, ...place },
        arguments: JSON.stringify(args),
      });
    }
    return output;
  }
}

function events(open: Json, whole: Json): string[] {
  let sequence_number = 0;
  const event = (type: string, rest: Json) =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...rest, sequence_number: sequence_number++ })}\n\n`;
  return [
    event("response.created", { response: open }),
    event("response.in_progress", { response: open }),
    ...whole.output.flatMap((item: Json, output_index: number) => {
      const at = { item_id: item.id, output_index };
      return [
        event("response.output_item.added", { output_index, item: started(item) }),
        ...inner(item).map(([type, rest]) => event(type, { ...at, ...rest })),
        event("response.output_item.done", { output_index, item }),
      ];
    }),
    event(`response.${whole.status}`, { response: whole }),
  ];
}

const addedTools = (item: Json): Json[] => (item.type === "additional_tools" ? item.tools : []);
/** Those in namespaces as well. */
const toolsOf = (tools: readonly Json[]): Json[] =>
  tools.flatMap((tool) =>
    tool.type === "namespace"
      ? tool.tools.map((inner: Json) => ({ ...inner, namespace: tool.name }))
      : tool.name === undefined
        ? []
        : [tool],
  );

function started(item: Json): Json {
  if (item.type === "reasoning") return { ...item, summary: [], encrypted_content: "" };
  if (item.type === "message") return { ...item, status: "in_progress", content: [] };
  if (item.type === "custom_tool_call") return { ...item, status: "in_progress", input: "" };
  return { ...item, status: "in_progress", arguments: "" };
}

/** The events between an item's begin and its end. */
function inner(item: Json): [string, Json][] {
  if (item.type === "reasoning")
    return item.summary.flatMap((part: Json, summary_index: number): [string, Json][] => [
      ["response.reasoning_summary_part.added", { summary_index, part: { ...part, text: "" } }],
      ...words(part.text).map((delta): [string, Json] => [
        "response.reasoning_summary_text.delta",
        { summary_index, delta },
      ]),
      ["response.reasoning_summary_text.done", { summary_index, text: part.text }],
      ["response.reasoning_summary_part.done", { summary_index, part }],
    ]);
  if (item.type === "message") {
    const [part] = item.content;
    const place = { content_index: 0 };
    return [
      ["response.content_part.added", { ...place, part: { ...part, text: "" } }],
      ...words(part.text).map((delta): [string, Json] => [
        "response.output_text.delta",
        { ...place, delta, logprobs: [] },
      ]),
      ["response.output_text.done", { ...place, text: part.text, logprobs: [] }],
      ["response.content_part.done", { ...place, part }],
    ];
  }
  if (item.type === "custom_tool_call")
    return [
      ["response.custom_tool_call_input.delta", { delta: item.input }],
      ["response.custom_tool_call_input.done", { input: item.input }],
    ];
  const half = Math.ceil(item.arguments.length / 2);
  return [
    ["response.function_call_arguments.delta", { delta: item.arguments.slice(0, half) }],
    ["response.function_call_arguments.delta", { delta: item.arguments.slice(half) }],
    ["response.function_call_arguments.done", { arguments: item.arguments, name: item.name }],
  ];
}
