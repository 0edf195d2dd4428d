import { canaryText, type Flight } from "./flights.ts";
import type { ChatRequest, ChatStep, EmbedStep, Member, Prompt, PromptForm } from "./plot.ts";
import { membersAt, objectText, onlyFolds } from "./spelling.ts";
import { textOf } from "./tokens.ts";
import { PREFIXES } from "./upstream/index.ts";

type Members = [key: string, value: string][];

const json = JSON.stringify;
/** One transparent pixel. */
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const SMUGGLED_TOKENS = 3_000;
/** Messages must name a limit. */
const MESSAGES_LIMIT = 4_096;
const DISGUISES: Record<Prompt["disguise"], string> = {
  none: "",
  marker: ";base64,",
  "data-url": "data:image/png;base64,",
  "beside-image": "",
  "odd-part": "",
};

/** The text of a prompt, with the sign by which the upstream knows it again. */
export const promptText = ({ kind, tokens, disguise }: Prompt, { canary }: Flight): string =>
  `${canaryText(canary)} ${DISGUISES[disguise]}${textOf(kind, tokens)}`;

/** Gemini's requests name the model, and whether they stream, in their path. */
export const geminiPath = (request: ChatRequest, flight: Flight): string =>
  `/v1beta/models/${modelId(request, flight)}:${request.stream ? "streamGenerateContent?alt=sse" : "generateContent"}`;

const modelId = ({ upstream, model }: ChatRequest, { modelNumber }: Flight) =>
  `${PREFIXES[upstream]}${model}-${modelNumber}`;

/** Fills in what the grammar could not know. */
const filled = (members: readonly Member[], flight: Flight): Member[] =>
  members.map((member) => ({
    ...member,
    value: member.value
      .replaceAll("#", String(flight.modelNumber))
      .replaceAll("@LONG@", `${canaryText(flight.canary)}${textOf("prose", SMUGGLED_TOKENS)}`),
  }));

const TOOL = (tokens: number) => [
  {
    type: "function",
    function: { name: "look_up", description: textOf("prose", tokens), parameters: { type: "object" } },
  },
];

const IMAGE = { image_url: { url: `data:image/png;base64,${PIXEL}` } };

function messagesOf({ prompt }: ChatRequest, flight: Flight): unknown[] {
  const text = promptText(prompt, flight);
  const images = Array.from({ length: prompt.images }, () => ({ type: "image_url", ...IMAGE }));
  const part = {
    "beside-image": { type: "image_url", text, ...IMAGE },
    "odd-part": { type: "note", note: { body: text } },
    none: images.length > 0 ? { type: "text", text } : null,
    marker: null,
    "data-url": null,
  }[prompt.disguise];
  // Servers may leave out a part that they do not know; whose request it is has to be seen all the same.
  const sign = { type: "text", text: canaryText(flight.canary) };
  return [{ role: "user", content: part ? [sign, part, ...images] : text }];
}

/** `extra` and `options`, where the request has members in them. */
const nested = (members: readonly Member[]): Members =>
  (["extra", "options"] as const).flatMap((place): Members => {
    const inside = membersAt(members, place);
    return inside.length > 0 ? [[place, objectText(inside)]] : [];
  });

export interface ChatContext {
  flight: Flight;
  conversationId: string | null;
}

const ownFields = (request: ChatRequest, { conversationId }: ChatContext): Members => [
  ["memory", json(request.memory)],
  ...(conversationId ? ([["conversation_id", json(conversationId)]] satisfies Members) : []),
];

