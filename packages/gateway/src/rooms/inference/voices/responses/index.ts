import { z } from "zod";
import { isObject, readJson } from "../../../../kernel/json.ts";
import { sessionField } from "../../call/session.ts";
import { Payload } from "../../request/payload.ts";
import { Given } from "../given.ts";
import {
  droppedHeaders,
  idToken,
  nativeOf,
  type ReadRequest,
  type RequestContext,
  type Voice,
} from "../voice.ts";
import { chatBodyOfResponses, requireOwnState, type StoredTurn } from "./request.ts";
import { type ResponseIdentity, ResponseSpeaker, wantsSummary } from "./speaker.ts";

function readRequest(body: unknown, context: RequestContext, history: readonly StoredTurn[]): ReadRequest {
  const { requestId } = context;
  const { chat, clientTools, dropped } = chatBodyOfResponses(body, history);
  const request = body as Record<string, unknown>;
  const { store, previous_response_id } = request;
  const previousResponseId = typeof previous_response_id === "string" ? previous_response_id : null;
  const stored = store === false ? null : context.responses();
  const identity: ResponseIdentity = {
    token: idToken(requestId),
    createdSeconds: Math.floor(context.now() / 1000),
    request,
    clientTools,
    keep: stored?.turn({ previousResponseId, input: request.input }) ?? null,
  };
  const payload = new Payload(chat);
  payload.wantsThoughts = wantsSummary(request);
  // Continuations go to the backend that answered first.
  payload.firstResponse = history[0]?.id ?? (identity.keep && requestId);
  payload.session = sessionField((field) => request[field]);
  return {
    payload,
    speaker: new ResponseSpeaker(identity),
    headers: droppedHeaders([...dropped]),
  };
}

const NOTHING_STORED = "the operator has responses not stored here: send the whole conversation in `input`";

export const responses: Voice = {
  routes: {
    responses: {
      path: "/v1/responses",
      summary: "OpenAI Responses API over the chat path, streaming or not; the next may go on from it",
      body: z.looseObject({
        model: z.string(),
        input: z.union([z.string(), z.array(z.looseObject({}))]),
        instructions: z.string().nullish(),
        previous_response_id: z
          .string()
          .nullish()
          .describe("One of yours of the last 30 days, to go on from"),
        store: z.boolean().nullish().describe("False: nothing can go on from this one"),
        stream: z.boolean().nullish(),
        max_output_tokens: z.int().nullish(),
        tools: z.array(z.looseObject({ type: z.string() })).nullish(),
      }),
      response: z.looseObject({ id: z.string(), object: z.literal("response"), status: z.string() }),
    },
  },
  async read(bytes, context) {
    if (!context.isSpoken("responses")) return translated(await readJson(bytes), context);
    const payload = await Payload.read(bytes);
    // Responses are stored here, under our own id, so that only their owner can continue them.
    const isStored = payload.value("store") !== false && context.responses() !== null;
    if (isStored || payload.value("previous_response_id") != null)
      return translated(payload.object(), context);
    requireOwnState(payload);
    return {
      native: nativeOf("responses", payload, (tokens) => ({ max_output_tokens: tokens })),
      translated: () => readRequest(payload.object(), context, []),
    };
  },
  errorBody: ({ message, type, code }) => ({ error: { message, type, param: null, code } }),
};

async function translated(body: unknown, context: RequestContext): Promise<ReadRequest> {
  const sent = new Given(isObject(body) ? body : {});
  if (sent.fields.previous_response_id == null) return readRequest(body, context, []);
  const id = sent.string("previous_response_id");
  const stored = context.responses() ?? sent.refuse("previous_response_id", NOTHING_STORED);
  const held = new Payload(sent.fields);
  return readRequest(body, context, await context.whileHeld(held, () => stored.history(id)));
}
