/** Recorded coding agents × dialects: ten turns with tools, thinking and an image, event by event; pairs of one dialect byte for byte. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { DIALECTS, modelOf, startVendors, type Vendors } from "../../dialects/vendors.ts";
import { bootInference, type InferenceBench } from "../../support/inference.ts";
import { programScript } from "../grid/program-script.ts";
import { type Json, RECORDED, recordedOf } from "./programs.ts";

let bench: InferenceBench;
let vendors: Vendors;
beforeAll(async () => {
  bench = await bootInference();
  vendors = await startVendors(bench, programScript);
});
afterAll(async () => {
  vendors.stop();
  await bench.stop();
});

const eventsIn = (text: string): Json[] =>
  text.split(/\r?\n\r?\n/).flatMap((event) => {
    const data = /^data: ?(.*)$/m.exec(event)?.[1];
    return data && data !== "[DONE]" ? [JSON.parse(data)] : [];
  });

describe.each(RECORDED)("$name", (program) => {
  for (const dialect of DIALECTS)
    test(dialect, async () => {
      const recorded = recordedOf(program.name);
      const vendor = vendors[dialect];
      let { path, body } = program.asking(recorded, modelOf(dialect));
      const said: string[] = [];
      for (let turn = 1; turn <= 10; turn++) {
        const sent = JSON.stringify(body);
        const answer = await bench.post(path, sent, { headers: recorded.headers });
        const text = await answer.text();
        expect([answer.status, answer.status === 200 ? "" : text]).toEqual([200, ""]);
        if (program.dialect === dialect && dialect !== "chat") {
          expect(vendor.requests.at(-1)!.text).toBe(sent);
          expect(text).toBe(vendor.answers.at(-1)!);
        }
        const events = eventsIn(text);
        const heard = program.hear(events);
        const {
          thinking,
          text: words,
          calls = [],
        } = programScript({
          ...{ model: modelOf(dialect), step: turn - 1 },
          tools: heard.calls.map(({ name }) => name),
        });
        expect(heard.text).toBe(words!);
        expect(heard.calls.map(({ args }) => args)).toEqual(calls.map(({ args }) => args));
        // Vendors whose own programs are not shown thoughts show none here.
        if (program.seesThoughts && heard.thoughts !== "") expect(heard.thoughts).toBe(thinking!);
        said.push(words!);
        if (heard.calls.length === 0) break;
        body = program.next(body, events, `result ${turn}`);
      }
      expect(said).toHaveLength(10);
      expect(said.at(-1)).toBe("Done after 10 turns.");
    });
});
