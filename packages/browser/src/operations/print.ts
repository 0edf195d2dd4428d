import { z } from "zod";
import type { Params } from "../cdp/connection.ts";
import type { Deadline } from "../page/deadline.ts";
import type { Page } from "../page/page.ts";
import { withoutSecrets } from "../page/screenshot.ts";
import { defineOperation } from "./define.ts";
import { TimeoutMs } from "./schemas.ts";

const printTimeoutMs = 30_000;

/** The PDF in base64. */
export async function printed(
  page: Page,
  wanted: Params<"Page.printToPDF">,
  deadline: Deadline,
): Promise<string> {
  const print = () => page.session.send("Page.printToPDF", wanted, deadline.leftMs);
  return (await withoutSecrets(page, deadline, print)).data;
}

export const pdfOperation = defineOperation({
  name: "pdf",
  summary: "The page as PDF",
  method: "POST",
  path: "/pdf",
  timeoutMs: printTimeoutMs,
  params: z.object({
    landscape: z.boolean().default(false),
    background: z.boolean().default(true).describe("Print background colours and pictures"),
    scale: z.number().min(0.1).max(2).default(1),
    ranges: z.string().max(200).default("").describe("Such as 1-3, 5"),
    timeout_ms: TimeoutMs,
  }),
  result: z.object({ data: z.string().describe("The PDF in base64"), mime_type: z.string() }),
  run: async ({ browser, deadline }, { landscape, background, scale, ranges }) => {
    const page = await (await browser()).page();
    const wanted = { landscape, printBackground: background, scale, pageRanges: ranges };
    return { data: await printed(page, wanted, deadline), mime_type: "application/pdf" };
  },
});
