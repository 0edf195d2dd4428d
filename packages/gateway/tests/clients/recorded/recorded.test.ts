/**
 * Recorded sessions of coding agents × dialects of the backend: ten turns with tools, thinking and an image. Pairs of
 * one dialect pass byte for byte; the answers of all tell the same, event by event, as they told the program.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { eventsIn, toldBy } from "../../dialects/exchanges.ts";
import { DIALECTS, type DialectName, startVendors, type Vendors } from "../../dialects/vendors.ts";
import { bootInference, type InferenceBench } from "../../support/inference.ts";
import { programScript } from "../grid/program-script.ts";
import { sessionOf } from "./sessions.ts";

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

/** A chat passes byte for byte, too, but for the usage that the gateway asks for. */
const VERBATIM: Record<string, DialectName> = {
  "claude-code": "messages",
  codex: "responses",
  "gemini-cli": "gemini",
};

describe.each([...Object.keys(VERBATIM), "opencode"])("%s", (program) => {
  for (const dialect of DIALECTS)
    test(dialect, async () => {
      const { path, headers, requests, told } = sessionOf(program, dialect);
      const vendor = vendors[dialect];
      const answers: string[] = [];
      for (const requestAfter of requests) {
        const sent = requestAfter(answers);
        const answer = await bench.post(path, sent, { headers });
        const text = await answer.text();
        expect([answer.status, answer.status === 200 ? "" : text]).toEqual([200, ""]);
        answers.push(text);
        expect(toldBy(text)).toEqual(answers.length < 10 ? told.calling : told.done);
        if (VERBATIM[program] !== dialect) continue;
        expect(vendor.requests.at(-1)!.text).toBe(sent);
        expect(text).toBe(vendor.answers.at(-1)!);
      }
      expect(answers).toHaveLength(10);
      expect(JSON.stringify(eventsIn(answers.at(-1)!))).toContain("10");
    });
});
