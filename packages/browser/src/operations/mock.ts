import { z } from "zod";
import { ToolError } from "../errors.ts";
import type { Browser } from "../page/browser.ts";
import { networkSpeeds } from "../policy/enforce.ts";
import type { Session } from "../session.ts";

const mocksMax = 100;

export const Mocks = z
  .array(
    z.object({
      url: z.string().max(2_000).describe("Part of the address; * stands for anything"),
      status: z.number().int().min(200).max(599).optional(),
      body: z.string().max(5_000_000).optional(),
      headers: z.record(z.string(), z.string()).optional(),
      delay_ms: z.number().int().min(0).max(600_000).optional(),
      fail: z.boolean().optional().describe("As if the server could not be reached"),
    }),
  )
  .max(mocksMax)
  .describe("Answered in place of the server, or delayed; the list replaces the one before");
const speedNames = Object.keys(networkSpeeds) as (keyof typeof networkSpeeds)[];
export const Network = z.enum(speedNames);

export interface Mocking {
  mocks?: z.output<typeof Mocks>;
  network?: z.output<typeof Network>;
}

/** Another engine would take these without a word and do nothing of the kind. */
export function needsChromium({ engine }: Session, what: string): void {
  if (engine?.kind === "foreign")
    throw new ToolError("not_supported", `${what} needs a Chromium, not ${engine.name}.`);
}

export function mock(session: Session, { gate }: Browser, { mocks, network }: Mocking): void {
  if (mocks) needsChromium(session, "Answering in place of servers");
  if (network) needsChromium(session, "A slow network or none");
  if (mocks) gate.mocks = mocks;
  if (network) gate.speed = network;
}
