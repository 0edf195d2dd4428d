import { z } from "zod";
import { failField } from "../../../kernel/errors.ts";
import { isObject } from "../../../kernel/json.ts";
import { estimateTokens } from "../../metering/index.ts";
import { type AnswerBody, requireList } from "../call/answer-body.ts";
import type { AskedWork, Made } from "../call/work-bound.ts";
import { known, type WorkKind } from "./kind.ts";

/** Rerankers bill a call as one search of up to this many documents; a long document counts as several. */
const DOCUMENTS_PER_CALL = 100;
const DOCUMENT_CHARS = 2_000;
const PROVIDER = z.string().optional().describe("Only this backend, or backends of this kind");

const textOf = (value: unknown): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");

export const rerank: WorkKind = {
  path: "/rerank",
  summary: "Documents in the order of how well they answer a query",
  capability: "rerank",
  form: "never",
  body: z.object({
    model: z.string(),
    query: z.union([z.string(), z.looseObject({})]).describe("A text, or what the model takes for one"),
    documents: z.array(z.unknown()).describe("Texts, or objects with a `text`"),
    top_n: z.int().nullish(),
    ...known("return_documents rank_fields max_chunks_per_doc max_tokens_per_doc truncation user"),
    provider: PROVIDER,
  }),
  response: z.looseObject({
    results: z.array(z.looseObject({ index: z.int(), relevance_score: z.number() })),
  }),
  read(payload): AskedWork {
    const query = payload.sent("query");
    const documents = payload.sent("documents");
    if (!isObject(query) && (typeof query !== "string" || query === ""))
      failField("query", "is required: a text");
    if (!Array.isArray(documents) || documents.length === 0)
      return failField("documents", "is required: an array of texts with at least one entry");
    const pieces = documents.reduce<number>(
      (sum, each) => sum + Math.max(1, Math.ceil(textOf(each).length / DOCUMENT_CHARS)),
      0,
    );
    return {
      units: ["call"],
      counts: { call: Math.ceil(pieces / DOCUMENTS_PER_CALL) },
      isForm: false,
      // The query is read again with each document.
      promptTokens: estimateTokens(textOf(query)) * pieces,
      outputTokens: 0,
    };
  },
  made: (answer): Made => {
    const { results, meta } = requireObject(answer);
    if (!Array.isArray(results)) return {};
    const units = isObject(meta) && isObject(meta.billed_units) ? meta.billed_units.search_units : null;
    return Number.isInteger(units) && (units as number) >= 0 ? { counts: { call: units as number } } : {};
  },
};

function requireObject(answer: AnswerBody): Record<string, unknown> {
  requireList(answer, { list: "results", endsProperly: false });
  return JSON.parse(answer.bytes.toString()) as Record<string, unknown>;
}

export const moderations: WorkKind = {
  path: "/moderations",
  summary: "Whether texts or images are of a kind that a policy forbids",
  capability: "moderation",
  form: "never",
  body: z.object({
    model: z.string(),
    input: z.union([z.string(), z.array(z.unknown())]),
    provider: PROVIDER,
  }),
  response: z.looseObject({ id: z.string(), results: z.array(z.looseObject({ flagged: z.boolean() })) }),
  read(payload): AskedWork {
    const input = payload.sent("input");
    const isList = Array.isArray(input) && input.length > 0;
    if (!isList && (typeof input !== "string" || input === ""))
      failField("input", "is required: a text, or an array of texts or of parts with a `type`");
    return {
      units: ["call"],
      counts: { call: isList ? input.length : 1 },
      isForm: false,
      promptTokens: 0,
      outputTokens: 0,
    };
  },
  made: (answer): Made => {
    requireList(answer, { list: "results", endsProperly: false });
    return {};
  },
};
