import { type HttpRequest, mediaTypeOf, StreamedReply, WebSource } from "@model-gateway/wire/http";
import { fail } from "../../kernel/errors.ts";

const CLIP_MS = 10 * 60_000;
const CLIP_BYTES = 4 * 1024 ** 3;
const ONE_RANGE = /^bytes=(\d+-\d*|-\d+)$/;
/** Other types could be pages that run in a browser. */
const TYPES = ["video/mp4", "video/webm", "video/quicktime"];

export interface ClipAsker {
  request: Pick<HttpRequest, "header" | "signal">;
  requestId: string;
}

/** Passes on a clip or a range of it, at the client's pace. */
export async function clipReply(
  { request, requestId }: ClipAsker,
  fetchClip: (range: string | null, signal: AbortSignal) => Promise<Response | null>,
  bytes = CLIP_BYTES,
): Promise<StreamedReply> {
  const range = ONE_RANGE.exec(request.header("range") ?? "")?.[0] ?? null;
  const signal = AbortSignal.any([request.signal, AbortSignal.timeout(CLIP_MS)]);
  let clip: Response | null;
  try {
    clip = await fetchClip(range, signal);
  } catch (cause) {
    fail("unavailable", "The server that has this clip is away; try again shortly", { cause });
  }
  if (!clip) fail("not_found", "No clip is here: the job made none, or its server no longer has it");
  const { status, headers: sent, body } = clip;
  const contentType = TYPES.find((type) => type === mediaTypeOf(sent.get("content-type")));
  const headers: Record<string, string> = { "cache-control": "private" };
  for (const name of ["accept-ranges", "content-range"]) if (sent.has(name)) headers[name] = sent.get(name)!;
  let left = bytes;
  const bounded = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, out) {
      left -= piece.length;
      if (left < 0) throw new Error(`the clip is larger than ${bytes} bytes`);
      out.enqueue(piece);
    },
  });
  return new StreamedReply(
    { status, contentType: contentType ?? "application/octet-stream", requestId, headers },
    new WebSource((body ?? new Blob([]).stream()).pipeThrough(bounded)),
  );
}
