import { fail, ServiceError } from "../../kernel/errors.ts";

/** Text packs to a tenth or so. What packs much smaller is meant to take memory here. */
const RATIO_MAX = 100;
const SMALL_BYTES = 1024 * 1024;

/** The body of a request as it was before its client compressed it. Never inflates to more than `mostBytes`. */
export function inflated(bytes: Buffer, encoding: string, mostBytes: number): Promise<Buffer> {
  const bytesMax = Math.min(mostBytes, Math.max(SMALL_BYTES, bytes.length * RATIO_MAX));
  const name = encoding.trim().toLowerCase();
  if (name !== "gzip" && name !== "x-gzip") {
    fail(
      "unsupported_media_type",
      `content-encoding ${JSON.stringify(encoding.slice(0, 64))} is not read here: send gzip, or the body as it is`,
    );
  }
  const { gunzip } = process.getBuiltinModule("node:zlib");
  return new Promise((resolve, reject) => {
    gunzip(bytes, { maxOutputLength: bytesMax }, (error, whole) => {
      if (!error) resolve(whole);
      else reject(refusalOf(error as NodeJS.ErrnoException, bytesMax));
    });
  });
}

const refusalOf = ({ code }: NodeJS.ErrnoException, bytesMax: number): ServiceError =>
  code === "ERR_BUFFER_TOO_LARGE"
    ? new ServiceError("body_too_large", `The body inflates to more than ${bytesMax} bytes`)
    : new ServiceError("invalid_request", "The body is not valid gzip, as its content-encoding says");