/** The body of a REST chat, in the API that the step speaks. */
export function chatBody(step: ChatStep, context: ChatContext): string {
  const { flight } = context;
  const { prompt } = step;
  const members = filled(step.members, flight);
  const base: Members = [
    ["model", json(modelId(step, flight))],
    ["stream", json(step.stream)],
  ];
  const rest: Members = [...ownFields(step, context), ...membersAt(members, "top"), ...nested(members)];
  if (step.via === "gemini")
    return objectText([
      ["contents", json([{ role: "user", parts: [{ text: promptText(prompt, flight) }] }])],
      ["generationConfig", json({ maxOutputTokens: MESSAGES_LIMIT })],
      ...membersAt(members, "top"),
      ...nested(members),
    ]);
  if (step.via === "responses" || step.via === "cursor")
    return objectText([...base, ["input", json(promptText(prompt, flight))], ...rest]);
  if (step.via === "completions" || step.via === "raw" || step.via === "generate")
    return objectText([...base, ...textMembers(step, flight), ...rest]);
  const messages: Members = [["messages", json(messagesOf(step, flight))]];
  if (step.via === "ollama") {
    const { images } = prompt;
    const message = { role: "user", content: promptText(prompt, flight), images: Array(images).fill(PIXEL) };
    return objectText([...base, ["messages", json([message])], ...rest]);
  }
  if (step.via === "messages") {
    const plain: Members = [["messages", json([{ role: "user", content: promptText(prompt, flight) }])]];
    return objectText([...base, ...plain, ["max_tokens", String(MESSAGES_LIMIT)], ...rest]);
  }
  return objectText([
    ...base,
    ...messages,
    ...(prompt.tools > 0 ? ([["tools", json(TOOL(prompt.tools))]] satisfies Members) : []),
    ...(prompt.prediction > 0
      ? ([
          ["prediction", json({ type: "content", content: textOf("prose", prompt.prediction) })],
        ] satisfies Members)
      : []),
    ...rest,
  ]);
}

/** The prompt as text completions have it; Ollama's take one text. */
function textMembers({ via, prompt, asText }: ChatStep, flight: Flight): Members {
  const { form, suffix } = asText;
  if (via === "generate")
    return [
      ["prompt", json(promptText(prompt, flight))],
      ["images", json(Array(prompt.images).fill(PIXEL))],
    ];
  const end: Members = suffix > 0 ? [["suffix", json(textOf("prose", suffix))]] : [];
  if (via === "raw") return [["prompt", json(promptText(prompt, flight))], ["raw", "true"], ...end];
  return [["prompt", json(inForm(form, prompt, flight))], ...end, ["user", json(canaryText(flight.canary))]];
}

/** The members that reach the upstream: most APIs know those in `extra` alone, chat.send a limit besides. */
export const carried = (members: readonly Member[], via: ChatStep["via"]): Member[] =>
  members.filter((member) => {
    if (via === "chat" || via === "completions" || member.place === "extra") return true;
    // Params that chat.send does not have are ignored, also those that look like one.
    return (
      (via === "send" || via === "socket") &&
      member.place === "top" &&
      member.name === "max_tokens" &&
      !onlyFolds(member)
    );
  });

/** The params of chat.send: of the members, it knows `max_tokens` and what is in `extra`. */
export function sendParams(request: ChatRequest, context: ChatContext): string {
  const { flight } = context;
  const members = filled(carried(request.members, "send"), flight);
  return objectText([
    ["model", json(modelId(request, flight))],
    ["messages", json(messagesOf(request, flight))],
    ...(request.prompt.tools > 0 ? ([["tools", json(TOOL(request.prompt.tools))]] satisfies Members) : []),
    ...ownFields(request, context),
    ...membersAt(members, "top"),
    ...nested(members),
  ]);
}

function inForm(form: PromptForm, prompt: Prompt, flight: Flight): unknown {
  const text = promptText(prompt, flight);
  return {
    text,
    texts: [text, ...Array.from({ length: 3 }, () => textOf(prompt.kind, 50))],
    // The canary has to stand elsewhere: tokens say nothing.
    tokens: Array.from({ length: prompt.tokens }, (_, i) => i),
  }[form];
}

export function embedBody(step: EmbedStep, flight: Flight): string {
  const members = filled(step.members, flight);
  return objectText([
    ["model", json(`embed-${flight.modelNumber}`)],
    ["input", json(inForm(step.form, step.prompt, flight))],
    ["user", json(canaryText(flight.canary))],
    ...membersAt(members, "top"),
    ...nested(members),
  ]);
}
