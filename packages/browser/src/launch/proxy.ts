/** Chromium takes no login in its proxy flag, and none at all for SOCKS5; both are provided here. */
import { unescaped } from "../policy/logins.ts";
import { openSocksBridge } from "../resolve/socks-bridge.ts";

export interface ProxyLogin {
  username: string;
  password: string;
}

export interface BrowserProxy {
  /** The proxy setting for the browser; absent without a proxy. */
  server?: string;
  /** The credentials for the proxy's challenge. */
  login: ProxyLogin | null;
  close(): void;
}

function withoutLogin(address: string): Pick<BrowserProxy, "server" | "login"> {
  const { protocol, host, username, password } = new URL(address);
  const login = { username: unescaped(username), password: unescaped(password) };
  return { server: `${protocol}//${host}`, login };
}

export async function prepareProxy(address: string | undefined): Promise<BrowserProxy> {
  if (!address || new URL(address).username === "") return { server: address, login: null, close() {} };
  const url = new URL(address);
  if (url.protocol !== "socks5:") return { ...withoutLogin(address), close() {} };
  const bridge = await openSocksBridge(url);
  return { ...withoutLogin(bridge.proxyUrl), close: bridge.close };
}
