/** The path that the service is served under, without its last slash; empty where it has a host to itself. */
export const BASE =
  globalThis.document?.querySelector<HTMLMetaElement>('meta[name="base-path"]')?.content ?? "";

/** The service's address, as other programs need it. */
export const SERVICE_URL = location.origin + BASE;

/** The path of the page, as the console knows it. */
export const pathHere = (): string =>
  location.pathname.startsWith(`${BASE}/`) ? location.pathname.slice(BASE.length) : location.pathname;
