export { ABI_VERSION, type EngineInfo, EngineLibrary } from "./library.ts";
export { type ForeignEngine, type ForeignOptions, openForeignTransport } from "./transport.ts";
