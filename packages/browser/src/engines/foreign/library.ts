import { dlopen, type Pointer, ptr, toBuffer } from "bun:ffi";
import { existsSync } from "node:fs";
import { scanDependencies } from "../../bundle/scan.ts";
import { messageOf, SetupError } from "../../resolve/errors.ts";

/** The version of include/browser_engine.h that this code was written against. */
export const ABI_VERSION = 1;

/** sizeof(be_msg), and where its members are; the header fixes both. */
const MSG_BYTES = 40;
const MSG_JSON = 1;
const MSG_JSON_LENGTH = 2;
const MSG_BYTES_POINTER = 3;
const MSG_BYTES_LENGTH = 4;
const PAYLOAD_BYTES_MAX = 256n * 1024n * 1024n;

export const BE_E_CLOSED = -1;
export const BE_E_BUSY = -3;

const resultNames: Record<number, string> = {
  [-1]: "the engine has ended",
  [-2]: "a bad argument",
  [-3]: "its queue is full",
  [-4]: "an internal error",
};

// Handles travel as u64, which is a pointer's size here: a number would lose the top bits of tagged pointers.
const symbols = {
  be_abi_version: { args: [], returns: "u32" },
  be_info: { args: [], returns: "cstring" },
  be_create: { args: ["buffer", "ptr"], returns: "i32" },
  be_send: { args: ["u64", "u64", "buffer", "buffer"], returns: "i32" },
  be_poll: { args: ["u64", "ptr"], returns: "i32" },
  be_msg_free: { args: ["u64", "ptr"], returns: "void" },
  be_destroy: { args: ["u64"], returns: "void" },
} as const;

export interface EngineInfo {
  name: string;
  version: string;
  /** Null: the engine does not say, so every method is passed on. */
  methods: ReadonlySet<string> | null;
}

/** One message as the engine gave it, already copied out of the engine's memory. */
export interface RawMessage {
  id: number;
  json: string;
  bytes: Buffer | null;
}

export function describeResult(code: number): string {
  return `${resultNames[code] ?? "an unknown error"} (${code})`;
}

function invalidLibrary(path: string, why: string, cause?: unknown): SetupError {
  return new SetupError("engine_library_invalid", `${path} cannot be used as a browser engine: ${why}.`, {
    wayOut: "Use a library that the vendor built for include/browser_engine.h and for this machine.",
    cause,
  });
}

/** dlopen's message names at most one missing library; the scan names all of them. */
function whyNotLoaded(path: string, error: unknown): string {
  const message = messageOf(error);
  try {
    const { missing } = scanDependencies(path, { env: process.env });
    return missing.length > 0 ? `it needs ${missing.join(", ")}, not found on this system` : message;
  } catch {
    return message;
  }
}

function terminated(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

function openSymbols<const Names extends keyof typeof symbols>(path: string, names: readonly Names[]) {
  const wanted = Object.fromEntries(names.map((name) => [name, symbols[name]])) as Pick<
    typeof symbols,
    Names
  >;
  try {
    return dlopen(path, wanted).symbols;
  } catch (error) {
    const missing = /Symbol "([^"]+)" not found/.exec(messageOf(error))?.[1];
    throw invalidLibrary(path, missing ? `it does not export ${missing}` : whyNotLoaded(path, error), error);
  }
}

function parseInfo(path: string, text: string | null): EngineInfo {
  let info: unknown = null;
  try {
    info = JSON.parse(text ?? "");
  } catch {
    // Reported below together with every other wrong shape.
  }
  const { name, version, methods } = (info ?? {}) as Record<string, unknown>;
  if (typeof name !== "string" || typeof version !== "string")
    throw invalidLibrary(path, "be_info does not return JSON with name and version");
  const list = Array.isArray(methods) ? methods.filter((method) => typeof method === "string") : null;
  return { name, version, methods: list ? new Set(list) : null };
}

/** A loaded library. It is never unloaded: an engine's threads may outlive its handle by a moment. */
export class EngineLibrary {
  readonly info: EngineInfo;
  private readonly symbols;
  private readonly message = new BigUint64Array(MSG_BYTES / 8);
  private readonly messagePointer: Pointer = ptr(this.message);

  constructor(readonly path: string) {
    if (!existsSync(path))
      throw new SetupError("engine_library_missing", `The engine library ${path} does not exist.`, {
        wayOut: "Set BROWSER_WEBKIT_LIB or BROWSER_SERVO_LIB to the library's path.",
      });
    const version = openSymbols(path, ["be_abi_version"]).be_abi_version();
    if (version !== ABI_VERSION)
      throw new SetupError(
        "engine_abi_mismatch",
        `${path} implements version ${version} of the engine contract, this tool needs ${ABI_VERSION}.`,
        { wayOut: "Get a build of the library for this version, or a matching version of the tool." },
      );
    this.symbols = openSymbols(path, Object.keys(symbols) as (keyof typeof symbols)[]);
    this.info = parseInfo(path, this.symbols.be_info()?.toString() ?? null);
  }

  create(options: object): bigint {
    const handle = new BigUint64Array(1);
    const code = this.symbols.be_create(terminated(JSON.stringify(options)), ptr(handle));
    if (code < 0 || handle[0] === 0n)
      throw new SetupError(
        "engine_create_failed",
        `${this.info.name} did not start: ${describeResult(code)}.`,
        {
          wayOut: `See what the engine printed; ${this.path} is version ${this.info.version}.`,
        },
      );
    return handle[0]!;
  }

  send(handle: bigint, id: number, method: string, params: string): number {
    return this.symbols.be_send(handle, BigInt(id), terminated(method), terminated(params));
  }

  /** The next message, null when there is none, or the engine's error code. */
  poll(handle: bigint): RawMessage | number | null {
    const code = this.symbols.be_poll(handle, this.messagePointer);
    if (code <= 0) return code === 0 ? null : code;
    try {
      const json = this.copy(MSG_JSON, MSG_JSON_LENGTH);
      const bytes = this.copy(MSG_BYTES_POINTER, MSG_BYTES_LENGTH);
      return { id: Number(this.message[0]), json: json?.toString("utf8") ?? "", bytes };
    } finally {
      this.symbols.be_msg_free(handle, this.messagePointer);
    }
  }

  private copy(pointerAt: number, lengthAt: number): Buffer | null {
    const pointer = this.message[pointerAt]!;
    const length = this.message[lengthAt]!;
    if (pointer === 0n) return null;
    if (length === 0n) return Buffer.alloc(0);
    if (length > PAYLOAD_BYTES_MAX) throw invalidLibrary(this.path, `it sent a message of ${length} bytes`);
    return Buffer.from(toBuffer(Number(pointer) as Pointer, 0, Number(length)));
  }

  destroy(handle: bigint): void {
    this.symbols.be_destroy(handle);
  }
}
