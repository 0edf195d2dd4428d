import { expect, test } from "bun:test";
import fc from "fast-check";
import { chatBodyOfResponses } from "../../src/rooms/inference/voices/responses/request.ts";
import { type ToolCallEvent, ToolCalls } from "../../src/rooms/inference/voices/tool-calls.ts";

const args = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 4 });

/** Several calls, each cut into pieces, and an order in which the pieces arrive. */
const interleaving = fc
  .array(fc.record({ args, cuts: fc.array(fc.nat(200), { maxLength: 5 }) }), { minLength: 1, maxLength: 5 })
  .chain((calls) => {
    const pieces = calls.map(({ args, cuts }) => {
      const json = JSON.stringify(args);
      const at = [0, ...cuts.map((cut) => cut % json.length).sort((a, b) => a - b), json.length];
      return at.slice(1).map((end, i) => json.slice(at[i], end));
    });
    const turns = pieces.flatMap((list, call) => list.map(() => call));
    return fc.record({
      calls: fc.constant(calls.map(({ args }) => args)),
      pieces: fc.constant(pieces),
      order: fc.shuffledSubarray(turns, { minLength: turns.length, maxLength: turns.length }),
    });
  });

function collect(events: readonly ToolCallEvent[]): Map<string, string> {
  const collected = new Map<string, string>();
  let open: string | null = null;
  for (const event of events) {
    if (event.type === "tool_start") {
      expect(open).toBeNull();
      expect(collected.has(event.id)).toBe(false);
      open = event.id;
      collected.set(event.id, "");
    } else if (event.type === "tool_arguments") collected.set(open!, collected.get(open!)! + event.text);
    else open = null;
  }
  expect(open).toBeNull();
  return collected;
}

test("tool calls come out one after the other and whole, however their pieces are mixed", () => {
  fc.assert(
    fc.property(interleaving, ({ calls, pieces, order }) => {
      const toolCalls = new ToolCalls();
      const next = pieces.map(() => 0);
      const events = order.flatMap((index) => {
        const i = next[index]!++;
        const opening = i === 0 && { id: `c${index}` };
        const name = i === 0 ? `f${index}` : "";
        return toolCalls.add({ index, ...opening, function: { name, arguments: pieces[index]![i]! } });
      });
      const collected = collect([...events, ...toolCalls.close()]);
      expect(collected.size).toBe(calls.length);
      for (const [index, expected] of calls.entries()) {
        expect(JSON.parse(collected.get(`c${index}`)!)).toEqual(JSON.parse(JSON.stringify(expected)));
      }
    }),
    { numRuns: 300 },
  );
});

const image = { type: "input_image", image_url: "data:image/png;base64,AA==" };
/** One step of a session: what was said, thought, called and answered. */
const step = fc.oneof(
  fc.record({ kind: fc.constantFrom("user", "developer", "assistant", "reasoning") }),
  fc.record({ kind: fc.constant("calls"), count: fc.integer({ min: 1, max: 3 }), withImage: fc.boolean() }),
);

test("any session becomes a chat in the order that upstreams insist on", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
      let calls = 0;
      const input = steps.flatMap((one): object[] => {
        if (one.kind === "reasoning")
          return [{ type: "reasoning", content: [{ type: "reasoning_text", text: "hm" }] }];
        if (!("count" in one)) return [{ role: one.kind, content: one.kind }];
        const ids = Array.from({ length: one.count }, () => `c${calls++}`);
        const output = [{ type: "input_text", text: "done" }, ...(one.withImage ? [image] : [])];
        return [
          ...ids.map((id) => ({ type: "function_call", call_id: id, name: "f", arguments: "{}" })),
          ...ids.map((id) => ({ type: "function_call_output", call_id: id, output })),
        ];
      });
      const { messages } = chatBodyOfResponses({
        model: "m",
        input: [{ role: "user", content: "begin" }, ...input],
      }).chat;
      let owed: string[] = [];
      for (const [i, message] of messages.entries()) {
        if (message.role === "tool") {
          expect(owed).toContain(message.tool_call_id!);
          owed = owed.filter((id) => id !== message.tool_call_id);
          continue;
        }
        // Every call was answered before anyone else spoke.
        expect(owed).toEqual([]);
        if (message.role === "user") expect(messages[i - 1]?.role).not.toBe("user");
        if (message.role === "assistant") expect(message.content !== null || message.tool_calls).toBeTruthy();
        owed = (message.tool_calls ?? []).map(({ id }) => id);
      }
      expect(owed).toEqual([]);
      expect(messages.filter(({ role }) => role === "tool")).toHaveLength(calls);
    }),
    { numRuns: 300 },
  );
});
