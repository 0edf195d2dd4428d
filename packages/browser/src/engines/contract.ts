/** A CDP-shaped message link to a browser engine; the pipe to a Chromium and a foreign engine both look like this. */
export interface EngineTransport {
  /** One CDP message: {id, method, params?, sessionId?}. */
  send(message: CdpRequest): void;
  onMessage: (message: CdpMessage) => void; // set by the CDP connection
  onClose: (reason: string) => void; // set by the CDP connection; called exactly once
  close(): Promise<void>;
}
export interface CdpRequest {
  id: number;
  method: string;
  params?: object;
  sessionId?: string;
}
export interface CdpMessage {
  id?: number;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: { code: number; message: string; data?: string };
  sessionId?: string;
}
export type EngineName = "chrome" | "chromium" | "edge" | "webkit" | "servo";
/** What resolution found: a binary to launch, or a library to load. */
export type ResolvedEngine =
  | {
      kind: "cdp";
      name: "chrome" | "chromium" | "edge";
      path: string;
      source: "override" | "baked" | "system" | "cache" | "download" | "attached";
      version?: string;
    }
  | { kind: "foreign"; name: "webkit" | "servo"; libraryPath: string; source: "override" | "system" };
